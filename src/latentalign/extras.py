"""Parts of the package that need more than `pip install latentalign` brings, and the line that says so."""

import importlib.util

from latentalign.errors import UserError

# extra -> the modules it brings; pyproject.toml names the distributions
EXTRAS: dict[str, tuple[str, ...]] = {
    "serve": ("fastapi", "uvicorn", "h11"),
    "reports": ("matplotlib", "jinja2"),
    "tasks": ("PIL", "sklearn"),
}


def require(extra: str, *, purpose: str) -> None:
    """Refuse to go on without the modules of an extra."""
    for module in EXTRAS[extra]:
        if importlib.util.find_spec(module) is None:
            raise UserError(
                f"{purpose} needs {module}, which is not installed; try: pip install 'latentalign[{extra}]'"
            )
