"""The front door in Python: what a run does there is what the command line does."""

import doctest
import importlib
import inspect
import json
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import latentalign as la
from latentalign.errors import UserError
from latentalign.text.links import format_links
from latentalign.training.devices import find_device
from latentalign.training.recipe.recipes import build_recipe
from tests.cli.command import assert_mistake, latentalign, untrained_run
from tests.inspector.untrained import untrained_memory_run
from tests.training.helpers import BASE, environment

FROZEN = Path(__file__).parents[1] / "frozen"
LINES = ["ein hund bellt .", "", "zwei kinder spielen im park ."]
PAIRS = [("ein hund bellt .", "a dog barks ."), ("zwei kinder", "two children play")]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("runs")
    return {
        "variational": untrained_run(place / "variational"),
        "soft": untrained_run(place / "soft", objective="soft"),
        "relaxed": untrained_run(place / "relaxed", alignment="dirichlet"),
        "memory": untrained_memory_run(place / "memory"),
    }


@pytest.fixture(scope="module")
def run(folders: dict[str, Path]) -> la.Run:
    return la.load(folders["variational"], device="cpu")


def told(*arguments: object) -> str:
    outcome = latentalign(*map(str, arguments))
    assert outcome.code == 0, outcome.stderr
    return outcome.stdout


def write_pairs(folder: Path) -> tuple[Path, Path]:
    source, target = folder / "source", folder / "target"
    source.write_text("".join(f"{left}\n" for left, _ in PAIRS))
    target.write_text("".join(f"{right}\n" for _, right in PAIRS))
    return source, target


@pytest.mark.parametrize("inference", [None, "kmax:2"])
def test_translate(run: la.Run, folders: dict[str, Path], tmp_path: Path, inference: str | None) -> None:
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in LINES))
    chosen = [] if inference is None else ["--inference", inference]
    rows = told(
        "translate", folders["variational"], "-i", tmp_path / "in", "--beam", 3, "--scores",
        "--alignments", tmp_path / "links", *chosen,
    ).splitlines()  # fmt: skip
    found = run.translate(LINES, beam=3, inference=inference, alignments=True)
    assert [f"{one.score:.4f}\t{one.text}" for one in found] == rows
    assert len({one.text for one in found}) == 3
    links = [format_links(one.links("exact")) for one in found]
    assert links == (tmp_path / "links").read_text().splitlines()


def test_n_best_lists_come_from_the_translator(run: la.Run) -> None:
    (best,) = run.translator(beam=3, n_best=3).translate(LINES[:1])
    assert len(best) == 3
    assert best[0] == run.translate(LINES[:1], beam=3)[0]


@pytest.mark.parametrize(("by", "threshold"), [(None, None), ("posterior", 0.2), ("prior", None)])
def test_align(
    run: la.Run, folders: dict[str, Path], tmp_path: Path, by: str | None, threshold: float | None
) -> None:
    source, target = write_pairs(tmp_path)
    options = [*(["--by", by] if by else []), *(["--threshold", threshold] if threshold else [])]
    rows = told(
        "align", folders["variational"], "--source", source, "--target", target, "--scores", *options
    ).splitlines()
    found = run.align(PAIRS, by=by, threshold=threshold, scores=True)
    assert [f"{format_links(one.links, probs=one.links)}\t{one.score:.4f}" for one in found] == rows
    for (left, right), one in zip(PAIRS, found, strict=True):
        assert isinstance(one.probs, np.ndarray)
        assert one.probs.shape == (len(right.split()), len(left.split()))
        assert all(one.probs[j, i] == probability for (i, j), probability in one.links.items())


def test_links_come_from_the_best_distribution_a_run_has(folders: dict[str, Path]) -> None:
    chosen = {name: la.load(folders[name]).choose_links() for name in ("variational", "soft", "relaxed")}
    assert chosen == {"variational": "exact", "soft": "exact", "relaxed": "posterior"}
    with pytest.raises(UserError, match=r"relaxed: by: the exact posterior needs a discrete alignment"):
        la.load(folders["relaxed"]).align(PAIRS, by="exact")
    with pytest.raises(UserError, match=r"soft: by: this run was trained without an inference network"):
        la.load(folders["soft"]).align(PAIRS, by="posterior")


