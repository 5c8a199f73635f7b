"""Public data sets, fetched by pooch: checked against known sums, unpacked to what the recipes read.

Where no sum has been published, the one that was seen is kept in `SHA256SUMS` beside the files and holds from then
on; the caller is told so. What cannot be fetched is explained.
"""

import logging
import re
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path, PurePosixPath
from typing import IO

from latentalign.errors import UserError, hint_at
from latentalign.files import open_atomic, sha256_of, write_atomic

SUMS = "SHA256SUMS"


@dataclass(frozen=True)
class RemoteFile:
    """A file on the web and what its contents must be."""

    url: str
    sha256: str | None = None

    @property
    def name(self) -> str:
        return PurePosixPath(self.url).name


@dataclass(frozen=True)
class DataSet:
    """A public set: files to fetch, what to make of them, and what has to be done by hand."""

    title: str
    files: tuple[RemoteFile, ...]
    unpack: Callable[[Path, Path], list[Path]] | None = None  # (archive, folder) -> the files it gave
    by_hand: str = ""


@dataclass
class Fetched:
    """What is there now."""

    paths: list[Path] = field(default_factory=list)
    unverified: list[str] = field(default_factory=list)  # no published sum: the one seen was recorded
    by_hand: str = ""


def fetch(name: str, folder: Path, *, mirror: str | None = None) -> Fetched:
    """Fetch a set into a folder; files that are there and whole are not fetched again."""
    dataset = find_dataset(name)
    recorded = _read_sums(folder)
    result = Fetched(by_hand=dataset.by_hand)
    for remote in dataset.files:
        known = remote.sha256 or recorded.get(remote.name)
        if known is None:
            result.unverified.append(remote.name)
        url = remote.url if mirror is None else f"{mirror.rstrip('/')}/{remote.name}"
        if known is not None:
            _refuse_foreign(folder / remote.name, known, recorded)
        path = _retrieve(url, folder / remote.name, known)
        recorded[remote.name] = known or sha256_of(path)
        _write_sums(folder, recorded)
        result.paths += [path] if dataset.unpack is None else _unpack(dataset.unpack, path, recorded)
    return result


def _refuse_foreign(path: Path, sha256: str, recorded: dict[str, str]) -> None:
    """Refuse to overwrite a file that no download put there, unless it is the same."""
    if path.exists() and path.name not in recorded and sha256_of(path) != sha256:
        raise UserError(
            f"{path}: a file of that name is there already, and is not of this set; "
            "move it away, or choose another folder with --to"
        )


def find_dataset(name: str) -> DataSet:
    """A set by its name."""
    if name not in DATASETS:
        hint = hint_at(name, DATASETS)
        raise UserError(f"download: expected the name of a data set, received {name!r}; {hint}")
    return DATASETS[name]


def _retrieve(url: str, path: Path, sha256: str | None) -> Path:
    import pooch
    import requests

    pooch.get_logger().setLevel(logging.WARNING)
    downloader = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=60)
    try:
        known = f"sha256:{sha256}" if sha256 else None
        return Path(pooch.retrieve(url, known, fname=path.name, path=path.parent, downloader=downloader))
    except requests.exceptions.HTTPError as error:
        answer = str(error).partition(" for url")[0]  # 404 Client Error: Not Found
        raise UserError(
            f"{url}: the server answered {answer}; fetch {path.name} from "
            f"elsewhere into {path.parent}, or give --mirror"
        ) from None
    except (requests.exceptions.RequestException, OSError) as error:
        raise UserError(
            f"{url}: not reached ({type(error).__name__}); check the network, or fetch {path.name} by hand into "
            f"{path.parent} and run the command again"
        ) from None
    except ValueError as error:
        found = re.search(r"but got ([0-9a-f]{64})", str(error))
        seen = f", received {found.group(1)}" if found else ""
        raise UserError(
            f"{url}: expected contents with SHA-256 {sha256}{seen}; nothing was kept: the file on the server has "
            "changed or the transfer was damaged"
        ) from None


def _unpack(
    unpack: Callable[[Path, Path], list[Path]], archive: Path, recorded: dict[str, str]
) -> list[Path]:
    """Unpack beside the archive: all of its files or none, and none over a file that was not downloaded here."""
    folder = archive.parent
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=folder) as scratch:
        unpacked = {path: sha256_of(path) for path in _try_unpacking(unpack, archive, Path(scratch))}
        for path, total in unpacked.items():
            _refuse_foreign(folder / path.name, total, recorded)
        recorded |= {path.name: total for path, total in unpacked.items()}
        _write_sums(folder, recorded)
        return [path.rename(folder / path.name) for path in unpacked]


