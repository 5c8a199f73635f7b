"""One process at a time trains in a run folder.

The lock is the system's own (flock on a file in the folder): it ends with the process, however that ends, so that a
killed process leaves no lock behind. It moves with the folder when that is renamed.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from latentalign.errors import UserError

try:
    import fcntl
except ImportError:  # a system without flock: nothing can be locked
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"
_NO_LOCKS_HERE = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EROFS}


@contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder; a folder that another process holds is refused."""
    path = folder / LOCK
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not _take(descriptor):
            raise UserError(f"{folder}: {_holder(path)} trains here; wait for it, or stop it first")
        if not _is_still(path, descriptor):
            raise UserError(f"{folder}: another process has just replaced it; look at it and try again")
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()} on {os.uname().nodename}\n".encode())
        yield
    finally:
        os.close(descriptor)


def is_held(folder: Path) -> bool:
    """Whether some process holds the lock of a folder."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDWR)
    except OSError:
        return False
    try:
        return not _take(descriptor)
    finally:
        os.close(descriptor)


def _take(descriptor: int) -> bool:
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS_HERE:  # some network file systems have none
            raise
    return True


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _holder(path: Path) -> str:
    try:
        found = path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        found = ""
    return f"process {found[:80]}" if found else "another process"
