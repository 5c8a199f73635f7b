"""The VQA table through `reproduce`, on a handful of scenes."""

import json

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