def _try_unpacking(unpack: Callable[[Path, Path], list[Path]], archive: Path, folder: Path) -> list[Path]:
    try:
        return unpack(archive, folder)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as error:
        raise UserError(f"{archive}: damaged archive ({error}); remove it and download again") from None
    except KeyError as error:
        raise UserError(
            f"{archive}: no file {error} inside; expected the set as its authors packed it"
        ) from None


def _read_sums(folder: Path) -> dict[str, str]:
    path = folder / SUMS
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {name: total for total, _, name in (line.partition("  ") for line in lines)}


def _write_sums(folder: Path, sums: dict[str, str]) -> None:
    # the format of `sha256sum --check`
    write_atomic(folder / SUMS, "".join(f"{total}  {name}\n" for name, total in sorted(sums.items())))


# --- unpacking ---


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """The files of a tar or zip archive, each open while it is its turn."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            for name in opened.namelist():
                if not name.endswith("/"):
                    with opened.open(name) as stream:
                        yield name, stream
        return
    with tarfile.open(archive) as packed:
        for member in packed:
            file = packed.extractfile(member) if member.isfile() else None
            if file is not None:
                with file:
                    yield member.name, file


def _extract(archive: Path, folder: Path, wanted: Callable[[str], bool]) -> list[Path]:
    """Write the wanted members straight into the folder, whatever folders the archive has."""
    paths = []
    for name, stream in _members(archive):
        if wanted(name):
            path = folder / PurePosixPath(name).name
            with open_atomic(path, "wb") as copy:
                shutil.copyfileobj(stream, copy)
            paths.append(path)
    return sorted(paths)


def _unpack_babi(archive: Path, folder: Path) -> list[Path]:
    """The English stories with 1,000 questions a task: `en/qa*_train.txt` and `en/qa*_test.txt`."""
    return _extract(archive, folder, lambda name: "/en/" in name and name.endswith(".txt"))


def _unpack_vqa(archive: Path, folder: Path) -> list[Path]:
    return _extract(archive, folder, lambda name: name.endswith(".json"))


def _unpack_wmt(archive: Path, folder: Path) -> list[Path]:
    """German–English text, and the news test sets of 2016 and 2017 as plain lines."""
    paths = _extract(archive, folder, lambda name: name.endswith((".de-en.de", ".de-en.en")))
    for name, stream in _members(archive):
        found = re.search(r"newstest(201[67])-ende-(?:src|ref)\.(en|de)\.sgm$", name)
        if found:
            path = folder / f"newstest{found.group(1)}.{found.group(2)}"
            write_atomic(path, _segments(stream.read().decode("utf-8")))
            paths.append(path)
    return sorted(paths)


def _unpack_iwslt(archive: Path, folder: Path) -> list[Path]:
    """Train, valid (every 23rd pair of the training text) and test (five TED sets) as raw text."""
    texts = {
        PurePosixPath(name).name: stream.read().decode("utf-8")
        for name, stream in _members(archive)
        if "de-en." in name
    }
    paths = []
    for side in ("de", "en"):
        lines = _without_tags(texts[f"train.tags.de-en.{side}"])
        test = ["TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012"]
        splits = {
            "train": "".join(line for number, line in enumerate(lines, start=1) if number % 23),
            "valid": "".join(line for number, line in enumerate(lines, start=1) if number % 23 == 0),
            "test": "".join(_segments(texts[f"IWSLT14.{name}.de-en.{side}.xml"]) for name in test),
        }
        for split, text in splits.items():
            write_atomic(folder / f"{split}.{side}", text)
            paths.append(folder / f"{split}.{side}")
    return sorted(paths)


def _without_tags(text: str) -> list[str]:
    kept = [
        line
        for line in text.split("\n")[:-1]
        if not re.match(r"\s*</?(url|keywords|talkid|speaker|reviewer|translator)", line)
    ]
    return [re.sub(r"</?(title|description)>", "", line).strip() + "\n" for line in kept]


def _segments(markup: str) -> str:
    """The text of every <seg> of an SGML or XML test set, a line each."""
    segments = re.findall(r"<seg[^>]*>(.*?)</seg>", markup, flags=re.DOTALL)
    return "".join(" ".join(unescape(segment).split()) + "\n" for segment in segments)


# --- the sets ---

_MULTI30K = "https://github.com/multi30k/dataset/raw/master/data/task1/raw"
_G2P = "https://raw.githubusercontent.com/sigmorphon/2021-task1/main/data"
G2P_LANGUAGES = {
    "high": ("eng_us",),
    "medium": (
        "arm_e", "bul", "dut", "fre", "geo", "hbs_latn", "hun", "jpn_hira", "kor", "vie_hanoi",
    ),
    "low": ("ady", "gre", "ice", "ita", "khm", "lav", "mlt_latn", "rum", "slv", "wel_sw"),
}  # fmt: skip
_VQA = "https://s3.amazonaws.com/cvmlp/vqa/mscoco/vqa"

DATASETS: dict[str, DataSet] = {
    "multi30k": DataSet(
        "Multi30k, German–English image captions (task 1, raw text)",
        tuple(
            RemoteFile(f"{_MULTI30K}/{name}.gz", sha256)
            for name, sha256 in {
                "train.de": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
                "train.en": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
                "val.de": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
                "val.en": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
                "test_2016_flickr.de": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
                "test_2016_flickr.en": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
            }.items()
        ),
    ),
    "iwslt14": DataSet(
        "IWSLT 2014, German–English TED talks",
        (RemoteFile("https://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz"),),
        _unpack_iwslt,
        by_hand="The text is raw. The paper's is tokenised and lower-cased by the Moses scripts, which are not part of "
        "this package: for its exact setting run them over the files here, or use the authors' own preparation, and "
        "put train, valid and test (.de and .en) into this folder.",
    ),
    "wmt17": DataSet(
        "WMT 2017, English–German: Europarl, Common Crawl, News Commentary, news test sets",
        tuple(
            RemoteFile(f"https://huggingface.co/datasets/wmt/{place}.zip", sha256)
            for place, sha256 in {
                "wmt13/resolve/main-zip/training-parallel-europarl-v7": (
                    "5b2d8b32c2396da739b4e731871c597fcc6e75729becd74619d0712eecf7770e"
                ),
                "wmt13/resolve/main-zip/training-parallel-commoncrawl": (
                    "5ffe980072ea29adfd84568d099bea366d9f72772b988e670794ae851b4e5627"
                ),
                "wmt17/resolve/main-zip/translation-task/training-parallel-nc-v12": (
                    "a3e922fd19485a25870e628fdecb81b7d621f545e16df21a38fae15127413122"
                ),
                "wmt19/resolve/main-zip/translation-task/dev": (
                    "d796e363740fdc4261aa6f5a3d2f8223e3adaee7d737b7724863325b8956dfd1"
                ),
            }.items()
        ),
        _unpack_wmt,
    ),
    "babi": DataSet(
        "bAbI v1.2, question answering over short stories (English, 1,000 questions a task)",
        (
            RemoteFile(
                "http://www.thespermwhale.com/jaseweston/babi/tasks_1-20_v1-2.tar.gz",
                "0364ebde659f14d11bc21744516c5ec49d3d06cb692733f66680771244998898",
            ),
        ),
        _unpack_babi,
    ),
    "g2p": DataSet(
        "SIGMORPHON 2021 task 1, spelling to pronunciation in 21 languages (from Wiktionary by WikiPron)",
        tuple(
            RemoteFile(f"{_G2P}/{size}/{language}_{split}.tsv")
            for size, languages in G2P_LANGUAGES.items()
            for language in languages
            for split in ("train", "dev", "test")
        ),
    ),
    "vqa2": DataSet(
        "VQA 2.0, questions and answers about COCO images",
        tuple(
            RemoteFile(f"{_VQA}/v2_{what}_{split}_mscoco.zip")
            for what in ("Questions", "Annotations")
            for split in ("Train", "Val")
        ),
        _unpack_vqa,
        by_hand="Image features have to be fetched by hand: the bottom-up attention features of Anderson et al. 2018 "
        "(36 regions an image, about 25 GB; see https://github.com/peteanderson80/bottom-up-attention), to be "
        "converted once with `latentalign prepare`.",
    ),
}
