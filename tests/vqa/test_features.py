import base64
import gzip
import pickle

import numpy as np
import pytest

from latentalign.errors import UserError
from latentalign.vqa.features import ImageRegions, RegionFeatures, convert_features, encode_line, read_tsv


def make_regions(image_id, count=3, dim=5, width=100, height=80):
    rng = np.random.default_rng(image_id)
    low = rng.uniform(0, 40, size=(count, 2))
    boxes = np.concatenate([low, low + rng.uniform(1, 39, size=(count, 2))], axis=1).astype(np.float32)
    return ImageRegions(image_id, width, height, boxes, rng.normal(size=(count, dim)).astype(np.float32))


def write_tsv(path, rows, *, zipped=False):
    text = "".join(encode_line(row) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
    return path


def edit_line(row, **changes):
    names = ["image_id", "image_w", "image_h", "num_boxes", "boxes", "features"]
    fields = dict(zip(names, encode_line(row).split("\t"), strict=True))
    return "\t".join(str(value) for value in {**fields, **changes}.values())


@pytest.mark.parametrize("zipped", [False, True])
def test_round_trip_with_adaptive_numbers_of_regions(tmp_path, zipped):
    rows = [make_regions(7, count=10), make_regions(3, count=36), make_regions(11, count=1)]
    sources = [
        write_tsv(tmp_path / "a.tsv", rows[:2], zipped=zipped),
        write_tsv(tmp_path / "b.tsv", rows[2:]),
    ]
    meta = convert_features(sources, tmp_path / "features")
    features = RegionFeatures(tmp_path / "features")
    assert (meta["images"], meta["regions"], features.dim) == (3, 47, 5)
    assert features.image_ids == [7, 3, 11]
    for row in rows:
        found = features[row.image_id]
        np.testing.assert_array_equal(found.features, row.features)
        np.testing.assert_array_equal(found.boxes, row.boxes)
        assert (found.width, found.height) == (100, 80)
    assert 4 not in features
    with pytest.raises(UserError, match="no features of image 4 among 3"):
        features[4]


def test_float16_halves_the_file(tmp_path):
    row = make_regions(1, count=4, dim=8)
    source = write_tsv(tmp_path / "a.tsv", [row])
    convert_features([source], tmp_path / "half", dtype="float16")
    features = RegionFeatures(tmp_path / "half")
    assert (tmp_path / "half" / "features.bin").stat().st_size == 4 * 8 * 2
    assert features[1].features.dtype == np.float32
    np.testing.assert_allclose(features[1].features, row.features, atol=2e-3)


def test_the_first_of_repeated_images_is_kept(tmp_path):
    first, again = make_regions(1), make_regions(1, dim=5)
    again = ImageRegions(1, 100, 80, again.boxes, again.features + 1)
    meta = convert_features([write_tsv(tmp_path / "a.tsv", [first, again])], tmp_path / "f")
    assert (meta["images"], meta["repeated"]) == (1, 1)
    np.testing.assert_array_equal(RegionFeatures(tmp_path / "f")[1].features, first.features)


def test_survives_pickling_for_worker_processes(tmp_path):
    row = make_regions(1)
    convert_features([write_tsv(tmp_path / "a.tsv", [row])], tmp_path / "f")
    copy = pickle.loads(pickle.dumps(RegionFeatures(tmp_path / "f")))
    np.testing.assert_array_equal(copy[1].features, row.features)


def test_reading_stays_right_while_pages_are_given_back(tmp_path, monkeypatch):
    monkeypatch.setattr("latentalign.vqa.features._RELEASE_AFTER", 100)
    rows = [make_regions(key, count=20, dim=64) for key in range(6)]
    convert_features([write_tsv(tmp_path / "a.tsv", rows)], tmp_path / "f")
    features = RegionFeatures(tmp_path / "f")
    for row in [*rows, *reversed(rows)]:
        np.testing.assert_array_equal(features[row.image_id].features, row.features)


def read_broken(tmp_path, line):
    path = tmp_path / "broken.tsv"
    path.write_text(encode_line(make_regions(1)) + "\n" + line)
    with pytest.raises(UserError) as caught:
        list(read_tsv(path))
    message = str(caught.value)
    assert "broken.tsv, line 2" in message
    assert "\n" not in message
    return message


def test_a_truncated_line_is_named(tmp_path):
    whole = encode_line(make_regions(2))
    assert "received 5" in read_broken(tmp_path, whole.rsplit("\t", 1)[0])
    assert "truncated" in read_broken(tmp_path, whole[:-7])
    assert "truncated" in read_broken(tmp_path, whole[:-8])


def test_wrong_size_of_features_is_named(tmp_path):
    message = read_broken(tmp_path, encode_line(make_regions(2, dim=4)))
    assert "wrong size of features: expected 3 x 5" in message
    assert "received 3 x 4" in message
    message = read_broken(tmp_path, edit_line(make_regions(2), num_boxes=2))
    assert "wrong size of boxes: expected 2 x 4" in message


@pytest.mark.parametrize(
    "box", [(-5, 0, 10, 10), (0, 0, 103, 10), (0, 0, 10, 82), (30, 10, 20, 20), (np.nan, 0, 1, 1)]
)
def test_boxes_outside_the_image_are_named(tmp_path, box):
    row = make_regions(2)
    row.boxes[1] = box
    message = read_broken(tmp_path, encode_line(row))
    assert "(image 2)" in message
    assert "box 1 is" in message
    assert "outside the image of 100 x 80" in message


def test_a_box_may_touch_the_edge(tmp_path):
    row = make_regions(2)
    row.boxes[0] = (-0.4, 0, 100.5, 80)
    assert len(list(read_tsv(write_tsv(tmp_path / "a.tsv", [row])))) == 1


def test_other_damage_is_named(tmp_path):
    row = make_regions(2)
    assert "whole numbers" in read_broken(tmp_path, edit_line(row, image_w="wide"))
    assert "at least one box" in read_broken(tmp_path, edit_line(row, num_boxes=0, boxes="", features=""))
    nothing = base64.b64encode(np.full((3, 5), np.nan, dtype="<f4").tobytes()).decode()
    assert "not numbers" in read_broken(tmp_path, edit_line(row, features=nothing))


def test_a_failed_conversion_leaves_nothing_behind(tmp_path):
    source = tmp_path / "a.tsv"
    source.write_text(encode_line(make_regions(1)) + "\nbroken\n")
    with pytest.raises(UserError):
        convert_features([source], tmp_path / "f")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tsv"]


def test_refuses_to_replace_another_folder(tmp_path):
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="holds something else"):
        convert_features([write_tsv(tmp_path / "a.tsv", [make_regions(1)])], tmp_path / "f")


def test_missing_and_damaged_folders_are_named(tmp_path):
    with pytest.raises(UserError, match="latentalign prepare"):
        RegionFeatures(tmp_path)
    with pytest.raises(UserError, match="no such file"):
        list(read_tsv(tmp_path / "none.tsv"))
    (tmp_path / "empty.tsv").write_text("")
    with pytest.raises(UserError, match="no image in it"):
        convert_features([tmp_path / "empty.tsv"], tmp_path / "f")
    convert_features([write_tsv(tmp_path / "a.tsv", [make_regions(1)])], tmp_path / "f")
    (tmp_path / "f" / "features.bin").write_bytes(b"1234")
    with pytest.raises(UserError, match="prepare it again"):
        RegionFeatures(tmp_path / "f")
