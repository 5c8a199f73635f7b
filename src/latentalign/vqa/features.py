"""Region features of images: the official TSV in, memory-mapped arrays out.

A line of the TSV is `image_id, image_w, image_h, num_boxes, boxes, features` with the last two in base64
of float32. `convert_features` reads such files once, a line at a time, and writes a folder:
`features.bin` (all regions of all images, one after another), `boxes.npy`, `images.npy` (id, width,
height), `offsets.npy` and `meta.json`. `RegionFeatures` opens it without reading the features.
"""

import base64
import binascii
import json
import mmap
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from latentalign.errors import UserError
from latentalign.files import digest, digest_of, read_json, read_lines, require_file, write_atomic

_FIELDS = 6
_EDGE = 1.0  # pixels a detector's box may reach over the edge: its boxes were scaled and rounded
_RELEASE_AFTER = 64 * 2**20  # bytes read before mapped pages are given back
_FORMAT = "latentalign-regions-1"
MARKER = "meta.json"
_SUM = "checksum"  # of what is beside it; folders of earlier versions have none
_FILES = {MARKER, "features.bin", "boxes.npy", "images.npy", "offsets.npy"}
_SAMPLED_BLOCK, _SAMPLED_BLOCKS = 2**16, 4096  # bytes, and how many: of 256 MB and less, everything


@dataclass(frozen=True)
class ImageRegions:
    """The regions of one image; boxes are x1, y1, x2, y2 in pixels."""

    image_id: int
    width: int
    height: int
    boxes: np.ndarray  # [S,4] float32
    features: np.ndarray  # [S,D] float32


def read_tsv(path: str | Path, *, dim: int | None = None) -> Iterator[ImageRegions]:
    """Read the regions line by line; every row must have features of the size of the first (or `dim`)."""
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file; expected region features as TSV (see docs/vqa.md)")
    for number, line in enumerate(read_lines(path), start=1):
        if not line:
            continue
        regions = _parse_line(line, place=f"{path}, line {number}", dim=dim)
        dim = regions.features.shape[1]
        yield regions


def _parse_line(line: str, *, place: str, dim: int | None) -> ImageRegions:
    fields = line.split("\t")
    if len(fields) != _FIELDS:
        raise UserError(
            f"{place}: expected {_FIELDS} tab-separated fields (image_id, image_w, image_h, num_boxes, "
            f"boxes, features), received {len(fields)}; the file looks truncated, fetch it again"
        )
    try:
        image_id, width, height, count = (int(float(field)) for field in fields[:4])
    except ValueError:
        raise UserError(
            f"{place}: expected whole numbers for image_id, image_w, image_h and num_boxes, received "
            f"{[field[:12] for field in fields[:4]]}"
        ) from None
    if count < 1:
        raise UserError(f"{place}: expected at least one box for image {image_id}, received {count}")
    boxes = _decode(fields[4], name="boxes", count=count, dim=4, place=place)
    features = _decode(fields[5], name="features", count=count, dim=dim, place=place)
    _check_boxes(boxes, width, height, place=f"{place} (image {image_id})")
    if not np.isfinite(features).all():
        raise UserError(f"{place}: features of image {image_id} hold values that are not numbers")
    return ImageRegions(image_id, width, height, boxes, features)


def _decode(text: str, *, name: str, count: int, dim: int | None, place: str) -> np.ndarray:
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise UserError(
            f"{place}: {name} are not whole base64; the line looks truncated, fetch the file again"
        ) from None
    size = 4 * count  # bytes of one float32 column
    wanted = f"{count} x {dim}" if dim is not None else f"a multiple of {count}"
    if not raw or len(raw) % size or (dim is not None and len(raw) != size * dim):
        received = f"{count} x {len(raw) // size}" if raw and not len(raw) % size else f"{len(raw)} bytes"
        raise UserError(
            f"{place}: wrong size of {name}: expected {wanted} float32 values, received {received}; the line "
            "is truncated or the files mix features of different models"
        )
    return np.frombuffer(raw, dtype="<f4").reshape(count, -1)


