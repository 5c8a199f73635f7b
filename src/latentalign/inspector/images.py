"""The images that a VQA run can be asked about: found once at the start, known to clients by number only."""

import logging
import re
from dataclasses import dataclass
from pathlib import Path

from latentalign.errors import UserError
from latentalign.training.trained_run import Run
from latentalign.vqa.dataset import resolve
from latentalign.vqa.features import RegionFeatures

LOG = logging.getLogger("latentalign.inspector")
KINDS = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg"}
SHOWN = 300  # numbers listed on the page
_NUMBER = re.compile(r"(\d+)$")


@dataclass(frozen=True)
class ServedImages:
    """Region features by the number of their image, and the pictures that there are."""

    features: Path
    numbers: frozenset[int]
    pictures: dict[int, Path]

    @property
    def shown(self) -> list[int]:
        """Some numbers, those with a picture first; the last ones, which are rarely in the training set."""
        with_picture = sorted(self.numbers & set(self.pictures))
        return (with_picture or sorted(self.numbers))[-SHOWN:]

    def picture(self, number: int) -> tuple[bytes, str] | None:
        """A picture and its type."""
        path = self.pictures.get(number)
        try:
            return None if path is None else (path.read_bytes(), KINDS[path.suffix.lower()])
        except OSError:  # gone since the start
            return None


def find_images(run: Run, features: Path | None, images: Path | None) -> ServedImages | None:
    """The images of a VQA run; None where its features are not on this machine."""
    data = run.assets.data
    place = features or resolve(data.folder, data.features)
    if features is None and not place.is_dir():
        LOG.warning("%s: its region features are not here; give them with --features", run.folder)
        return None
    found = RegionFeatures(place)
    if found.dim != run.assets.feature_dim:
        raise UserError(
            f"{place}: features of size {found.dim}; the run {run.folder} was trained on size "
            f"{run.assets.feature_dim}"
        )
    return ServedImages(
        place, frozenset(found.image_ids), find_pictures(images or Path(data.folder) / "images")
    )


def find_pictures(folder: Path) -> dict[int, Path]:
    """Number -> file, for pictures whose names end in their numbers (COCO_val2014_000000000042.jpg)."""
    if not folder.is_dir():
        return {}
    found = {}
    for path in sorted(folder.iterdir()):
        number = _NUMBER.search(path.stem)
        if number and path.suffix.lower() in KINDS and len(number[1]) <= 15:
            found[int(number[1])] = path
    return found
