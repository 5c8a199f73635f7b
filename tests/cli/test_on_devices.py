"""What the commands compute, on another device: nothing stays behind on the CPU, and the results are the same."""

import contextlib

import pytest
import torch

from latentalign.training.loop.module import AlignmentModule
from latentalign.training.loop.stream import Stream
from latentalign.training.recipe.recipes import build_recipe
from latentalign.training.recipe.schedule import name_of, schedule_of
from latentalign.training.trained_run import load
from tests.cli.command import untrained_run
from tests.devices import at_home, elsewhere
from tests.inspector.untrained import SCENES, SMALL_VQA, WORLDS, untrained_memory_run
from tests.translation.tiny import SENTENCES, TARGETS

PAIRS = list(zip(SENTENCES[:3], TARGETS[:3], strict=True))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("devices")
    return {
        "translation": untrained_run(place / "translation"),
        "relaxed": untrained_run(place / "relaxed", alignment="dirichlet"),
        "memory": untrained_memory_run(place / "memory"),
    }


@contextlib.contextmanager
def moved(folder, *, bf16=False):
    """A run whose model is on the other device, under autocast if asked for."""
    run = load(folder, device="cpu")
    with elsewhere() as device:
        run.model.to(device)
        with torch.autocast("cpu", dtype=torch.bfloat16) if bf16 else contextlib.nullcontext():
            yield run


@pytest.mark.parametrize("inference", ["exact", "kmax:2", "soft", "sample:3"])
def test_translating(folders, inference):
    expected = load(folders["translation"], device="cpu").translate(
        SENTENCES[:3], beam=2, inference=inference
    )
    with moved(folders["translation"]) as run:
        found = run.translate(SENTENCES[:3], beam=2, inference=inference)
    assert len(found) == len(expected)
    if inference != "sample:3":
        assert [one.text for one in found] == [one.text for one in expected]


@pytest.mark.parametrize("by", ["prior", "posterior", "exact"])
def test_aligning(folders, by):
    expected = load(folders["translation"], device="cpu").align(PAIRS, by=by, scores=True)
    with moved(folders["translation"]) as run:
        found = run.align(PAIRS, by=by, scores=True)
    for one, other in zip(found, expected, strict=True):
        assert one.links == pytest.approx(other.links, abs=1e-5)
        assert one.score == pytest.approx(other.score, abs=1e-5)


@pytest.mark.parametrize("name", ["translation", "relaxed"])
def test_evaluating(folders, name, tmp_path):
    data = {}
    for side, lines in {"source": SENTENCES, "target": TARGETS}.items():
        (tmp_path / side).write_text("".join(f"{line}\n" for line in lines))
        data[side] = tmp_path / side
    expected = load(folders[name], device="cpu").evaluate(**data)
    with moved(folders[name]) as run:
        found = run.evaluate(**data)
    if name != "relaxed":  # drawn by another generator there
        assert found["nll"] == pytest.approx(expected["nll"], rel=1e-4)
    assert found["tokens"] == expected["tokens"]


def test_answering(folders, tmp_path):
    story = tmp_path / "story"
    story.write_text("mary is in the garden\njohn is in the kitchen\n")
    asked = {"question": "where is mary ?", "story": story}
    expected = load(folders["memory"], device="cpu").answer(**asked)
    with moved(folders["memory"]) as run:
        found = run.answer(**asked)
    assert [one["answer"] for one in found["answers"]] == [one["answer"] for one in expected["answers"]]


SAMPLED = {"name": "variational", "estimator": {"name": "reinforce", "samples": 2}}
EVERY = [
    "soft", "marginal", "hard", {"name": "hard", "estimator": "reinforce"}, "variational", SAMPLED,
    {"name": "variational", "estimator": "gumbel"}, "rws", "wake", "vimco", "svi", "em",
]  # fmt: skip
PATHWISE = {"name": "variational", "estimator": "pathwise"}
STEPS = [
    *(("translation", objective, {}) for objective in EVERY),
    ("translation", PATHWISE, {"alignment": "dirichlet"}),
    *(("vqa", objective, {}) for objective in ("soft", "marginal", "variational", SAMPLED)),
    *(("memory", objective, {}) for objective in ("soft", "marginal", "variational", SAMPLED)),
    ("memory", "marginal", {"kind": "dynamic"}),
    ("gaussian", PATHWISE, {}),
]