def _check_boxes(boxes: np.ndarray, width: int, height: int, *, place: str) -> None:
    low, high = boxes[:, :2], boxes[:, 2:]
    inside = (
        (low >= -_EDGE).all(1) & (high <= np.array([width, height]) + _EDGE).all(1) & (low <= high).all(1)
    )
    if not inside.all():
        worst = int(np.flatnonzero(~inside)[0])
        raise UserError(
            f"{place}: box {worst} is {[round(float(v), 1) for v in boxes[worst]]}, outside the image of "
            f"{width} x {height}; expected x1, y1, x2, y2 in pixels (are width and height exchanged?)"
        )


def convert_features(
    sources: Sequence[str | Path],
    folder: str | Path,
    *,
    dtype: str = "float32",
    dim: int | None = None,
    log: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Write the regions of TSV files as memory-mapped arrays; memory does not grow with the files.

    The first of several lines for one image is kept. The folder appears when it is complete.
    """
    folder = Path(folder)
    if folder.exists() and not _holds_features_only(folder):
        raise UserError(f"{folder}: exists and holds something else; expected a new folder for the features")
    partial = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        meta = _write_arrays(sources, partial, dtype=np.dtype(dtype), dim=dim, log=log)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(partial, folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return meta


def _holds_features_only(folder: Path) -> bool:
    """Whether nothing would be lost if new features took the folder's place."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else {""}
    if not names:
        return True
    try:
        meta = read_json(folder / MARKER)
    except UserError:
        return False
    return names <= _FILES and isinstance(meta, dict) and meta.get("format") == _FORMAT


def _write_arrays(
    sources: Sequence[str | Path],
    folder: Path,
    *,
    dtype: np.dtype,
    dim: int | None,
    log: Callable[[str], None],
) -> dict[str, Any]:
    images: dict[int, tuple[int, int]] = {}
    boxes: list[np.ndarray] = []
    repeated = 0
    with (folder / "features.bin").open("wb") as stream:
        for source in sources:
            for regions in read_tsv(source, dim=dim):
                dim = regions.features.shape[1]
                if regions.image_id in images:
                    repeated += 1
                    continue
                images[regions.image_id] = (regions.width, regions.height)
                boxes.append(regions.boxes)
                stream.write(regions.features.astype(dtype).tobytes())
                if len(images) % 1000 == 0:
                    log(f"{source}: {len(images)} images so far")
        stream.flush()
        os.fsync(stream.fileno())
    if not images:
        raise UserError(f"{', '.join(map(str, sources))}: no image in it; expected lines of region features")
    offsets = np.cumsum([0] + [len(some) for some in boxes])
    np.save(folder / "boxes.npy", np.concatenate(boxes))
    np.save(folder / "images.npy", np.array([(key, *size) for key, size in images.items()], dtype=np.int64))
    np.save(folder / "offsets.npy", offsets.astype(np.int64))
    meta = {
        "format": _FORMAT,
        "dtype": dtype.name,
        "dim": dim,
        "images": len(images),
        "regions": int(offsets[-1]),
        "repeated": repeated,
    }
    write_atomic(folder / MARKER, json.dumps(meta, indent=1))
    sum_of_all = RegionFeatures(folder)._checksum()
    write_atomic(folder / MARKER, json.dumps({**meta, _SUM: sum_of_all}, indent=1))
    log(f"{meta['images']} images, {meta['regions']} regions of {dim} numbers; {repeated} repeated lines")
    return meta


class RegionFeatures:
    """Features by image id, read from disk when asked for.

    Pages that were read are given back from time to time, so that the memory of a training run does not grow
    with the features; the system keeps them in its cache while there is room.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if not (self.folder / MARKER).is_file():
            raise UserError(
                f"{self.folder}: no prepared features here; make them once with "
                f"`latentalign prepare RECIPE --to {self.folder}`"
            )
        meta = read_json(self.folder / MARKER, "features that `latentalign prepare` wrote")
        if not isinstance(meta, dict) or meta.get("format") != _FORMAT:
            raise UserError(
                f"{self.folder}: expected features of format {_FORMAT}; run `latentalign prepare` again"
            )
        try:
            self._open(meta)
        except (ValueError, KeyError, TypeError, IndexError, EOFError):
            raise UserError(
                f"{self.folder}: damaged, its files do not fit together; run `latentalign prepare` again"
            ) from None
        if meta.get(_SUM, self._checksum()) != self._checksum():
            raise UserError(f"{self.folder}: damaged (its checksum differs); run `latentalign prepare` again")

    def _open(self, meta: dict[str, Any]) -> None:
        for name in _FILES:
            require_file(self.folder / name, "a file that `latentalign prepare` wrote")
        self.dim: int = meta["dim"]
        self._boxes = np.load(self.folder / "boxes.npy", mmap_mode="r")
        self._offsets = np.load(self.folder / "offsets.npy")
        self._images = np.load(self.folder / "images.npy")
        self._rows = {int(image_id): row for row, image_id in enumerate(self._images[:, 0])}
        dtype, regions = np.dtype(meta["dtype"]), int(meta["regions"])
        path = self.folder / "features.bin"
        expected = regions * self.dim * dtype.itemsize
        if path.stat().st_size != expected:
            raise UserError(
                f"{path}: expected {expected} bytes, found {path.stat().st_size}; prepare it again"
            )
        with path.open("rb") as stream:
            self._map = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        self._features = np.frombuffer(self._map, dtype=dtype).reshape(-1, self.dim)
        self._read = 0

    def _checksum(self) -> str:
        return digest(self.fingerprint(), np.ascontiguousarray(self._boxes))

    def __reduce__(self) -> tuple[Any, ...]:
        return (RegionFeatures, (self.folder,))  # another process maps the file itself

    def fingerprint(self) -> str:
        """A checksum of the images and of their features; of large files, of blocks spread over all of them."""
        size = len(self._map)
        step = max(_SAMPLED_BLOCK, size // _SAMPLED_BLOCKS)
        blocks = (self._map[start : start + _SAMPLED_BLOCK] for start in range(0, size, step))
        return digest_of(chain([str(size), self._offsets, self._images], blocks))

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, image_id: int) -> bool:
        return image_id in self._rows

    @property
    def image_ids(self) -> list[int]:
        return list(self._rows)

    def __getitem__(self, image_id: int) -> ImageRegions:
        if image_id not in self._rows:
            raise UserError(
                f"{self.folder}: no features of image {image_id} among {len(self)} images; prepare the "
                "features of every image that is asked about"
            )
        row = self._rows[image_id]
        start, stop = self._offsets[row : row + 2]
        features = self._features[start:stop].astype(np.float32)  # a copy: the pages may go
        self._release(features.nbytes)
        _, width, height = (int(value) for value in self._images[row])
        return ImageRegions(image_id, width, height, np.array(self._boxes[start:stop]), features)

    def gather(self, image_ids: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Features of several images padded with zeros, [B,S,D], and which regions are real, [B,S] bool."""
        rows = np.array([self._rows[image_id] for image_id in image_ids])
        starts, counts = self._offsets[rows], self._offsets[rows + 1] - self._offsets[rows]
        places = np.arange(counts.max())
        mask = places < counts[:, None]  # [B,S]
        index = starts[:, None] + np.minimum(places, counts[:, None] - 1)
        features = self._features[index].astype(np.float32, copy=False)
        features[~mask] = 0
        self._release(features.nbytes)
        return features, mask

    def _release(self, read: int) -> None:
        self._read += read
        if self._read > _RELEASE_AFTER:
            self._map.madvise(mmap.MADV_DONTNEED)
            self._read = 0


def encode_line(regions: ImageRegions) -> str:
    """A line of the TSV, as the detector's own script writes it."""
    values = [regions.boxes, regions.features]
    encoded = [base64.b64encode(np.ascontiguousarray(v, dtype="<f4").tobytes()).decode() for v in values]
    head = [regions.image_id, regions.width, regions.height, len(regions.boxes)]
    return "\t".join([*map(str, head), *encoded])
