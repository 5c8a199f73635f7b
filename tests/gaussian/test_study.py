"""The study end to end, tiny: curves, table, pictures; and the task's own part of a recipe."""

from pathlib import Path

import pytest

from latentalign.errors import UserError
from latentalign.gaussian.pictures import draw_curves, draw_plane, draw_samples
from latentalign.gaussian.study import METHODS, StudyConfig, run_study, summarise
from latentalign.gaussian.task import GaussianDataConfig, GaussianModelConfig, GaussianTask


def test_a_small_study(tmp_path: Path) -> None:
    config = StudyConfig(sizes=(2,), hidden=16, epochs=3, every=2, seeds=(1,))
    said: list[str] = []
    curves, models, held_out = run_study(config, log=said.append)
    assert [curve.method for curve in curves] == list(METHODS)
    assert len(said) == 2
    for curve in curves:
        assert curve.samples_seen == [1438, 2 * 1438]
        assert curve.held_out_bound[-1] > curve.held_out_bound[0]
        assert curve.log_marginal > curve.held_out_bound[-1] - 0.5
    rows = summarise(curves)
    assert [(row["latent"], row["method"]) for row in rows] == [(2, method) for method in METHODS]
    for name, draw in (("curves", draw_curves), ("samples", draw_samples), ("plane", draw_plane)):
        path = tmp_path / f"{name}.png"
        if draw is draw_curves:
            draw(curves, path)
        else:
            draw(models if draw is draw_samples else models["auto-encoding", 2], held_out, path)
        assert path.read_bytes().startswith(b"\x89PNG")


def test_both_methods_start_from_the_same_weights() -> None:
    config = StudyConfig(sizes=(2,), hidden=8, epochs=1, every=1, seeds=(1,), learning_rate=1e-12)
    curves, _, _ = run_study(config)
    assert curves[0].held_out_bound == pytest.approx(curves[1].held_out_bound, abs=1e-3)


def test_the_task_prepares_and_finds_its_digits_again(tmp_path: Path) -> None:
    task = GaussianTask()
    said: list[str] = []
    prepared = task.prepare(
        GaussianDataConfig(held_out=0.1), GaussianModelConfig(), folder=tmp_path, seed=1, log=said.append
    )
    assets = task.load_assets(tmp_path)
    assert assets == prepared.assets
    assert len(task.dataset(assets, task.choose_data())) == len(prepared.valid) == 180
    assert len(task.dataset(assets, task.choose_data(split="train"))) == len(prepared.train)
    assert "180 held out" in said[0]
    with pytest.raises(UserError, match="--split: expected 'train' or 'valid', received 'test'"):
        task.dataset(assets, task.choose_data(split="test"))
    with pytest.raises(UserError, match="estimator: pathwise"):
        task.build_model(GaussianModelConfig(), assets, needs_posterior=False)
    (tmp_path / "digits.json").write_text("{}")
    with pytest.raises(UserError, match=r"digits\.json: damaged"):
        task.load_assets(tmp_path)
