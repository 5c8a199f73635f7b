"""`latentalign demo`: the whole way once, as small as it gets."""

import json

import pytest

from tests.cli.command import assert_mistake, latentalign

TINY = ("--pairs", 60, "--test-pairs", 8, "--set", "training.epochs=1")


@pytest.mark.timeout(600)
def test_everything_once(tmp_path):
    out = tmp_path / "demo"
    found = latentalign("demo", "--out", out, *TINY, "--json")
    assert found.code == 0, found.stderr
    results = json.loads(found.stdout)
    assert results["corpus"] == "generated"
    assert results["test_pairs"] == 8
    for model in ("soft", "variational"):
        assert results[model]["ppl"] > 1
        assert 0 <= results[model]["aer_prior"] <= 1
        assert (out / "runs" / model / "model.safetensors").is_file()
        assert f"[{model}] " in found.stderr
    assert 0 <= results["aligner"]["aer"] <= 1
    assert (out / "runs" / "aligner" / "model.safetensors").is_file()
    assert results["soft"]["aer_posterior"] is None
    assert results["variational"]["aer_posterior"] is not None
    assert "The corpus is generated." in (out / "report.html").read_text(encoding="utf-8")
    assert_mistake(latentalign("demo", "--out", out), "exists already", "--overwrite")


def test_a_training_that_fails_is_told_in_one_line(tmp_path):
    found = latentalign("demo", "--out", tmp_path / "demo", *TINY, "--set", "model.embeding_size=3")
    assert found.code == 2
    assert found.stdout == ""
    assert "training of the soft model failed" in found.stderr.splitlines()[-1]
    assert "embedding_size" in found.stderr.splitlines()[-1]
