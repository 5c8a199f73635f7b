"""An arrow points one way: cli -> reports, inspector -> training -> tasks -> alignment."""

import ast
from pathlib import Path

import pytest

import latentalign

ROOT = Path(latentalign.__file__).parent
LEAVES = {"batching", "errors", "extras", "files", "task"}
TASKS = {"translation", "wordalign", "vqa", "memory", "gaussian"}

# What each part may import of the rest of the package. A part that is not listed here is refused.
ALLOWED: dict[str, set[str]] = {
    "batching": set(),
    "errors": set(),
    "extras": {"errors"},
    "files": {"errors"},
    "task": {"errors"},
    "download": LEAVES,
    "alignment": set(),
    "text": {"alignment"} | LEAVES,
    **{task: {"alignment", "text"} | LEAVES for task in TASKS},
    "training": {"alignment", "text"} | TASKS | LEAVES,
    "reports": {"alignment", "text", "training", "download"} | TASKS | LEAVES,
    "inspector": {"alignment", "text", "training"} | TASKS | LEAVES,
    "cli": {"alignment", "text", "training", "reports", "inspector", "download"} | TASKS | LEAVES,
    "__main__": {"cli"},
    "__init__": {"alignment", "training", "wordalign"},
}

# Inside `training` the rooms are stacked: each may import those before it. `train`, `check` and
# `trained_run` stand above all of them.
ROOMS = ("recipe", "run", "loop")


def part_of(module: str) -> str:
    """`latentalign.vqa.model` -> `vqa`; the package itself -> `__init__`."""
    names = module.split(".")
    return names[1] if len(names) > 1 else "__init__"


def imported_modules(source: str, module: str, *, is_package: bool = False) -> set[str]:
    """Absolute names of everything imported anywhere in the source, inside functions too."""
    found = set()
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            prefix = ".".join([*base, *([node.module] if node.module else [])])
            # `from latentalign import x` may name a module or something defined in the package
            found |= {f"{prefix}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in {"import_module", "__import__"}:
            found |= {
                argument.value
                for argument in node.args
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
            }
    return found


def violations(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """Imports of the module that point against the arrows."""
    mine = part_of(module)
    wrong = []
    for name in sorted(imported_modules(source, module, is_package=is_package)):
        if name.split(".")[0] != "latentalign":
            continue
        theirs = part_of(name)
        if theirs not in ALLOWED:  # a name the package itself defines, such as __version__
            theirs = "__init__"
        public = theirs == "__init__" and mine not in {"alignment"} | LEAVES
        against_parts = theirs != mine and theirs not in ALLOWED.get(mine, set()) and not public
        if against_parts or against_rooms(module, name):
            wrong.append(f"{module} imports {name}")
    return wrong


def against_rooms(module: str, name: str) -> bool:
    """Whether a module of `training` imports from a room above its own."""
    mine, theirs = (dotted.split(".")[1:3] for dotted in (module, name))
    if mine[:1] != ["training"] or theirs[:1] != ["training"]:
        return False
    return room_number(theirs) > room_number(mine)


def room_number(names: list[str]) -> int:
    return ROOMS.index(names[1]) if len(names) > 1 and names[1] in ROOMS else len(ROOMS)


def modules() -> list[tuple[str, Path]]:
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        names = list(path.relative_to(ROOT.parent).with_suffix("").parts)
        if names[-1] == "__init__":
            names.pop()
        found.append((".".join(names), path))
    return found


@pytest.mark.parametrize(("module", "path"), modules(), ids=[module for module, _ in modules()])
def test_imports_point_one_way(module: str, path: Path) -> None:
    is_package = path.name == "__init__.py"
    assert violations(path.read_text(encoding="utf-8"), module, is_package=is_package) == []


def test_every_part_has_its_rules() -> None:
    parts = {part_of(module) for module, _ in modules()}
    assert parts <= set(ALLOWED), f"say in ALLOWED what {sorted(parts - set(ALLOWED))} may import"
    assert set(ALLOWED) - {"__init__"} <= parts, "ALLOWED names a part that is gone"


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("latentalign.alignment.scores", "import latentalign.errors"),
        ("latentalign.alignment.scores", "from latentalign.files import read_lines"),
        ("latentalign.alignment.scores", "from ..translation import model"),
        ("latentalign.alignment.scores", "from latentalign import LatentAttention"),
        ("latentalign.alignment.scores", "from .. import errors"),
        ("latentalign.vqa.model", "from latentalign.translation.network.model import Encoder"),
        ("latentalign.vqa.model", "from latentalign import memory"),
        ("latentalign.wordalign.aligner", "from latentalign.translation.align import PairAlignment"),
        ("latentalign.memory.task", "def late():\n    from latentalign.training.recipe import sections"),
        (
            "latentalign.translation.task",
            "import importlib\nimportlib.import_module('latentalign.training.run.weights')",
        ),
        ("latentalign.text.links", "from latentalign.translation.data.corpus import read_pairs"),
        ("latentalign.training.loop.module", "import latentalign.reports.paper.table as tables"),
        ("latentalign.training.loop.module", "from latentalign.inspector import app"),
        ("latentalign.training.run.weights", "from latentalign.cli import main"),
        ("latentalign.training.recipe.recipes", "from latentalign.training.run.weights import load_weights"),
        ("latentalign.training.run.folders", "from latentalign.training.loop import stream"),
        ("latentalign.training.loop.module", "from latentalign.training.train import train"),
        ("latentalign.reports.paper.table", "from latentalign.cli.train import train"),
        ("latentalign.inspector.app", "try:\n    import latentalign.cli\nexcept ImportError:\n    pass"),
        ("latentalign.errors", "from latentalign.files import write_atomic"),
        ("latentalign.files", "from latentalign.alignment import Categorical"),
        ("latentalign.files", "from latentalign import LatentAttention"),
        ("latentalign.unheard_of", "from latentalign.alignment import Categorical"),
    ],
)
def test_a_wrong_import_is_found(module: str, source: str) -> None:
    assert len(violations(source, module)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("latentalign.alignment.learning.objectives", "from latentalign.alignment.errors import ConfigError"),
        (
            "latentalign.alignment.learning.objectives",
            "from .estimators import Enumerate\nfrom . import scores",
        ),
        ("latentalign.translation.align", "from latentalign.text.links import Link"),
        ("latentalign.vqa.model", "import torch\nfrom latentalign.errors import UserError"),
        (
            "latentalign.training.recipe.tasks",
            "import latentalign.memory.task\nfrom latentalign import files",
        ),
        (
            "latentalign.cli.train",
            "from latentalign import __version__\nimport latentalign.training.run.weights",
        ),
        ("latentalign.files", "from latentalign.errors import UserError"),
        ("latentalign.training.loop.stream", "from latentalign.training.run.weights import load_weights"),
        ("latentalign.training.train", "from latentalign.training.loop.module import AlignmentModule"),
    ],
)
def test_a_right_import_passes(module: str, source: str) -> None:
    assert violations(source, module) == []


def test_a_relative_import_in_a_package_file_is_resolved() -> None:
    assert violations("from .scores import Additive", "latentalign.alignment", is_package=True) == []
    assert len(violations("from ..training import runs", "latentalign.vqa", is_package=True)) == 1
