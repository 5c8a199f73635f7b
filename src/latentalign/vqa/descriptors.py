"""Fixed descriptors of a region from its own pixels, in place of a detector's features for generated scenes.

Nothing but the crop and the place of the box goes in: no label of a shape can leak.
"""

import numpy as np
from PIL import Image

_GRID = 6  # a coarse colour picture of the region
_PATCH = 8  # a finer grey one
_CROP = 24  # the size at which histograms and moments are taken
_HUES = 12
_ORIENTATIONS = 8
_RIM = np.ones((_CROP, _CROP), dtype=bool)
_RIM[2:-2, 2:-2] = False
_AXIS = np.linspace(-1, 1, _CROP)
DIM = 3 * _GRID**2 + _PATCH**2 + (_HUES + 2) + 8 + _ORIENTATIONS + 7


def describe_regions(image: Image.Image, boxes: np.ndarray) -> np.ndarray:
    """Descriptors [S,D] of boxes [S,4] in an RGB image."""
    return np.stack([_describe(image, box) for box in boxes]).astype(np.float32)


def _describe(image: Image.Image, box: np.ndarray) -> np.ndarray:
    x1, y1, x2, y2 = (float(value) for value in box)
    area = (x1, y1, max(x2, x1 + 1), max(y2, y1 + 1))
    crop = image.resize((_CROP, _CROP), Image.Resampling.BILINEAR, box=area)
    colours = np.asarray(crop.resize((_GRID, _GRID), Image.Resampling.BOX), dtype=np.float32)
    grey = np.asarray(crop.convert("L"), dtype=np.float32)
    patch = np.asarray(crop.convert("L").resize((_PATCH, _PATCH), Image.Resampling.BOX), dtype=np.float32)
    ground = _middle(grey[_RIM])
    parts = [
        (colours.ravel() - 180) / 64,
        (patch.ravel() - ground) / 64,
        _hue_histogram(crop),
        _moments(np.asarray(crop, dtype=np.float32)),
        _orientations(grey),
        _geometry(area, image.size),
    ]
    return np.concatenate(parts)


def _hue_histogram(crop: Image.Image) -> np.ndarray:
    """Shares of the hues among the saturated pixels, and how much is dark or saturated at all."""
    hue, saturation, value = np.moveaxis(np.asarray(crop.convert("HSV"), dtype=np.float32), -1, 0)
    weight = np.where(saturation > 60, saturation / 255, 0.0)
    counts = np.bincount((hue * _HUES / 256).astype(int).ravel(), weights=weight.ravel(), minlength=_HUES)
    shares = counts / max(float(counts.sum()), 1.0)
    return np.concatenate([2 * shares, [2 * (value < 80).mean(), 2 * (weight > 0).mean()]])


def _moments(crop: np.ndarray) -> np.ndarray:
    """Area, centre, spread and roundness of what differs from the rim of the crop."""
    row, column = np.nonzero(np.abs(crop - _middle(crop[_RIM])).max(axis=-1) > 40)
    if not len(row):
        return np.zeros(8)
    x, y = _AXIS[column], _AXIS[row]
    dx, dy = x - x.mean(), y - y.mean()
    radius = np.hypot(dx, dy)
    second = [(dx * dx).mean(), (dy * dy).mean(), (dx * dy).mean()]
    return np.array([len(row) / _CROP**2, x.mean(), y.mean(), *second, radius.mean(), radius.std()]) * 2


def _middle(values: np.ndarray) -> np.ndarray:
    """The upper median over the first axis."""
    half = len(values) // 2
    return np.asarray(np.partition(values, half, axis=0)[half])


def _orientations(grey: np.ndarray) -> np.ndarray:
    """Histogram of the directions of edges, weighted by their strength."""
    vertical, horizontal = np.gradient(grey)
    strength = np.hypot(vertical, horizontal)
    angle = np.mod(np.arctan2(vertical, horizontal), np.pi)
    bins = np.minimum((angle * _ORIENTATIONS / np.pi).astype(int), _ORIENTATIONS - 1)
    counts = np.bincount(bins.ravel(), weights=strength.ravel(), minlength=_ORIENTATIONS)
    return 2 * counts / max(float(counts.sum()), 1.0)


def _geometry(box: tuple[float, float, float, float], size: tuple[int, int]) -> np.ndarray:
    """Place and size of the box, relative to the image."""
    width, height = size
    x1, y1, x2, y2 = box[0] / width, box[1] / height, box[2] / width, box[3] / height
    return np.array([x1, y1, x2, y2, x2 - x1, y2 - y1, 4 * (x2 - x1) * (y2 - y1)]) * 2 - 1
