"""Every command with `--device`, and what the server computes, on another device and under bf16."""

import asyncio
import contextlib

import pytest
import torch

from latentalign.inspector import server
from latentalign.inspector.limits import Limits
from latentalign.inspector.runs import load_runs
from latentalign.inspector.schemas import (
    AlignRequest,
    AnswerRequest,
    NextRequest,
    Pair,
    ScoreRequest,
    TranslateRequest,
)
from latentalign.inspector.service import InspectorService
from latentalign.training import trained_run
from latentalign.vqa.features import RegionFeatures
from tests.cli.command import assert_mistake, latentalign, untrained_run
from tests.devices import Elsewhere, elsewhere
from tests.inspector.untrained import untrained_memory_run, untrained_vqa_run
from tests.translation.tiny import SENTENCES, TARGETS


class Place:
    """Runs of every task, texts, and the commands that compute with them."""

    def __init__(self, folder) -> None:
        self.runs = {
            "variational": untrained_run(folder / "variational"),
            "relaxed": untrained_run(folder / "relaxed", alignment="dirichlet"),
            "memory": untrained_memory_run(folder / "memory"),
            "vqa": untrained_vqa_run(folder / "vqa", scenes=folder / "scenes"),
        }
        self.image = RegionFeatures(folder / "scenes" / "features").image_ids[0]
        for name, lines in {"source": SENTENCES[:4], "target": TARGETS[:4]}.items():
            (folder / name).write_text("".join(f"{line}\n" for line in lines))
        (folder / "story").write_text("mary is in the garden\njohn is in the kitchen\n")
        run, pair = self.runs["variational"], ("--source", folder / "source", "--target", folder / "target")
        text, short = ("--input", folder / "source"), ("--beam", 2, "--max-length-factor", 0.5)
        features = ("--features", folder / "scenes" / "features", "--image", self.image)
        self.commands = {
            "translate": ("translate", run, *text, *short, "--alignments", folder / "links", "--scores"),
            "translate relaxed": ("translate", self.runs["relaxed"], *text, *short),
            "align": ("align", run, *pair, "--scores"),
            "align by a path": ("align", run, *pair, "--path"),
            "align both ways": ("align", run, *pair, "--with", run, "--symmetrise", "union"),
            "align by the network": ("align", run, *pair, "--by", "posterior"),
            "align relaxed": ("align", self.runs["relaxed"], *pair),
            "evaluate": ("evaluate", run, *pair, "--bleu", "--beam", 2),
            "evaluate relaxed": ("evaluate", self.runs["relaxed"], *pair),
            "evaluate vqa": ("evaluate", self.runs["vqa"], "--split", "test"),
            "answer memory": (
                "answer",
                self.runs["memory"],
                "-q",
                "where is mary ?",
                "--story",
                folder / "story",
            ),
            "answer vqa": ("answer", self.runs["vqa"], "-q", "what shape ?", *features, "--answer", "circle"),
            "plot": (
                "plot",
                run,
                "--source",
                SENTENCES[0],
                "--target",
                TARGETS[0],
                "-o",
                folder / "plot.svg",
            ),
            "serve": ("serve", *self.runs.values(), "--port", 0),
        }


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return Place(tmp_path_factory.mktemp("devices"))


@pytest.fixture(autouse=True)
def no_server(monkeypatch):
    monkeypatch.setattr(server, "run_server", lambda app, listener, **options: listener.close())


COMMANDS = [
    "translate", "translate relaxed", "align", "align by a path", "align both ways", "align by the network",
    "align relaxed", "evaluate", "evaluate relaxed", "evaluate vqa", "answer memory", "answer vqa", "plot", "serve",
]  # fmt: skip
DRAWN = (
    "translate relaxed",
    "evaluate relaxed",
    "evaluate",
)  # by a generator of that device; or with the time it took


@pytest.mark.parametrize("bf16", [False, True], ids=["float32", "bf16"])
@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_computes_elsewhere(place, name, bf16, monkeypatch):
    """`--device cuda` as a machine with a GPU would understand it; nothing stays behind on the CPU."""
    expected = latentalign(*place.commands[name], "--device", "cpu")
    assert expected.code == 0, expected.stderr
    asked = []
    with elsewhere() as device:
        monkeypatch.setattr(trained_run, "find_device", lambda name: asked.append(name) or device)
        with torch.autocast("cpu", dtype=torch.bfloat16) if bf16 else contextlib.nullcontext():
            found = latentalign(*place.commands[name], "--device", "cuda")
    assert found.code == 0, found.stderr
    assert set(asked) == {"cuda"}
    if not bf16 and name not in DRAWN and name != "serve" and "vqa" not in name:
        assert found.stdout == expected.stdout


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("device", ["cuda", "mps", "gpu", "cuda:99"])
def test_a_device_that_is_not_here_is_told(place, name, device):
    if device.startswith("cuda") and torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert_mistake(
        latentalign(*place.commands[name], "--device", device),
        f"device: {'expected' if device == 'gpu' else device}",
    )


@pytest.fixture
def service(place):
    """The server's own service, whose work is done at once and in this thread (which alone knows the other device)."""
    found = InspectorService(load_runs(list(place.runs.values()), device="cpu"), Limits())

    async def compute(key, items, work, *, alone=False):
        return work(list(items))

    found._do = compute
    yield found
    found.close()


@pytest.mark.parametrize("bf16", [False, True], ids=["float32", "bf16"])
@pytest.mark.parametrize("run", ["variational", "relaxed", "memory", "vqa"])
def test_the_server_computes_elsewhere(place, service, run, bf16):
    pairs = [Pair(source=left, target=right) for left, right in zip(SENTENCES[:3], TARGETS[:3], strict=True)]
    if run in ("memory", "vqa"):
        asked = {"question": "where is mary ?", "story": ["mary is in the garden"]}
        asked = asked if run == "memory" else {"question": "what shape ?", "image": place.image}
        ways = (None, "sample:2", "soft")
        requests = [(service.answer, AnswerRequest(run=run, inference=way, **asked)) for way in ways]
    else:
        inferences = ["soft", "sample:2"] if run == "relaxed" else ["soft", "exact", "kmax:2", "sample:2"]
        requests = [
            (service.translate, TranslateRequest(run=run, sentences=SENTENCES[:3], beam=2, alignments=True)),
            (service.align, AlignRequest(run=run, pairs=pairs, matrices=True, scores=True)),
            (service.score, ScoreRequest(run=run, pairs=pairs)),
            (service.score, ScoreRequest(run=run, pairs=pairs, inference=inferences[-1])),
            (service.next, NextRequest(run=run, source=SENTENCES[0], prefix="the", inferences=inferences)),
        ]
    with elsewhere() as device:
        for served in service.runs:
            served.run.model.to(device)
            assert all(isinstance(one, Elsewhere) for one in served.run.model.parameters())
        with torch.autocast("cpu", dtype=torch.bfloat16) if bf16 else contextlib.nullcontext():
            for method, request in requests:
                assert asyncio.run(method(request)).model_dump_json()
