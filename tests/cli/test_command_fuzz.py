"""Every option of every command with strange values and strange files, and every key of a recipe with strange settings.

A command ends with 0 or with 2 and one line; nothing is told by a traceback, nothing takes long, nothing of the user's
changes. Options and keys are read off the commands and sections themselves: new ones are tried without being named.
"""

import hashlib
import os
import stat
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from latentalign.cli import COMMANDS
from latentalign.errors import UserError
from latentalign.inspector import server
from latentalign.reports.demo import comparison
from latentalign.training.recipe.sections import RecipeConfig
from latentalign.translation.config import DataConfig, ModelConfig
from tests.cli.command import Outcome, latentalign, untrained_run
from tests.cli.strange import (
    VALUES,
    Option,
    fill,
    keys_of,
    options_of,
    small_recipe,
    strange_files,
    strange_values,
)
from tests.inspector.untrained import untrained_memory_run

SLOW = 20.0  # seconds of computing that no strange value may take
ENOUGH = 2000
PARTS = ("strange", "run", "memory", "recipe")


class Place:
    """A folder with everything that the commands need to work."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = strange_files(folder / "strange")
        self.run = untrained_run(folder / "run")
        self.memory = untrained_memory_run(folder / "memory")
        self.recipe = small_recipe(folder / "recipe")
        self.text = folder / "text"
        self.text.write_text("ja\nein Hund\n")
        self.gold = folder / "gold"
        self.gold.write_text("0-0\n0-0 1-1\n")
        self.results = folder / "results"
        self.files_folder = folder / "strange"
        self.known = sorted(path for part in PARTS for path in (folder / part).rglob("*"))

    def base(self, command: str) -> dict[str, str]:
        """Arguments (by name) and options with which the command works."""
        run, text, out = str(self.run), str(self.text), str(self.results / "out")
        pair = {"--source": text, "--target": text}
        recipe = str(self.recipe)
        return {
            "demo": {"--out": out, "--pairs": "2"},
            "download": {"name": "babi", "--to": out, "--mirror": "http://127.0.0.1:9"},
            "check": {"recipe": recipe},
            "prepare": {"recipe": recipe, "--to": out},
            "train": {"recipe": recipe, "--out": out},
            "evaluate": {"run": run, **pair},
            "translate": {"run": run, "--input": text, "--beam": "2", "--max-length-factor": "0.1"},
            "align": {"run": run, **pair},
            "aer": {"--gold": str(self.gold), "--predicted": str(self.gold)},
            "plot": {"run": run, "--source": "ja", "--target": "yes", "--output": f"{out}.svg"},
            "answer": {"run": str(self.memory), "--question": "where is mary ?", "--story": text},
            "reproduce": {
                "study": "table1",
                "--data": str(self.recipe.parent),
                "--recipe": recipe,
                "--dry-run": "",
            },
            "serve": {"runs": run, "--port": "0"},
        }[command]

    def state(self) -> str:
        """What must not change, whatever is tried; a file that is named as the result may be written."""
        total = hashlib.sha256()
        for path in self.known:
            kind = stat.S_IFMT(path.lstat().st_mode) if path.is_symlink() or path.exists() else 0
            total.update(f"{path} {kind}".encode("utf-8", "surrogateescape"))
            is_ours = self.files_folder not in path.parents or "full folder" in path.parts
            if path.is_file() and not path.is_symlink() and is_ours:
                total.update(path.read_bytes())
        return total.hexdigest()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz")
    before = os.getcwd()
    os.chdir(folder)  # what a strange value names beside us stays here
    yield Place(folder)
    os.chdir(before)


@pytest.fixture(autouse=True)
def stubs(monkeypatch):
    """A server would serve for ever, and a demonstration trains for minutes: only what comes before is tried."""
    monkeypatch.setattr(server, "run_server", lambda app, listener, **options: listener.close())

    def demonstrate(*arguments, **options):
        raise UserError("stopped before the training")

    monkeypatch.setattr(comparison, "run_demo", demonstrate)


def cases_of(command: str, place: Place) -> list[tuple[Option, str]]:
    return [
        (option, value)
        for option in options_of(command)
        if not option.is_flag
        for value in strange_values(option, place.files)
    ]


def call(place: Place, command: str, changed: dict[str, str]) -> Outcome:
    arguments = {**place.base(command), **changed}
    words = []
    for name, value in arguments.items():
        words += (
            [value] if not name.startswith("-") else [name, value] if value or name in changed else [name]
        )
    return latentalign(command, *words, stdin="ja\n")


def verdict(found: Outcome, seconds: float) -> str | None:
    """What is wrong with how a command ended; None if nothing is."""
    last = found.stderr.rstrip("\n").split("\n")[-1]
    if found.code not in (0, 2):
        return f"exit code {found.code}: {last[:300]}"
    if "Traceback" in found.stderr or "defect" in found.stderr:
        return f"a traceback: {last[:300]}"
    if "LATENTALIGN_DEBUG" in found.stderr:
        return f"not told in our words: {last[:300]}"
    if found.code == 2 and not last.startswith("latentalign: "):
        return f"no line of ours: {found.stderr[-300:]!r}"
    if found.code == 2 and len(last) > 1000:
        return f"a line of {len(last)} letters"
    if seconds > SLOW:
        return f"{seconds:.0f} seconds: {last[:200]}"
    return None


# a third of all cases in every test run, the others with the slow tests
SHARES = [pytest.param(0, id="third"), pytest.param(1, id="others", marks=pytest.mark.slow)]


def share_of(cases: list, share: int) -> list:
    return [case for number, case in enumerate(cases) if (number % 3 != 0) == bool(share)]


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_every_command(place, command, share):
    before, wrong = place.state(), []
    cases = share_of(cases_of(command, place), share)
    for option, value in cases:
        began = time.process_time()
        found = call(place, command, {option.name: value})
        problem = verdict(found, time.process_time() - began)
        if problem is not None:
            wrong.append(f"{command} {option.name} {value[:60]!r}: {problem}")
    fill(place.files_folder)  # for the next command
    assert not wrong, f"{len(wrong)} of {len(cases)}:\n" + "\n".join(wrong)
    assert place.state() == before


def test_there_are_enough_cases(place):
    options = sum(len(cases_of(command, place)) for command in COMMANDS)
    settings_tried = len(recipe_keys()) * len(VALUES)
    assert options + settings_tried >= ENOUGH, f"{options} options and arguments, {settings_tried} settings"


# --- recipes -------------------------------------------------------------------------------


def recipe_keys() -> list[str]:
    tops = [key for key in keys_of(RecipeConfig) if key not in ("data", "model")]
    return [*tops, *keys_of(DataConfig, "data."), *keys_of(ModelConfig, "model.")]


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("part", range(4))
def test_every_key_of_a_recipe(place, part, share):
    wrong = []
    cases = [(key, value) for key in recipe_keys()[part::4] for value in VALUES]
    for key, value in share_of(cases, share):
        began = time.process_time()
        found = latentalign("check", place.recipe, "--set", f"{key}={value}")
        problem = verdict(found, time.process_time() - began)
        if problem is not None:
            wrong.append(f"{key}={value[:60]}: {problem}")
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong)


plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.dates()
keys = st.sampled_from(recipe_keys()) | st.text(max_size=6)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.dictionaries(
        keys,
        st.recursive(
            plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain, inner, max_size=3)
        ),
        min_size=1,
        max_size=3,
    )
)
def test_any_values_of_a_recipe(place, changes):
    import yaml

    values = yaml.safe_load(place.recipe.read_text())
    for key, value in changes.items():
        *parents, last = key.split(".")
        inner = values
        for parent in parents:
            inner = inner.setdefault(parent, {}) if isinstance(inner, dict) else {}
            inner = inner if isinstance(inner, dict) else {}
        inner[last] = value
    path = place.folder / "any.yaml"
    path.write_text(yaml.safe_dump(values, allow_unicode=True), encoding="utf-8", errors="surrogatepass")
    began = time.process_time()
    found = latentalign("check", path)
    assert verdict(found, time.process_time() - began) is None, verdict(found, 0)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.binary(max_size=200)
    | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass"))
)
def test_any_bytes_as_a_recipe_a_text_and_links(place, content):
    path = place.folder / "any"
    path.write_bytes(content)
    for command, changed in {
        "check": {"recipe": str(path)},
        "align": {"--source": str(path), "--target": str(path)},
        "aer": {"--gold": str(path), "--predicted": str(path)},
    }.items():
        began = time.process_time()
        found = call(place, command, changed)
        assert verdict(found, time.process_time() - began) is None, verdict(found, 0)
