"""A corpus small enough to train on in a second, and a recipe for it, shared by the tests of grids."""

from pathlib import Path

import yaml

from latentalign.reports.grid.settings import GridSettings
from latentalign.translation.generated.corpus import write_corpus

RECIPE = {
    "task": "translation",
    "data": {
        "train": {"source": "train.de", "target": "train.en"},
        "valid": {"source": "valid.de", "target": "valid.en"},
        "tokenizer": {"kind": "bpe", "size": 110, "byte_fallback": False, "character_coverage": 1.0},
        "batch_size": 16,
    },
    "model": {
        "embedding_size": 8,
        "memory_size": 8,
        "decoder_size": 8,
        "attention_size": 8,
        "dropout": 0.0,
        "inference_network": {"memory_size": 8},
    },
    "schedule": [
        {"objective": "soft", "epochs": 1.0},
        {"objective": {"name": "wake", "prune": 0.02}, "epochs": 1.0},
        {"objective": "variational"},
    ],
    "training": {"epochs": 3.0, "learning_rate": 1e-2, "log_every": 1000, "threads": 1},
}


def write_data(folder: Path, *, train: int = 32, test: int = 8) -> Path:
    """Corpus files in `folder`, and the recipe beside them as tiny.yaml."""
    folder.mkdir(parents=True, exist_ok=True)
    write_corpus(folder, sizes={"train": train, "valid": 8, "test": test}, seed=1)
    (folder / "tiny.yaml").write_text(yaml.safe_dump(RECIPE))
    return folder


def settings_for(data: Path, runs: Path, **changes: object) -> GridSettings:
    values = {
        "task": "translation",
        "recipe": str(data / "tiny.yaml"),
        "runs": str(runs),
        "data": {"folder": str(data)},
        "test": {"source": str(data / "test.de"), "target": str(data / "test.en")},
        "beam": 2,
        "samples": 3,
    }
    return GridSettings(**{**values, **changes})
