"""A translator whose context is a Gaussian latent, through the command line: train, measure, translate, align."""

import json
import math

import pytest

from latentalign.text.links import parse_links
from latentalign.translation.generated.corpus import generate
from tests.cli.command import assert_mistake, latentalign

RECIPE = """
task: translation
data:
  folder: {folder}
  train: {{source: train.de, target: train.en}}
  valid: {{source: valid.de, target: valid.en}}
  tokenizer: {{kind: whitespace}}
  batch_size: 16
model: {{embedding_size: 24, memory_size: 32, decoder_size: 32, attention_size: 16, dropout: 0.0,
         alignment: gaussian-context, inference_network: {{memory_size: 32}}}}
schedule:
  - {{objective: soft, epochs: 4}}
  - {{objective: {{name: variational, estimator: pathwise}}, epochs: 1, train: phi}}
  - {{objective: {{name: variational, estimator: pathwise}}, epochs: 2}}
training: {{learning_rate: 1e-2, threads: 1}}
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    short = [example for example in generate(6000, seed=3) if len(example.source.split()) <= 7]
    for name, part in {"train": short[:-60], "valid": short[-60:-30], "test": short[-30:]}.items():
        (folder / f"{name}.de").write_text("".join(e.source + "\n" for e in part), encoding="utf-8")
        (folder / f"{name}.en").write_text("".join(e.target + "\n" for e in part), encoding="utf-8")
    (folder / "recipe.yaml").write_text(RECIPE.format(folder=folder))
    return folder


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "input-feeding"])
def run(data, request):
    folder = data / f"run-{request.param}"
    feeding = f"model.input_feeding={str(request.param).lower()}"
    found = latentalign("train", data / "recipe.yaml", "--out", folder, "--set", feeding)
    assert found.code == 0, found.stderr
    return folder


def files(data):
    return ("--source", data / "test.de", "--target", data / "test.en")


def measured(run, data, inference):
    return json.loads(latentalign("evaluate", run, *files(data), "--inference", inference, "--json").stdout)


def test_every_phase_learns(run, data):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    at = {line["epoch"]: line for line in lines if line["split"] == "valid"}
    assert at[4.0]["nll"] < at[1.0]["nll"] - 0.5  # soft
    assert at[5.0]["nll"] == at[4.0]["nll"]  # q alone: θ stands still
    assert at[7.0]["elbo"] > at[5.0]["elbo"] + 0.5
    assert at[7.0]["nll"] < at[1.0]["nll"] - 0.5


def test_evaluation_by_samples_and_at_the_mean(run, data):
    sampled, mean = (measured(run, data, inference) for inference in ("sample:20", "soft"))
    natural = json.loads(latentalign("evaluate", run, *files(data), "--json").stdout)
    assert natural["inference"] == "sample:20"
    assert natural["nll"] == sampled["nll"]
    for found in (sampled, mean):
        assert found["nll"] < 3.0  # words by their frequency alone cost over 4 nats
        assert found["kl"] > 0
        assert -found["elbo"] > found["nll"] - 0.1
        assert 0 < found["prior_entropy"] < math.log(8)  # of attention over at most 8 positions


def test_enumeration_is_refused_in_one_line(run, data):
    for inference in ("exact", "kmax:5"):
        assert_mistake(
            latentalign("evaluate", run, *files(data), "--inference", inference),
            "categorical",
            "GaussianContext",
            "sample:N",
        )
        assert_mistake(
            latentalign("translate", run, "--inference", inference, stdin="ja\n"), "Gaussian", "sample:20"
        )
    assert_mistake(latentalign("align", run, *files(data), "--by", "exact"), "Gaussian", "use prior")


def test_translations_come_with_links(run, data, tmp_path):
    for inference in ("soft", "sample:4"):
        links = tmp_path / "links"
        options = ("--beam", 2, "--inference", inference, "--alignments", links)
        found = latentalign("translate", run, "--input", data / "test.de", *options)
        assert found.code == 0, found.stderr
        lines = found.stdout.splitlines()
        assert len(lines) == 30
        linked = 0
        for line, row in zip(lines, links.read_text().splitlines(), strict=True):
            found = parse_links(row, place="links").sure
            assert all(j < len(line.split()) for _, j in found)
            linked += len(found)
        assert linked > len(lines)


def test_links_and_pictures_by_prior_and_posterior(run, data, tmp_path):
    found = {}
    for by in ("prior", "posterior"):
        outcome = latentalign("align", run, *files(data), "--by", by, "--scores")
        assert outcome.code == 0, outcome.stderr
        found[by] = outcome.stdout
        assert len(found[by].splitlines()) == 30
    assert found["prior"] != found["posterior"]
    sentence = (data / "test.de").read_text(encoding="utf-8").splitlines()[0]
    outcome = latentalign("plot", run, "--source", sentence, "--output", tmp_path / "pair.png")
    assert outcome.code == 0, outcome.stderr
    assert (tmp_path / "pair.png").stat().st_size > 1000


def test_an_objective_that_enumerates_is_refused(data):
    recipe = data / "recipe.yaml"
    for name in ("marginal", "wake"):
        outcome = latentalign("check", recipe, "--set", f"schedule=[{{objective: {name}, epochs: 1}}]")
        assert_mistake(outcome, "GaussianContext", "pathwise")