def test_score(run: la.Run, tmp_path: Path) -> None:
    found = run.score(PAIRS)
    assert found == [one.score for one in run.align(PAIRS, scores=True)]
    exact = run.score(PAIRS, inference="exact")
    assert exact == pytest.approx(found, abs=1e-2)  # align prunes
    assert run.score([("", "a dog")]) == run.score([("", "a dog")], inference="soft") == [-float("inf")]
    source, target = write_pairs(tmp_path)
    measured = run.evaluate(source=source, target=target, inference="exact")
    pieces = [len(run.aligner().encode(*pair).target) for pair in PAIRS]
    mean = np.average(exact, weights=pieces)
    assert measured["nll"] == pytest.approx(-mean, rel=1e-6)


def test_evaluate(run: la.Run, folders: dict[str, Path], tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    files = ["--source", source, "--target", target]
    expected = json.loads(told("evaluate", folders["variational"], *files, "--bleu", "--beam", 2, "--json"))
    found = run.evaluate(source=source, target=target, bleu=True, beam=2)
    assert found["task"] == "translation"
    for name in expected.keys() - {"seconds"}:
        assert found[name] == expected[name], name


def test_bleu_of_its_own_translations_is_100(run: la.Run, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    lines = source.read_text().splitlines()
    target.write_text("".join(f"{one.text}\n" for one in run.translate(lines, beam=2)))
    found = run.evaluate(source=source, target=target, bleu=True, beam=2, inference="exact")
    assert found["bleu"] == pytest.approx(100)


def test_answer(folders: dict[str, Path], tmp_path: Path) -> None:
    story = tmp_path / "story"
    story.write_text("mary went to the kitchen\njohn went to the garden\n")
    options = ["--question", "where is mary ?", "--story", story, "--json"]
    expected = json.loads(told("answer", folders["memory"], *options))
    found = la.load(folders["memory"]).answer("where is mary ?", story=story)
    assert json.loads(json.dumps(found)) == expected


def test_a_run_says_what_it_cannot_do(folders: dict[str, Path], run: la.Run) -> None:
    memory = la.load(folders["memory"])
    with pytest.raises(UserError, match=r"memory: a run of task memory does not translate$"):
        memory.translate(LINES)
    with pytest.raises(UserError, match=r"memory: a run of task memory does not align$"):
        memory.align(PAIRS)
    with pytest.raises(UserError, match="does not align"):
        memory.score(PAIRS)
    with pytest.raises(UserError, match="does not translate"):
        memory.evaluate(data="stories", bleu=True)
    with pytest.raises(UserError, match=r"variational: a run of task translation does not answer questions$"):
        run.answer("where is mary ?", story=["mary went home"])
    assert_mistake(latentalign("translate", folders["memory"]), "does not translate")


def test_one_text_is_not_a_list_of_sentences(run: la.Run) -> None:
    with pytest.raises(
        UserError, match=r"expected a list of sentences, received one text; write \['ein hund'\]"
    ):
        run.translate("ein hund")
    with pytest.raises(UserError, match="expected a list of sentences, received one text"):
        la.Ensemble((run, run)).translate("ein hund")


def test_one_pair_is_not_a_list_of_pairs(run: la.Run) -> None:
    wrong = r"pairs: expected a list of \(source, target\), received the text 'ein hund bellt \.'"
    aligner = la.Aligner.fit(PAIRS)
    calls: list[Callable[[Any], object]] = [
        run.align,
        run.score,
        lambda pair: run.score(pair, inference="soft"),
        lambda pair: list(aligner.align(pair)),
        la.Aligner.fit,
        aligner.update,
    ]
    for call in calls:
        with pytest.raises(UserError, match=wrong):
            call(PAIRS[0])


def test_devices(folders: dict[str, Path], run: la.Run) -> None:
    assert run.device == torch.device("cpu")
    assert find_device("auto").type in ("cpu", "cuda")
    for wrong in ("gpu", "cpu:1", "cuda:x", ""):
        with pytest.raises(UserError, match="device: expected one of auto, cpu, cuda, mps"):
            find_device(wrong)
    missing = [name for name, there in (("cuda", torch.cuda), ("mps", torch.mps)) if not there.is_available()]
    for name in missing:
        with pytest.raises(UserError, match=f"device: {name} was asked for, but there is none here"):
            la.load(folders["variational"], device=name)
        for command in (["translate"], ["evaluate"], ["answer", "-q", "who ?"], ["serve"]):
            outcome = latentalign(command[0], folders["memory"], *command[1:], "--device", name)
            assert_mistake(outcome, f"device: {name}")


def test_train(tmp_path: Path) -> None:
    recipe = tmp_path / "copy.yaml"
    recipe.write_text(json.dumps(build_recipe(BASE).resolved()))
    run = la.train(recipe, out=tmp_path / "run", set={"training.epochs": 0.25, "model.size": 5}, quiet=True)
    assert run.folder == tmp_path / "run"
    assert run.config.model.size == 5  # type: ignore[attr-defined]
    assert run.evaluate()["examples"] == 12
    with pytest.raises(UserError, match="the folder exists"):
        la.train(recipe, out=tmp_path / "run", quiet=True)
    longer = la.train(resume=tmp_path / "run", set=["training.epochs=0.5"], quiet=True)
    assert longer.config.training.epochs == 0.5
    with pytest.raises(UserError, match="expected a recipe"):
        la.train()


def example_of(described: Any) -> str:
    """The code below `Example:` in a docstring."""
    _, found, code = inspect.getdoc(described).partition("Example:\n")
    assert found, f"{described} has no example"
    return textwrap.dedent(code)


def test_the_examples_of_every_verb_run(
    folders: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "runs").symlink_to(folders["variational"].parent)
    la.Aligner.fit(PAIRS * 3).save(folders["variational"].parent / "aligner")
    for name in ("recipe.yaml", "data"):
        (tmp_path / name).symlink_to(FROZEN / name.replace("recipe", "translation"))
    for side in ("de", "en"):
        shutil.copy(FROZEN / "data" / f"test.{side}", tmp_path)
    monkeypatch.chdir(tmp_path)
    run = la.load("runs/variational")
    described = [
        la, la.load, la.Run, la.Run.translate, la.Run.align, la.Run.score, la.Run.answer, la.Run.evaluate,
        la.Ensemble, la.TrainedAligner, la.train,
    ]  # fmt: skip
    for one in described:
        exec(compile(example_of(one), str(one), "exec"), {"la": la, "run": run})
    printed = capsys.readouterr().out
    assert f"cpu {run.translate(LINES[:1])[0].text}\n" in printed  # a translation prints as its text
    assert str(run.align(PAIRS[:1])[0]) in printed


def test_importing_the_package_is_cheap() -> None:
    code = (
        "import sys, latentalign as la; assert 'torch' not in sys.modules, 'torch'; "
        "assert {'load', 'train', 'LatentAttention'} <= set(dir(la)); la.load; assert 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], env=environment(), check=True, timeout=120)
    with pytest.raises(AttributeError, match="no attribute 'laod'"):
        la.laod  # noqa: B018


@pytest.mark.parametrize(
    "name",
    [
        "latentalign.training.devices",
        "latentalign.training.recipe.overrides",
        "latentalign.text.aligned_pair",
    ],
)
def test_examples_in_docstrings(name: str) -> None:
    outcome = doctest.testmod(importlib.import_module(name))
    assert outcome.attempted > 0
    assert outcome.failed == 0


def test_an_aligner_is_loaded_and_used_as_a_run_is(tmp_path: Path) -> None:
    aligner = la.Aligner.fit(PAIRS * 3)
    aligner.save(tmp_path / "aligner")
    loaded = la.load(tmp_path / "aligner")
    assert isinstance(loaded, la.TrainedAligner)
    expected = list(aligner.align(PAIRS))
    for pair, one in zip(loaded.align(PAIRS, scores=True), expected, strict=True):
        assert (pair.links, pair.score, str(pair)) == (one.links(), one.score, format_links(one.links()))
        assert np.array_equal(pair.probs, one.probs)
    every = loaded.align(PAIRS, threshold=0.0)[0].links
    assert len(every) == 4 * 4
    assert loaded.score(PAIRS) == [one.score for one in expected]
    assert loaded.device == torch.device("cpu")
    with pytest.raises(UserError, match=r"aligner: an aligner, which does not translate; load a run"):
        loaded.translate(["ein hund"])
    with pytest.raises(UserError, match="leave by and path to translation runs"):
        loaded.align(PAIRS, by="prior")
    with pytest.raises(UserError, match="leave inference to translation runs"):
        loaded.score(PAIRS, inference="exact")
    for command in (("evaluate", "--source", "x", "--target", "y"), ("translate", "--input", __file__)):
        assert_mistake(latentalign(command[0], tmp_path / "aligner", *command[1:]), "found an aligner")
