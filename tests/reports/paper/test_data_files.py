"""Where data lie in the folder that `reproduce` is given."""

import pytest

from latentalign.errors import UserError
from latentalign.reports.paper.data_files import default_recipe, locate


@pytest.fixture
def multi30k(tmp_path):
    names = ("train.de.gz", "test_2016_flickr.de.gz", "test_2016_flickr.lc.norm.tok.de.gz", "test_2017.de.gz")
    for name in (*names, "test_2016_flickr.en.gz", "test_2016_flickr.lc.norm.tok.en.gz"):
        (tmp_path / name).touch()
    return tmp_path


def find(data, **files):
    given = {"source": None, "target": None, **files}
    return locate("translation", "reproduce-multi30k", data, **given)


def test_the_test_set_has_the_endings_of_the_training_files(multi30k):
    places = find(multi30k)
    assert places.data == {"folder": str(multi30k)}
    assert places.test == {
        "source": str(multi30k / "test_2016_flickr.de.gz"), "target": str(multi30k / "test_2016_flickr.en.gz")
    }  # fmt: skip


def test_files_that_are_named_win(multi30k):
    places = find(multi30k, source=multi30k / "test_2017.de.gz", target=multi30k / "train.de.gz")
    assert places.test["source"].endswith("test_2017.de.gz")


def test_mistakes(tmp_path, multi30k):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no test set; expected test"):
        find(tmp_path / "empty")
    with pytest.raises(UserError, match="no such folder"):
        find(tmp_path / "nowhere")
    with pytest.raises(UserError, match="expected both or neither"):
        find(multi30k, source=multi30k / "train.de.gz")
    with pytest.raises(UserError, match=r"--target .*nowhere: no such file"):
        find(multi30k, source=multi30k / "train.de.gz", target=multi30k / "nowhere")
    with pytest.raises(UserError, match="--task music: expected one of translation, vqa"):
        default_recipe("music")


def test_vqa_splits_its_own_data(tmp_path):
    places = locate("vqa", default_recipe("vqa"), tmp_path, source=None, target=None)
    assert places.test == {"data": str(tmp_path), "split": "test"}
