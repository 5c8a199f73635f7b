"""Extras: without them the library, the translator and the aligner work; what needs one says so in a line."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from latentalign.extras import EXTRAS
from tests.cli.command import assert_mistake, latentalign
from tests.training.helpers import environment

FROZEN = Path(__file__).parent / "frozen"
PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def hide(monkeypatch: pytest.MonkeyPatch, module: str, package: str) -> None:
    """As if the module were not installed, and the package not imported yet."""
    for name in [name for name in sys.modules if f"{name}.".startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)


@pytest.mark.parametrize(
    ("module", "package", "arguments", "extra"),
    [
        ("fastapi", "latentalign.inspector", ["serve", FROZEN / "translation"], "serve"),
        ("uvicorn", "latentalign.inspector", ["serve", FROZEN / "translation"], "serve"),
        (
            "matplotlib",
            "latentalign.reports",
            ["plot", FROZEN / "translation", "--curves", "-o", "x.png"],
            "reports",
        ),
        ("jinja2", "latentalign.reports", ["demo", "--out", "nowhere"], "reports"),
        ("PIL", "latentalign.vqa", ["answer", FROZEN / "vqa", "-q", "what ?"], "tasks"),
        ("sklearn", "latentalign.gaussian", ["evaluate", FROZEN / "gaussian"], "tasks"),
    ],
)
def test_a_missing_extra_is_told(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    module: str,
    package: str,
    arguments: list[str | Path],
    extra: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    hide(monkeypatch, module, package)
    outcome = latentalign(*arguments)
    assert_mistake(
        outcome, f"needs {module}, which is not installed; try: pip install 'latentalign[{extra}]'"
    )
    assert list(tmp_path.iterdir()) == []


def test_translating_aligning_and_training_need_no_extra(tmp_path: Path) -> None:
    hidden = [module for modules in EXTRAS.values() for module in modules]
    code = f"""
import sys, warnings
from importlib import metadata
warnings.simplefilter("ignore")
for module in {hidden!r}: sys.modules[module] = None
def distribution(name, known=metadata.distribution):  # some libraries ask what is installed before they import it
    if name.lower() in {[*hidden, "pillow", "scikit-learn"]!r}: raise metadata.PackageNotFoundError(name)
    return known(name)
metadata.distribution = distribution
import latentalign as la
run = la.load("translation")
assert run.translate(["Paul singt ."], beam=2)[0].text
assert run.align([("Paul singt .", "Paul sings .")])[0].links
settings = {{"training.epochs": 0.1}}
assert la.train("translation.yaml", out={str(tmp_path / "run")!r}, set=settings, quiet=True).device.type
la.load("memory").answer("where is mary ?", story=["mary went to the garden"])
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=FROZEN,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr


def test_the_project_names_the_extras() -> None:
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert set(EXTRAS) < set(extras)
    assert extras["all"] == [f"latentalign[{','.join(EXTRAS)}]"]
    brought = [project["dependencies"], *(extras[extra] for extra in EXTRAS)]
    named = {text.split(">")[0].split("[")[0] for texts in brought for text in texts}
    assert {"fastapi", "uvicorn", "matplotlib", "jinja2", "pillow", "scikit-learn"} < named
    locked = (PROJECT.parent / "requirements.lock").read_text(encoding="utf-8").lower()
    assert [name for name in named if f"\n{name.lower()}==" not in f"\n{locked}"] == []
