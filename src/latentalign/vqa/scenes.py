"""Generated scenes: coloured shapes, overlaps, distractors, rendered to pixels, with a detector's boxes."""

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

COLOURS = {
    "red": (208, 48, 42),
    "yellow": (240, 210, 62),
    "green": (62, 158, 76),
    "blue": (48, 92, 204),
    "purple": (142, 68, 172),
    "black": (38, 38, 44),
}
KINDS = ("circle", "square", "triangle", "cross")
SIZES = {"small": (9.0, 12.5), "large": (18.0, 26.0)}  # range of radii in pixels
GRID = 3
CELL = 48
SIDE = GRID * CELL
_SCALE = 2  # drawn larger and shrunk: smooth edges


@dataclass(frozen=True)
class Shape:
    """One shape; `row` and `column` are its cell of the grid, the centre is jittered inside it."""

    kind: str
    colour: str
    size: str
    row: int
    column: int
    x: float
    y: float
    radius: float
    angle: float
    rgb: tuple[int, int, int]

    def attribute(self, name: str) -> str:
        return {"kind": self.kind, "colour": self.colour, "size": self.size}[name]


@dataclass(frozen=True)
class Scene:
    """Shapes in drawing order and a detector's boxes: each shape, each pair of neighbours, clutter.

    `owners[i]` tells which shapes box i was put around: one, two, or none for a distractor.
    """

    shapes: tuple[Shape, ...]
    clutter: tuple[tuple[float, float, float, float], ...]
    boxes: np.ndarray  # [S,4] float32
    owners: tuple[tuple[int, ...], ...]

    def region_of(self, *shapes: int) -> int | None:
        """The box around exactly these shapes."""
        wanted = tuple(sorted(shapes))
        return self.owners.index(wanted) if wanted in self.owners else None


def make_scene(rng: np.random.Generator) -> Scene:
    """Four to six shapes in different cells, two or three pieces of clutter."""
    count = int(rng.integers(4, 7))
    cells = rng.permutation(GRID * GRID)
    shapes = tuple(_make_shape(rng, int(cell)) for cell in cells[:count])
    clutter = tuple(_clutter_box(rng, int(cell)) for cell in cells[count : count + int(rng.integers(2, 4))])
    owners: list[tuple[int, ...]] = [(number,) for number in range(count)]
    owners += [
        pair for pair in combinations(range(count), 2) if are_neighbours(shapes[pair[0]], shapes[pair[1]])
    ]
    owners += [()] * len(clutter)
    boxes = [_enclose(rng, [shapes[number] for number in owner]) for owner in owners if owner]
    boxes += [np.array(box) for box in clutter]
    order = rng.permutation(len(owners))  # the place of a box in the list tells nothing
    return Scene(
        shapes,
        clutter,
        np.stack([boxes[place] for place in order]).astype(np.float32),
        tuple(owners[place] for place in order),
    )


def are_neighbours(one: Shape, other: Shape) -> bool:
    return abs(one.row - other.row) + abs(one.column - other.column) == 1


def _make_shape(rng: np.random.Generator, cell: int) -> Shape:
    size = str(rng.choice(list(SIZES)))
    colour = str(rng.choice(list(COLOURS)))
    row, column = divmod(cell, GRID)
    jitter = rng.uniform(-9, 9, size=2)
    shade = rng.integers(-16, 17, size=3)
    red, green, blue = (
        int(np.clip(value + shift, 0, 255)) for value, shift in zip(COLOURS[colour], shade, strict=True)
    )
    return Shape(
        kind=str(rng.choice(KINDS)),
        colour=colour,
        size=size,
        row=row,
        column=column,
        x=float((column + 0.5) * CELL + jitter[0]),
        y=float((row + 0.5) * CELL + jitter[1]),
        radius=float(rng.uniform(*SIZES[size])),
        angle=float(rng.uniform(-0.2, 0.2)),
        rgb=(red, green, blue),
    )


