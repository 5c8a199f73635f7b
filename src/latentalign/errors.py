"""Mistakes of the user, each reported in one line."""

import difflib
import errno
import os
from collections.abc import Iterable

LONGEST = 600  # characters of a line that is reported


class UserError(Exception):
    """A mistake of the user's: place, what was expected, what came and what to try, in one line.

    The command line prints the message on stderr and exits with `code`; no traceback is shown.
    """

    code = 2
    is_reported = False  # True on a process that leaves the report to another one


def hint_at(name: object, choices: Iterable[str]) -> str:
    """What to try in place of a name that is none of the choices: the nearest one, or all of them."""
    known = list(choices)
    near = difflib.get_close_matches(str(name), known, n=1, cutoff=0.4)
    return f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(known)}"


# Errors of the system whose own words say too little; all others are reported as the system words them.
_MEANINGS = {
    errno.ENOENT: "no such file or folder",
    errno.EISDIR: "is a folder; expected a file",
    errno.ENOTDIR: "a part of this path is a file; expected a folder there",
    errno.EEXIST: "exists already",
    errno.EACCES: "permission denied; look at its owner and mode",
    errno.EPERM: "the system does not permit it; look at its owner and mode",
    errno.ENOSPC: "cannot be written: no space left on the disk",
    errno.EDQUOT: "cannot be written: the disk quota is used up",
    errno.EFBIG: "cannot be written: the file is larger than the system allows",
    errno.EROFS: "cannot be written: the disk is read-only",
    errno.EBADF: "is closed",
    errno.ENAMETOOLONG: "the name is too long for this disk",
    errno.ELOOP: "symbolic links that go round in a circle",
    errno.EMFILE: "too many open files; raise the limit with ulimit -n",
}


def explain_os_error(error: OSError) -> str:
    """An error of the system as a line: the place, if it is known, and what is the matter."""
    number = error.errno or 0
    meaning = _MEANINGS.get(number) or error.strerror or str(error) or os.strerror(number)
    names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
    return f"{' and '.join(names)}: {meaning}" if names else meaning


def one_line(text: str) -> str:
    """Text of unknown origin as one printable line of bounded length."""
    line = " ".join(text.split())
    line = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in line)
    if len(line) > LONGEST:  # a line begins with its place and ends with what to do
        line = f"{line[: LONGEST * 2 // 3 - 5]} ... {line[-LONGEST // 3 :]}"
    return line
