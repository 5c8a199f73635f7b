"""Attention as a latent alignment: a prior, a posterior and a likelihood that can be marginalised.

Example:
    import latentalign as la

    run = la.load("runs/variational")
    print(*run.translate(["ein hund bellt ."]))
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from latentalign.alignment.attention import LatentAttention
    from latentalign.training.loaded import Loaded
    from latentalign.training.trained_aligner import TrainedAligner, load
    from latentalign.training.trained_ensemble import Ensemble
    from latentalign.training.trained_run import Run, train
    from latentalign.wordalign.aligner import Aligner

__version__ = "0.1.0"
__all__ = [
    "Aligner",
    "Ensemble",
    "LatentAttention",
    "Loaded",
    "Run",
    "TrainedAligner",
    "__version__",
    "load",
    "train",
]

# name -> where it is defined. It is imported on first use, so that `latentalign --help` needs no torch.
_PUBLIC = {
    "Aligner": "latentalign.wordalign.aligner",
    "Ensemble": "latentalign.training.trained_ensemble",
    "LatentAttention": "latentalign.alignment.attention",
    "Run": "latentalign.training.trained_run",
    "Loaded": "latentalign.training.loaded",
    "TrainedAligner": "latentalign.training.trained_aligner",
    "load": "latentalign.training.trained_aligner",
    "train": "latentalign.training.trained_run",
}


def __getattr__(name: str) -> object:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'latentalign' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
