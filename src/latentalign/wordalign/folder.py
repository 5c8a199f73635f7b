"""An aligner on disk: a folder with its settings, vocabularies, counts and log, and checksums of all of them."""

import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from latentalign.errors import UserError
from latentalign.files import discard, require_file, write_atomic
from latentalign.wordalign.calibration import Calibration, CalibrationCurve
from latentalign.wordalign.estimation.counts import Counts, JumpCounts, SparseCounts
from latentalign.wordalign.settings import Settings
from latentalign.wordalign.text.vocabulary import WordVocabulary

if TYPE_CHECKING:
    from latentalign.wordalign.aligner import Aligner

CONFIG, ARRAYS, LOG = "config.yaml", "model.safetensors", "log.txt"
WORDS = ("source.txt", "target.txt")
KIND, FORMAT = "aligner", 1


def is_aligner(folder: Path) -> bool:
    """Whether a folder says that it is an aligner."""
    try:
        return f"kind: {KIND}\n" in _read_text(folder / CONFIG)
    except (OSError, UserError, UnicodeDecodeError):
        return False


def check_free(folder: Path) -> None:
    """Refuse a folder that has something in it, unless it is an aligner, which may be replaced."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    try:
        _read_config(folder)
    except UserError:
        raise UserError(f"{folder}: is there already and is not an aligner; choose another name") from None


def save(aligner: "Aligner", folder: Path) -> None:
    """Write the folder under another name first; an aligner that is there already is replaced.

    Files in it that are not the aligner's are kept.
    """
    folder = Path(os.path.realpath(folder))  # a link stays one
    check_free(folder)
    files = {
        ARRAYS: save_arrays(_arrays(aligner.counts, aligner.vocabularies)),
        LOG: _log(aligner).encode(),
        **{
            name: "".join(f"{word}\n" for word in vocabulary.words).encode()
            for name, vocabulary in zip(WORDS, aligner.vocabularies, strict=True)
        },
    }
    config = {
        "kind": KIND,
        "format": FORMAT,
        "pairs": aligner.counts.pairs,
        "words": aligner.counts.words,
        "log_likelihood": aligner.counts.log_likelihood,
        "settings": aligner.settings.model_dump(mode="json"),
        "calibration": _plain(aligner.calibration),
        "history": aligner.history,
        "checksums": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
    }
    files[CONFIG] = yaml.safe_dump(config, sort_keys=False).encode()
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name[:100]}."))
    try:
        for name, data in files.items():
            write_atomic(new / name, data)
        new.chmod(0o755)
        _replace(new, folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _replace(new: Path, folder: Path) -> None:
    if not folder.exists() or not any(folder.iterdir()):
        os.replace(new, folder)
        return
    check_free(folder)  # it was an aligner before the learning, and has to be one still
    ours = {CONFIG, *_read_config(folder)["checksums"]}
    old = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name[:100]}."))
    os.replace(folder, old)
    try:
        os.replace(new, folder)
    except BaseException:
        if not folder.exists():
            os.replace(old, folder)
        raise
    discard(old, folder, lambda name: str(name) in ours, last=CONFIG)


def load(folder: Path) -> "Aligner":
    """Read a folder; one that is damaged is refused."""
    from latentalign.wordalign.aligner import Aligner

    config = _read_config(folder)
    data = {name: _read(folder, name, config["checksums"]) for name in (ARRAYS, *WORDS)}
    try:
        settings = Settings.model_validate(config["settings"])
        arrays = load_arrays(data[ARRAYS])
        words = [data[name].decode().split("\n")[:-1] for name in WORDS]
        source, target = (
            WordVocabulary(found, arrays[f"words.{side}"])
            for found, side in zip(words, ("source", "target"), strict=True)
        )
        calibration = config["calibration"]
        curves = (CalibrationCurve(**calibration["forward"]), CalibrationCurve(**calibration["backward"]))
        return Aligner(
            settings,
            (source, target),
            _counts(arrays, config),
            Calibration(*curves, float(calibration["threshold"])),
            [float(value) for value in config["history"]],
        )
    except (ValidationError, SafetensorError, KeyError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{folder}: not an aligner of this version ({reason}); learn it again") from None


def _read_config(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise UserError(f"{folder}: no such aligner; expected a folder that align --save has written")
    try:
        config = yaml.safe_load(_read_text(folder / CONFIG))
    except (OSError, UserError, ValueError, RecursionError, yaml.YAMLError):
        config = None
    if (
        not isinstance(config, dict)
        or config.get("kind") != KIND
        or not isinstance(config.get("checksums"), dict)
    ):
        raise UserError(f"{folder}: expected an aligner with a {CONFIG}, found none that can be read")
    if config.get("format") != FORMAT:
        raise UserError(
            f"{folder}: has format {config.get('format')}, this version reads {FORMAT}; learn it again"
        )
    return config


def _read_text(path: Path) -> str:
    return require_file(path).read_text(encoding="utf-8")


def _read(folder: Path, name: str, checksums: dict[str, str]) -> bytes:
    try:
        data = require_file(folder / name).read_bytes()
    except (OSError, UserError):
        raise UserError(f"{folder}: {name} is missing; copy the folder again or learn it again") from None
    if hashlib.sha256(data).hexdigest() != checksums.get(name):
        raise UserError(
            f"{folder}: {name} is damaged (its checksum differs); copy the folder again or learn it again"
        )
    return data


def _arrays(counts: Counts, vocabularies: tuple[WordVocabulary, WordVocabulary]) -> dict[str, np.ndarray]:
    arrays = {"words.source": vocabularies[0].counts, "words.target": vocabularies[1].counts}
    agreed = counts.links[0] is counts.links[1]
    for side, name in enumerate(("forward", "backward")):
        if side == 0 or not agreed:
            arrays[f"links.{name}.keys"] = counts.links[side].keys
            arrays[f"links.{name}.values"] = counts.links[side].values
        arrays[f"null.{name}"] = counts.null[side]
        arrays[f"jumps.{name}.taken"] = counts.jumps[side].taken
        arrays[f"jumps.{name}.exposure"] = counts.jumps[side].exposure
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}


def _counts(arrays: dict[str, np.ndarray], config: dict[str, Any]) -> Counts:
    forward = SparseCounts(arrays["links.forward.keys"], arrays["links.forward.values"])
    backward = forward
    if "links.backward.keys" in arrays:
        backward = SparseCounts(arrays["links.backward.keys"], arrays["links.backward.values"])
    one, other = (
        JumpCounts(arrays[f"jumps.{name}.taken"], arrays[f"jumps.{name}.exposure"])
        for name in ("forward", "backward")
    )
    return Counts(
        (forward, backward),
        (arrays["null.forward"], arrays["null.backward"]),
        (one, other),
        int(config["pairs"]),
        int(config["words"]),
        float(config["log_likelihood"]),
    )


def _plain(calibration: Calibration) -> dict[str, Any]:
    curves = {"forward": calibration.forward, "backward": calibration.backward}
    return {
        **{name: {"shift": curve.shift, "slope": curve.slope} for name, curve in curves.items()},
        "threshold": calibration.threshold,
    }


def _log(aligner: "Aligner") -> str:
    source, target = aligner.vocabularies
    lines = [
        f"{aligner.counts.pairs} pairs, {len(source)} source and {len(target)} target words",
        *(
            f"round {number}: {value:.4f} nats a word"
            for number, value in enumerate(aligner.history, start=1)
        ),
        f"{len(aligner.counts.links[0])} pairs of words with counts, threshold {aligner.calibration.threshold:.3f}",
    ]
    return "".join(f"{line}\n" for line in lines)
