"""Text in, plain or gzipped; results out, whole or not at all."""

import errno
import gzip
import hashlib
import json
import math
import os
import select
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from latentalign.errors import UserError

SENTENCES = "a text file with one sentence a line"
_MARK = "\ufeff"  # the byte order mark that some editors put before a text; it is no part of the first word
_OTHER_MARKS = (
    (b"\xff\xfe\0\0", "UTF-32"),
    (b"\0\0\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)
_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISDIR, "is a folder"),
    (stat.S_ISFIFO, "is a pipe"),
    (stat.S_ISSOCK, "is a socket"),
    (stat.S_ISCHR, "is a device"),
    (stat.S_ISBLK, "is a device"),
)


def require_file(path: str | Path, expected: str = "a file") -> Path:
    """The path of a regular file; anything else is refused by what it is."""
    path = Path(path)
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        if path.is_symlink():
            raise UserError(
                f"{path}: a link to {os.readlink(path)}, which does not exist; expected {expected}"
            ) from None
        raise UserError(f"{path}: no such file; expected {expected}") from None
    for is_kind, kind in _KINDS:
        if is_kind(mode):
            raise UserError(f"{path}: {kind}; expected {expected}")
    return path


def require_folder(path: str | Path, expected: str = "a folder") -> Path:
    """The path of a folder; anything else is refused by what it is."""
    path = Path(path)
    if path.is_dir():
        return path
    if path.is_symlink() and not path.exists():
        raise UserError(f"{path}: a link to {os.readlink(path)}, which does not exist; expected {expected}")
    raise UserError(f"{path}: {'is a file' if path.exists() else 'no such folder'}; expected {expected}")


def require_free(folder: str | Path, *, marker: str, overwrite: bool, option: str) -> None:
    """Refuse to write into a folder that holds something, unless a marker says that it may be written again."""
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{option} {folder}: is a file; expected a folder")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not overwrite:
        raise UserError(f"{option} {folder}: exists already; choose another, or give --overwrite")
    if not (folder / marker).is_file():
        raise UserError(
            f"--overwrite: {folder} was not written by this command (it has no {marker}); it is left as it is: "
            "choose another folder"
        )


def require_distinct(
    outputs: Mapping[str, str | Path | None], inputs: Mapping[str, str | Path | None]
) -> None:
    """Refuse to write two results into one file, or a result over what is read; keys are option names."""
    seen: list[tuple[str, Path]] = [(name, Path(path)) for name, path in inputs.items() if path is not None]
    for name, given in outputs.items():
        if given is None:
            continue
        path = Path(given)
        for other, known in seen:
            if _is_same_file(path, known):
                raise UserError(
                    f"{name} {path} and {other} {known}: the same file; expected a file of its own for each"
                )
        seen.append((name, path))


def _is_same_file(first: Path, second: Path) -> bool:
    if os.path.realpath(first) == os.path.realpath(second):
        # a device such as /dev/null takes everything
        return not (first.exists() and not first.is_file() and not first.is_dir())
    try:
        return first.is_file() and os.path.samefile(first, second)
    except OSError:
        return False


# --- reading -----------------------------------------------------------------------------


def read_lines(path: str | Path) -> Iterator[str]:
    """Yield the lines of a plain or gzipped UTF-8 file without their ends.

    Only ``\\n`` ends a line (a sentence may hold other separators of Unicode), so that two
    parallel files stay parallel. A byte order mark at the start is left out.
    """
    path = require_file(path, SENTENCES)
    with _open_bytes(path) as stream:
        try:
            for number, line in enumerate(stream, start=1):
                yield decode_line(line, number, str(path))
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise UserError(f"{path}: damaged gzip file ({error}); fetch or compress it again") from None


def decode_line(line: bytes, number: int, place: str) -> str:
    """A line of UTF-8 text without its end; what is no such text is named by file, line and column."""
    try:
        text = line.decode("utf-8").rstrip("\n").rstrip("\r")
    except UnicodeDecodeError as error:
        if number == 1:
            refuse_other_encodings(line, place)
        raise UserError(
            f"{place}, line {number}: expected UTF-8 text, found byte 0x{line[error.start]:02x} "
            f"at column {error.start + 1}; convert it, for example with iconv -t utf-8"
        ) from None
    return text.lstrip(_MARK) if number == 1 else text


def refuse_other_encodings(content: bytes, place: str) -> None:
    """Name UTF-16 and UTF-32 by the byte order mark that a text in them begins with."""
    for mark, name in _OTHER_MARKS:
        if content.startswith(mark):
            raise UserError(
                f"{place}: expected UTF-8 text, found {name} (by its byte order mark); "
                f"convert it, for example with iconv -f {name} -t UTF-8"
            )