def _clutter_box(rng: np.random.Generator, cell: int) -> tuple[float, float, float, float]:
    row, column = divmod(cell, GRID)
    width, height = rng.uniform(16, 44, size=2)
    x = np.clip((column + 0.5) * CELL + rng.uniform(-8, 8), width / 2, SIDE - width / 2)
    y = np.clip((row + 0.5) * CELL + rng.uniform(-8, 8), height / 2, SIDE - height / 2)
    return float(x - width / 2), float(y - height / 2), float(x + width / 2), float(y + height / 2)


def _enclose(rng: np.random.Generator, shapes: list[Shape]) -> np.ndarray:
    """A box around shapes, as loose and shaky as a detector's."""
    extents = [(s.x - s.radius, s.y - s.radius, s.x + s.radius, s.y + s.radius) for s in shapes]
    low, high = np.min(extents, axis=0)[:2], np.max(extents, axis=0)[2:]
    box = np.concatenate([low, high]) + rng.uniform(-1.5, 1.5, size=4) + np.array([-1, -1, 1, 1])
    return np.asarray(np.clip(box, 0, SIDE))


def render(scene: Scene, rng: np.random.Generator) -> Image.Image:
    """The scene as an RGB image: light background, grey clutter, then the shapes, then sensor noise."""
    side = SIDE * _SCALE
    ramp = np.linspace(rng.uniform(205, 235), rng.uniform(205, 235), side)
    ground = np.repeat(ramp[:, None], side, axis=1)
    image = Image.fromarray(np.repeat(ground[..., None], 3, axis=2).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    for box in scene.clutter:
        _draw_clutter(draw, [value * _SCALE for value in box], rng)
    for shape in scene.shapes:
        outline = _darker(shape.rgb)
        points = _outline_points(shape)
        draw.polygon([(x * _SCALE, y * _SCALE) for x, y in points], fill=shape.rgb, outline=outline)
    small = image.resize((SIDE, SIDE), Image.Resampling.BOX).filter(ImageFilter.GaussianBlur(0.4))
    noisy = np.asarray(small, dtype=np.float32) + rng.normal(0, 3, size=(SIDE, SIDE, 1))
    return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8))


def _draw_clutter(draw: ImageDraw.ImageDraw, box: list[float], rng: np.random.Generator) -> None:
    x1, y1, x2, y2 = box
    for _ in range(int(rng.integers(4, 9))):
        grey = int(rng.integers(120, 190))
        start = (rng.uniform(x1, x2), rng.uniform(y1, y2))
        end = (rng.uniform(x1, x2), rng.uniform(y1, y2))
        draw.line([start, end], fill=(grey, grey, grey), width=int(rng.integers(1, 5)))


def _outline_points(shape: Shape) -> list[tuple[float, float]]:
    """Corners of the shape inside its circle of `radius`."""
    polar = {
        "circle": [(1.0, turn / 24) for turn in range(24)],
        "square": [(1.0, (turn + 0.5) / 4) for turn in range(4)],
        "triangle": [(1.0, turn / 3 - 0.25) for turn in range(3)],
        "cross": _CROSS,
    }[shape.kind]
    return [
        (
            shape.x + shape.radius * length * math.cos(2 * math.pi * turn + shape.angle),
            shape.y + shape.radius * length * math.sin(2 * math.pi * turn + shape.angle),
        )
        for length, turn in polar
    ]


def _cross() -> list[tuple[float, float]]:
    arm, corner = 0.3, 0.3
    points = []
    for quarter in range(4):
        for x, y in ((1.0, -arm), (1.0, arm), (corner, corner)):
            turn = math.atan2(y, x) / (2 * math.pi) + quarter / 4
            points.append((min(math.hypot(x, y), 1.0), turn))
    return points


_CROSS = _cross()


def _darker(rgb: tuple[int, int, int]) -> tuple[int, int, int]:
    red, green, blue = (int(value * 0.75) for value in rgb)
    return red, green, blue
