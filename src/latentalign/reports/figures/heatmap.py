"""Alignments as pictures: one panel per distribution, target words down, source words across."""

import logging
import re
import unicodedata
import warnings
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle

from latentalign.errors import UserError
from latentalign.files import write_atomic

LOG = logging.getLogger(__name__)
FORMATS = ("png", "svg", "pdf")
CELL = 0.27  # inches a word: labels of 8 points neither touch nor leave gaps
LONGEST_LABEL = 22  # characters of a word that are shown

# Matplotlib looks for a glyph in one font after the other; only installed ones are asked for.
_FONTS = (
    "DejaVu Sans",
    "Noto Sans",
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Noto Sans CJK KR",
    "Source Han Sans",
    "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei",
    "IPAGothic",
    "Noto Sans Arabic",
    "Noto Naskh Arabic",
    "Noto Sans Hebrew",
    "Noto Sans Devanagari",
    "Arial Unicode MS",
    "PingFang SC",
    "Hiragino Sans",
    "Microsoft YaHei",
    "Malgun Gothic",
    "Nirmala UI",
)

# what XML has no way to write; a picture shows the sign for an unknown character instead
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")

Matrix = np.ndarray  # [target words, source words], probabilities


def heatmap(
    panels: Mapping[str, Matrix],
    source_words: Sequence[str],
    target_words: Sequence[str],
    *,
    title: str | None = None,
    gold: Iterable[tuple[int, int]] = (),
) -> Figure:
    """Draw every panel (name -> probabilities) over the same words; gold links are framed.

    The rest of a row's probability is on the null word and is not drawn.
    """
    if not source_words or not target_words:
        raise UserError("heat map: expected at least one word on either side, got an empty sentence")
    sources, targets = len(source_words), len(target_words)
    for name, matrix in panels.items():
        if matrix.shape != (targets, sources):
            raise ValueError(f"panel {name}: expected {(targets, sources)} probabilities, got {matrix.shape}")
    panel = max(sources * CELL, 1.8)
    longest_target = max(_width(_label(word)) for word in target_words)
    longest_source = max(_width(_label(word)) for word in source_words)
    left, top = 0.1 + 0.075 * longest_target, 0.55 + 0.06 * longest_source + (0.3 if title else 0.0)
    right = left if len(panels) > 1 else 0.1  # the words again beside the last panel
    width = left + len(panels) * (panel + 0.25) - 0.25 + right + 0.65
    height = top + max(targets * CELL, 1.0) + 0.25
    with matplotlib.rc_context({"font.family": _installed_fonts()}):
        figure = Figure(figsize=(width, height), dpi=150)
        for number, (name, matrix) in enumerate(panels.items()):
            box = (
                (left + number * (panel + 0.25)) / width,
                0.25 / height,
                panel / width,
                (height - top - 0.25) / height,
            )
            axes = figure.add_axes(box)
            image = _panel(axes, matrix, name, source_words)
            _label_rows(axes, target_words, left=number == 0, right=0 < number == len(panels) - 1)
            _frame(axes, gold)
        bar_height = min(2.0, height - top - 0.25)
        bar = figure.add_axes(((width - 0.6) / width, 0.25 / height, 0.12 / width, bar_height / height))
        figure.colorbar(image, cax=bar).ax.tick_params(labelsize=7)
        if title:
            figure.text(left / width, 1 - 0.12 / height, title, fontsize=10, va="top")
    return figure


def _panel(axes: Axes, matrix: Matrix, name: str, source_words: Sequence[str]) -> AxesImage:
    image = axes.imshow(matrix, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto", interpolation="nearest")
    axes.xaxis.tick_top()
    axes.set_xticks(range(matrix.shape[1]), [_label(word) for word in source_words], fontsize=8)
    for text in axes.get_xticklabels():
        text.set(rotation=60, ha="left", va="bottom", rotation_mode="anchor")
    # thin lines between the cells: forty of them remain countable
    axes.set_xticks(np.arange(matrix.shape[1] + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(matrix.shape[0] + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="0.88", linewidth=0.5)
    axes.tick_params(which="both", length=0)
    axes.set_xlabel(name, fontsize=9)
    for spine in axes.spines.values():
        spine.set_color("0.6")
    return image


def _label_rows(axes: Axes, words: Sequence[str], *, left: bool, right: bool) -> None:
    axes.set_yticks(range(len(words)), [_label(word) for word in words], fontsize=8)
    axes.tick_params(axis="y", labelleft=left, labelright=right)


def _frame(axes: Axes, gold: Iterable[tuple[int, int]]) -> None:
    for i, j in gold:
        axes.add_patch(
            Rectangle((i - 0.45, j - 0.45), 0.9, 0.9, fill=False, edgecolor="#d95f02", linewidth=1.1)
        )


def _label(word: str) -> str:
    word = _UNPRINTABLE.sub("\ufffd", word)
    word = word if len(word) <= LONGEST_LABEL else word[: LONGEST_LABEL - 1] + "…"
    word = word.replace("$", r"\$")  # a pair of dollars would start a formula
    return _visual_order(word)


def _width(text: str) -> float:
    """Characters, wide ones (CJK) counted twice and marks above letters not at all."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def _visual_order(word: str) -> str:
    """Matplotlib up to 3.10 sets every script from left to right; a word of Hebrew is turned round for it."""
    if matplotlib.__version_info__[:2] >= (3, 11):
        return word
    right_to_left = any(unicodedata.bidirectional(char) in ("R", "AL") for char in word)
    return word[::-1] if right_to_left else word


def _installed_fonts() -> list[str]:
    installed = {font.name for font in font_manager.fontManager.ttflist}
    return [name for name in _FONTS if name in installed] or ["sans-serif"]


def check_format(path: str | Path) -> str:
    """The picture format that a file name asks for."""
    suffix = Path(path).suffix.lower().removeprefix(".")
    if suffix not in FORMATS:
        raise UserError(f"{path}: expected a picture name ending in .png, .svg or .pdf")
    return suffix


def render(figure: Figure, kind: str) -> bytes:
    """The picture as bytes; text of an SVG stays text, so that the reader's own fonts draw it."""
    buffer = BytesIO()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        metadata = {"Date": None} if kind == "svg" else {"CreationDate": None} if kind == "pdf" else None
        with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "latentalign"}):
            figure.savefig(buffer, format=kind, metadata=metadata)
    if any("Glyph" in str(warning.message) for warning in caught):
        LOG.warning("no installed font has some of the characters; an .svg picture leaves them to its viewer")
    return (
        _UNPRINTABLE.sub("\ufffd", buffer.getvalue().decode()).encode()
        if kind == "svg"
        else buffer.getvalue()
    )


def save(figure: Figure, path: str | Path) -> None:
    """Write the picture, whole or not at all, in the format of its name."""
    write_atomic(path, render(figure, check_format(path)))