@pytest.mark.parametrize("bf16", [False, True], ids=["float32", "bf16"])
@pytest.mark.parametrize(
    ("name", "objective", "changes"),
    [
        pytest.param(
            *step, id=f"{step[0]}-{name_of(step[1])}{'-' * bool(step[2])}{''.join(step[2].values())}"
        )
        for step in STEPS
    ],
)
def test_a_training_step_of_every_task(tmp_path, name, objective, changes, bf16):
    """Forward and backward of the first batch, as the trainer takes it; the same loss as at home."""
    sections = _sections(name, tmp_path)
    sections["model"] = {**sections["model"], **changes}
    recipe = build_recipe({"task": name, "objective": objective, **sections})
    (tmp_path / "run").mkdir()
    prepared = recipe.task.prepare(
        recipe.data, recipe.model, folder=tmp_path / "run", seed=1, log=lambda line: None
    )
    schedule = schedule_of(recipe)
    torch.manual_seed(1)
    model = recipe.task.build_model(recipe.model, prepared.assets, needs_posterior=schedule.needs_posterior)
    for part in model.modules():
        part.training = not isinstance(part, torch.nn.Dropout)
    stream = Stream(prepared.train, seed=1, total=1.0, accumulate=1)
    module = AlignmentModule(model, schedule, recipe.training, stream=stream, seed=1)
    share = next(iter(stream)).shares[0]
    module.enter(schedule.phases[0])
    generator = torch.Generator().manual_seed(3)
    _, expected = module.measure(share, generator)
    with elsewhere() as device:
        model.to(device)
        object.__setattr__(share, "batch", share.batch.to(device))
        with torch.autocast("cpu", dtype=torch.bfloat16) if bf16 else contextlib.nullcontext():
            loss, totals = module.measure(share, torch.Generator(device=device).manual_seed(3))
        loss.backward()
        gradients = [at_home(one.grad) for one in model.parameters() if one.grad is not None]
        # the inference network learns where there is one
        learns = [all(one.grad is not None for one in part()) for part in (model.theta, model.phi)]
    assert gradients
    assert all(bool(one.isfinite().all()) for one in gradients)
    assert learns[1] or not schedule.needs_posterior
    drawn = isinstance(objective, dict) or objective in (
        "rws",
        "vimco",
        "em",
    )  # by a generator of that device
    if not drawn:
        assert at_home(totals)[0].item() == pytest.approx(expected[0].item(), rel=0.05 if bf16 else 1e-3)


def _sections(name, folder):
    if name == "translation":
        for side, lines in {"text.de": SENTENCES, "text.en": TARGETS}.items():
            (folder / side).write_text("".join(f"{line}\n" for line in lines))
        pair = {"source": "text.de", "target": "text.en"}
        sizes = {
            "embedding_size": 8,
            "memory_size": 8,
            "decoder_size": 8,
            "attention_size": 8,
            "dropout": 0.0,
        }
        data = {"folder": str(folder), "train": pair, "valid": pair, "tokenizer": {"kind": "whitespace"}}
        return {"data": data, "model": {**sizes, "inference_network": {"memory_size": 8}}}
    if name == "vqa":
        return {
            "data": {"folder": str(folder / "scenes"), "scenes": SCENES, "min_answer_count": 1},
            "model": SMALL_VQA,
        }
    if name == "memory":
        model = {"size": 8, "hops": 2, "inference_size": 8, "random_noise": 0.0}
        return {"data": {"worlds": WORLDS, "memory": 10}, "model": model}
    return {"model": {"latent": 2, "hidden": 8, "importance_samples": 2}}
