"""The VQA table through `reproduce`, on a handful of scenes."""

import json

from latentalign.reports.paper.vqa_study import SPECS

CHANGES = (
    "data.scenes=null", "data.min_answer_count=2", "training.epochs=1", "model.question_dim=8", "model.region_dim=8",
)  # fmt: skip


def test_reproduces_rows_with_gold_regions_and_does_not_train_twice(scenes, tmp_path, run_cli):
    settings = [word for change in CHANGES for word in ("--set", change)]
    command = [
        "reproduce", "table1", "--task", "vqa", "--data", scenes, "--out", tmp_path / "out", "--jobs", 0,
        "--only", "soft", "--only", "variational-sample", *settings,
    ]  # fmt: skip
    code, out, err = run_cli(*command)
    assert code == 0, err
    rows = json.loads((tmp_path / "out" / "table1.json").read_text())["rows"]
    assert [(row["objective"], row["estimator"], row["inference"]) for row in rows] == [
        ("soft", "-", "soft"),
        ("variational", "reinforce", "exact"),
    ]
    for row in rows:
        assert row["recipe"] == "vqa-scenes"
        assert 0 <= row["score"] <= 100
        assert {"nll", "prior_entropy", "prior_gold", "posterior_gold", "minutes", "version"} <= set(row)
        assert "what colour is the" in row["by_type"]
    assert "inference_gold" in rows[1]
    assert "inference_gold" not in rows[0]
    assert "variational" in out
    code, _, err = run_cli(*command)
    assert code == 0
    assert "2 done before" in err


def test_rows_by_phases_begin_like_soft_attention_and_share_their_past(scenes, tmp_path, run_cli):
    settings = [word for change in (*CHANGES[:2], "training.epochs=21") for word in ("--set", change)]
    plan = [
        "reproduce",
        "table1",
        "--task",
        "vqa",
        "--data",
        scenes,
        "--out",
        tmp_path,
        "--dry-run",
        *settings,
    ]
    code, out, err = run_cli(*plan, "--only", "enumerate-from-prior", "--only", "sample-from-prior")
    assert code == 0, err
    lines = out.splitlines()
    assert [line.split(":")[0] for line in lines if "shared warm-up" in line] == [
        next(line.split("after ")[1] for line in lines if "after" in line)
    ]
    for name in ("enumerate", "sample"):
        cell = SPECS[f"{name}-from-prior"]
        assert [phase["objective"] for phase in cell.before] == ["soft", "wake"]
        assert cell.model == {"posterior_from_prior": True}
        assert cell.last == SPECS[f"variational-{name}"].last  # nothing else differs from the paper's row
