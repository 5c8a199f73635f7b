"""The image of a question with its regions weighted by prior and posterior, side by side."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image, UnidentifiedImageError

from latentalign.errors import UserError
from latentalign.reports.figures.heatmap import check_format, save

_COLOURS = {"prior": "#1f5fbf", "posterior": "#c23b22"}
_LABELLED = 0.05  # regions below this probability carry no number
_MOST_LABELS = 4
_FADED = 0.72  # how far regions of probability 0 fade into white


def draw_answer(result: Mapping[str, Any], picture: str | Path, output: str | Path) -> None:
    """Draw what `answer` found on the image it was asked about; the ending of `output` chooses the format."""
    check_format(output)
    evidence = result["evidence"]
    if not evidence or "box" not in evidence[0]:
        raise UserError(f"{output}: a picture of regions needs a VQA run; this one looks at text")
    image = _open_image(picture, tuple(result["size"]))
    names = [name for name in ("prior", "posterior") if name in evidence[0]]
    boxes = [entry["box"] for entry in evidence]
    figure = Figure(figsize=(4.2 * len(names), 4.9), dpi=130, layout="constrained")
    figure.suptitle(_title(result), fontsize=11)
    for place, name in enumerate(names, start=1):
        axes = figure.add_subplot(1, len(names), place)
        draw_regions(axes, image, boxes, [entry[name] for entry in evidence], colour=_COLOURS[name])
        axes.set_title(_panel_title(name, result), fontsize=10, color=_COLOURS[name])
    save(figure, output)


def draw_regions(
    axes: Axes, image: np.ndarray, boxes: Sequence[Sequence[float]], weights: Sequence[float], *, colour: str
) -> None:
    """One image: it stays clear where the probability is, and every box is drawn as strongly as its own."""
    height, width = image.shape[:2]
    axes.imshow(_faded(image, boxes, weights), extent=(0, width, height, 0), interpolation="lanczos")
    order = np.argsort(weights)
    for number in order:
        _draw_box(axes, boxes[number], weights[number], colour)
    taken: list[tuple[float, float]] = []
    for number in order[::-1][:_MOST_LABELS]:
        if weights[number] >= _LABELLED:
            _draw_label(axes, boxes[number], weights[number], colour, taken, (width, height))
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color("#bbbbbb")


def _faded(image: np.ndarray, boxes: Sequence[Sequence[float]], weights: Sequence[float]) -> np.ndarray:
    height, width = image.shape[:2]
    clear = np.zeros((height, width))
    for (x1, y1, x2, y2), weight in zip(boxes, weights, strict=True):
        rows, columns = slice(int(y1), int(np.ceil(y2))), slice(int(x1), int(np.ceil(x2)))
        clear[rows, columns] = np.maximum(clear[rows, columns], weight)
    faded = _FADED * (1 - clear / max(float(clear.max()), 1e-9))[..., None]
    return image * (1 - faded) + faded


def _draw_box(axes: Axes, box: Sequence[float], weight: float, colour: str) -> None:
    x1, y1, x2, y2 = box
    strength = float(np.sqrt(weight))  # small probabilities stay visible
    red, green, blue = to_rgb(colour)
    axes.add_patch(
        Rectangle(
            (x1, y1),
            x2 - x1,
            y2 - y1,
            fill=False,
            linewidth=0.6 + 2.8 * strength,
            edgecolor=(red, green, blue, 0.12 + 0.88 * strength),
            clip_on=False,
        )
    )


def _draw_label(
    axes: Axes,
    box: Sequence[float],
    weight: float,
    colour: str,
    taken: list[tuple[float, float]],
    size: tuple[int, int],
) -> None:
    """The probability at the first corner of the box that has no label yet."""
    width, height = size
    x1, y1, x2, y2 = box
    for x, y, across, up in ((x1, y1, "left", "top"), (x2, y2, "right", "bottom"),
                             (x2, y1, "right", "top"), (x1, y2, "left", "bottom")):  # fmt: skip
        # where the middle of the text comes to lie
        spot = (
            x + (0.06 if across == "left" else -0.06) * width,
            y + (0.03 if up == "top" else -0.03) * height,
        )
        if all(abs(spot[0] - a) > 0.12 * width or abs(spot[1] - b) > 0.065 * height for a, b in taken):
            break
    else:
        return
    taken.append(spot)
    style = {"boxstyle": "square,pad=0.18", "facecolor": colour, "edgecolor": "none", "alpha": 0.9}
    axes.text(
        x, y, f"{weight:.2f}", color="white", fontsize=8, ha=across, va=up, bbox=style, clip_on=False
    )  # fmt: skip


def _title(result: Mapping[str, Any]) -> str:
    best = "   ".join(f"{entry['answer']} {entry['probability']:.2f}" for entry in result["answers"][:3])
    return f"{result['question']}\n{best}"


def _panel_title(name: str, result: Mapping[str, Any]) -> str:
    if name == "prior":
        return "prior: the question alone"
    return f"posterior: the answer is “{result['given']}”"


def _open_image(path: str | Path, size: tuple[int, int]) -> np.ndarray:
    """Pixels [H,W,3] from 0 to 1, in the size that the boxes speak of."""
    if not Path(path).is_file():
        raise UserError(f"{path}: no such image; expected the picture that the question is about")
    try:
        with Image.open(path) as image:
            if image.size != size:
                raise UserError(
                    f"{path}: image of {image.size[0]} x {image.size[1]}; the features were made from one of "
                    f"{size[0]} x {size[1]}; is it the same picture?"
                )
            return np.asarray(image.convert("RGB"), dtype=np.float64) / 255
    except (UnidentifiedImageError, OSError) as error:
        raise UserError(f"{path}: not a picture that can be read ({error})") from None
