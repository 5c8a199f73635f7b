"""Attention as a latent alignment: a prior, a posterior and a likelihood that can be marginalised."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from latentalign.alignment.attention import LatentAttention

__version__ = "0.1.0"
__all__ = ["LatentAttention", "__version__"]


def __getattr__(name: str) -> object:
    # torch is imported on first use, so that `latentalign --help` answers at once
    if name == "LatentAttention":
        from latentalign.alignment.attention import LatentAttention

        return LatentAttention
    raise AttributeError(f"module 'latentalign' has no attribute {name!r}")
