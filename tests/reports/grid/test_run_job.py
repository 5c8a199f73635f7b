"""What a process of a grid does with its job."""

import json
import logging

import pytest

from latentalign.reports.grid.run_job import main
from tests.reports.corpora import settings_for, write_data


@pytest.fixture
def work(tmp_path):
    write_data(tmp_path / "data", test=2)
    settings = settings_for(tmp_path / "data", tmp_path / "runs", changes=("training.epochs=2.5",))
    (tmp_path / "settings.json").write_text(settings.to_json())
    return lambda study, job: main([str(tmp_path / "settings.json"), study, job])


def test_a_job_leaves_its_row_behind(work, tmp_path):
    assert work("table1", "soft-s1") == 0
    (row,) = json.loads((tmp_path / "runs" / "results" / "soft-s1" / "table1.json").read_text())["rows"]
    assert row["epochs"] == 2.5


def test_a_mistake_is_one_line_and_exit_code_two(work, tmp_path, caplog):
    (tmp_path / "data" / "train.de").unlink()
    with caplog.at_level(logging.ERROR):
        assert work("table1", "hard-enumerate-s1") == 2
    (record,) = caplog.records
    assert "train.de: no such file" in record.message
    assert "\n" not in record.message