def read_arriving(descriptor: int, most: int, place: str = "standard input") -> Iterator[list[str]]:
    """Yield the lines of a pipe or terminal in groups: whatever has arrived, at most `most` lines a group.

    A line is handed out at once when its writer waits for an answer, and many together when they come fast.
    """
    buffer, number = bytearray(), 0
    waiting: list[str] = []
    while True:
        # wait only when there is nothing to hand out
        if waiting and (len(waiting) >= most or not _is_readable(descriptor)):
            yield waiting[:most]
            waiting = waiting[most:]
            continue
        chunk = os.read(descriptor, 1 << 16)
        buffer += chunk
        ended = bool(buffer) and not chunk
        if b"\n" in chunk or ended:
            *lines, rest = bytes(buffer).split(b"\n")
            buffer = bytearray(rest)
            for line in [*lines, rest] if ended and rest else lines:
                number += 1
                waiting.append(decode_line(line, number, place))
        if not chunk:
            yield from (waiting[start : start + most] for start in range(0, len(waiting), most))
            return


def _is_readable(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])


def read_json(path: str | Path, expected: str = "a JSON file") -> Any:
    """The value of a JSON file; what is no file, or no JSON, is refused by its name."""
    try:
        return json.loads(require_file(path, expected).read_bytes())
    except (ValueError, RecursionError):
        raise UserError(f"{path}: damaged; expected {expected}") from None


def _open_bytes(path: Path) -> BinaryIO:
    with path.open("rb") as probe:
        zipped = probe.read(2) == b"\x1f\x8b"
    return cast(BinaryIO, gzip.open(path, "rb")) if zipped else path.open("rb")


def sha256_of(path: str | Path) -> str:
    """The checksum of a file's content."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def digest(*parts: Any) -> str:
    """The checksum of texts, bytes and arrays one after another; their lengths count, too."""
    return digest_of(parts)


def digest_of(parts: Iterable[Any]) -> str:
    """The same of parts that are held one at a time."""
    total = hashlib.sha256()
    for part in parts:
        content = memoryview(part.encode("utf-8") if isinstance(part, str) else part).cast("B")
        total.update(f"{content.nbytes}:".encode())
        total.update(content)
    return total.hexdigest()


# --- writing -----------------------------------------------------------------------------


@contextmanager
def open_atomic(path: str | Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary file beside `path` that takes its name once it is written and on disk.

    A link is followed. A device or a pipe cannot be replaced by a file: it is written as it is.
    """
    target = Path(os.path.realpath(path))
    encoding = None if "b" in mode else "utf-8"
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if target.exists() and not target.is_file():
        with _named(path), os.fdopen(_open_special(target), mode, encoding=encoding) as stream:
            yield stream
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with _named(path):
        permissions = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o666 & ~_umask()
        # the letters of a long name would leave no room for the rest
        descriptor, temporary = tempfile.mkstemp(
            dir=target.parent, prefix=f".{target.name[:40]}.", suffix=".part"
        )
        try:
            with os.fdopen(descriptor, mode, encoding=encoding) as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            os.chmod(temporary, permissions)
            os.replace(temporary, target)
            _sync_folder(target.parent)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


def _open_special(path: Path) -> int:
    """A descriptor of a device or pipe; a pipe that nobody reads is refused rather than waited for."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise UserError(f"{path}: nobody reads from it; expected a file to write") from None
        raise
    os.set_blocking(descriptor, True)
    return descriptor


def write_atomic(path: str | Path, data: bytes | str) -> None:
    """Write a file whole or not at all."""
    with open_atomic(path, "wb" if isinstance(data, bytes) else "w") as stream:
        stream.write(data)


def discard(old: Path, new: Path, is_ours: Callable[[Path], bool], *, last: str) -> None:
    """Remove a folder in whose place `new` is; what is not ours moves into that, under a free name.

    `last` names the file by which the folder is recognised. It is removed last: after a kill the folder still has it.
    """
    for path in sorted(old.rglob("*"), reverse=True):  # what is inside comes before its folder
        name = path.relative_to(old)
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif is_ours(name):
            if str(name) != last:
                path.unlink()
        else:
            kept = _free_name(new / name)
            kept.parent.mkdir(parents=True, exist_ok=True)
            os.rename(path, kept)
    (old / last).unlink(missing_ok=True)
    if old.is_dir():
        old.rmdir()


def _free_name(path: Path) -> Path:
    number, free = 1, path
    while free.exists() or free.is_symlink():
        number, free = number + 1, path.with_name(f"{path.name}.kept-{number}")
    return free


def to_json(value: Any, *, indent: int | None = None) -> str:
    """JSON that every reader takes: a number that is not finite becomes null."""
    return json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, indent=indent)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value


@contextmanager
def _named(path: str | Path) -> Iterator[None]:
    """An error of a full disk knows no name: give it that of what was being written."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or str(error.filename).endswith(".part"):
            error.filename, error.filename2 = str(path), None
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    # the rename itself must survive a power cut
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
