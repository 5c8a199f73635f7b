"""Features larger than memory: converting and training must not hold them."""

import json
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

from latentalign.vqa.features import ImageRegions, RegionFeatures, convert_features, encode_line

REGIONS = 36


def write_made_up_data(folder, *, images, dim):
    """Questions, annotations and a TSV of random features, written line by line."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    boxes = np.tile(np.array([[1, 2, 30, 40]], dtype=np.float32), (REGIONS, 1))
    tails = []
    for _ in range(4):
        line = encode_line(
            ImageRegions(0, 640, 480, boxes, rng.normal(size=(REGIONS, dim)).astype(np.float32))
        )
        tails.append(line.partition("\t")[2])
    with (folder / "regions.tsv").open("w") as stream:
        for image_id in range(images):
            stream.write(f"{image_id}\t{tails[image_id % 4]}\n")
    for split, ids in (("train2014", range(images)), ("val2014", range(0, images, 20))):
        asked = [{"image_id": n, "question": f"what is number {n % 7}?", "question_id": n} for n in ids]
        answered = [
            {
                "question_id": n,
                "image_id": n,
                "question_type": "what is",
                "multiple_choice_answer": f"{n % 4} apples",
                "answers": [{"answer": f"{n % 4} apples", "answer_id": k} for k in range(10)],
            }
            for n in ids
        ]
        (folder / f"v2_OpenEnded_mscoco_{split}_questions.json").write_text(json.dumps({"questions": asked}))
        (folder / f"v2_mscoco_{split}_annotations.json").write_text(json.dumps({"annotations": answered}))


def test_memory_does_not_grow_with_the_number_of_images(tmp_path):
    peaks = []
    for images in (40, 160):
        folder = tmp_path / str(images)
        write_made_up_data(folder, images=images, dim=256)
        tracemalloc.start()
        convert_features([folder / "regions.tsv"], folder / "features")
        features = RegionFeatures(folder / "features")
        for start in range(0, images, 8):
            features.gather(range(start, start + 8))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    one_image = REGIONS * 256 * 4
    assert peaks[1] - peaks[0] < 4 * one_image  # 120 images more; their boxes and ids are all that stays
    assert peaks[1] < 40 * one_image


TRAIN_AND_REPORT = """
import json, resource, sys
from pathlib import Path
from latentalign.training.train import train
from latentalign.training.recipe.recipes import build_recipe

recipe = build_recipe({
    "task": "vqa",
    "data": {"folder": sys.argv[1], "feature_files": ["regions.tsv"], "batch_size": 128},
    "model": {"word_dim": 32, "question_dim": 64, "attention_dim": 64, "answer_hidden_dim": 64,
              "posterior_answer_dim": 16, "posterior_hidden_dim": 32},
    "objective": {"name": "variational", "estimator": "reinforce"},
    "training": {"epochs": 1, "threads": 1, "accelerator": "cpu"},
})
to = Path(sys.argv[1]) / "features"
recipe.task.prepare_files(recipe.data, recipe.model, to=to, seed=1, log=lambda line: None)
train(recipe, Path(sys.argv[2]), echo=False)
print(json.dumps({"kilobytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}))
"""


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_thousand_images_convert_and_train_within_two_gigabytes(tmp_path):
    folder = tmp_path / "data"
    write_made_up_data(folder, images=10_000, dim=2048)
    assert (folder / "regions.tsv").stat().st_size > 3.5e9
    done = subprocess.run(
        [sys.executable, "-c", TRAIN_AND_REPORT, str(folder), str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (folder / "features" / "features.bin").stat().st_size == 10_000 * REGIONS * 2048 * 4
    assert json.loads(done.stdout.splitlines()[-1])["kilobytes"] * 1024 < 2 * 2**30
