"""Text in, plain or gzipped; results out, whole or not at all."""

import gzip
import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from latentalign.errors import UserError


def read_lines(path: str | Path) -> Iterator[str]:
    """Yield the lines of a plain or gzipped UTF-8 file without their ends.

    Only ``\\n`` ends a line (a sentence may hold other separators of Unicode), so that two
    parallel files stay parallel.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file; expected a text file with one sentence a line")
    with _open_bytes(path) as stream:
        try:
            for number, line in enumerate(stream, start=1):
                try:
                    yield line.decode("utf-8").rstrip("\n").rstrip("\r")
                except UnicodeDecodeError as error:
                    raise UserError(
                        f"{path}, line {number}: expected UTF-8 text, found byte 0x{line[error.start]:02x} "
                        f"at column {error.start + 1}; convert the file, for example with iconv -t utf-8"
                    ) from None
        except (gzip.BadGzipFile, EOFError) as error:
            raise UserError(f"{path}: damaged gzip file ({error}); fetch or compress it again") from None


def _open_bytes(path: Path) -> BinaryIO:
    with path.open("rb") as probe:
        zipped = probe.read(2) == b"\x1f\x8b"
    return cast(BinaryIO, gzip.open(path, "rb")) if zipped else path.open("rb")


@contextmanager
def open_atomic(path: str | Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary file beside `path` that takes its name once it is written and on disk."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(descriptor, mode, encoding=None if "b" in mode else "utf-8") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_atomic(path: str | Path, data: bytes | str) -> None:
    """Write a file whole or not at all."""
    with open_atomic(path, "wb" if isinstance(data, bytes) else "w") as stream:
        stream.write(data)


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
