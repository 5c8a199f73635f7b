"""Code in the guides runs as it is printed, block after block in one page."""

import contextlib
import io
import re
from pathlib import Path

import pytest
import torch

DOCS = Path(__file__).parents[1] / "docs"


def run_blocks(page: str) -> tuple[dict[str, object], list[str]]:
    """Names that the page's Python blocks leave behind, and what they print."""
    names: dict[str, object] = {}
    printed = io.StringIO()
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.S)
    assert blocks, f"{page} has no code"
    for block in blocks:
        with contextlib.redirect_stdout(printed):
            exec(compile(block, page, "exec"), names)
    return names, printed.getvalue().splitlines()


def test_latent_attention() -> None:
    names, printed = run_blocks("latent-attention.md")
    assert "torch.Size([4, 3, 6])" in printed
    assert "True" in printed  # -100 and a weight of 0 mean the same
    losses = [float(line.rsplit(" ", 1)[1]) for line in printed if ": loss " in line]
    assert len(losses) == 3
    assert losses[-1] < 0.6 * losses[0]  # it learns
    assert torch.isfinite(names["gap"]).all()
    assert (names["gap"] > -1e-5).all()
    assert names["right"] > 0.8  # links of the Transformer


@pytest.mark.parametrize("page", ["gaussian.md", "memory.md", "training-a-translator.md"])
def test_examples_of_other_pages(page: str) -> None:
    run_blocks(page)
