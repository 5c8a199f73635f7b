"""How commands end: always with an exit code of this table, and at most one line on stderr.

| exit code | how the command ended |
|---|---|
| 0 | done; also when the reader of the output closed it early (`| head`) |
| 1 | a defect of latentalign; the traceback is in a file that the line names |
| 2 | a mistake of the user, or a failure of the system: a file, a setting, the disk, the memory |
| 69, 70, 75 | training ended early (another process was lost; not finite; interrupted and saved) |
| 130, 129, 143 | Ctrl-C, SIGHUP, SIGTERM |

With `LATENTALIGN_DEBUG=1` the traceback is printed before the line.
"""

import contextlib
import os
import select
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import typer

from latentalign.errors import UserError, explain_os_error, one_line

DEBUG = "LATENTALIGN_DEBUG"
_DONE, _DEFECT, _MISTAKE = 0, 1, 2
# typer's own errors have no public base class; this is what all of them are
_UsageError = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
# how torch and numpy say that there is no such memory, or that no memory could have such a size
_MEMORY_SIGNS = (
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "Unable to allocate",
    "Storage size calculation overflowed",
    "numel: integer multiplication overflow",
    "array is too big",
    "Maximum allowed dimension exceeded",
)


class Terminated(BaseException):
    """A signal asks the process to end: what is half-written is removed on the way out."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.code = 128 + number


def run_command(command: Callable[[], Any]) -> int:
    """Run a command and give its exit code; whatever goes wrong is reported in one line."""
    with _open_streams(), _signals():
        try:
            try:
                command()
                sys.stdout.flush()
            except SystemExit as error:
                if _reader_is_gone():  # the parser of the command line met it while it printed a help text
                    return _DONE
                sys.stdout.flush()
                return _code_of(error)
            return _DONE
        except BaseException as error:
            if os.environ.get(DEBUG):
                traceback.print_exc()
            return _tell(error)
        finally:
            _let_go_of_broken_streams()


def _tell(error: BaseException) -> int:
    """Say in one line what happened; the exit code."""
    if isinstance(error, typer.Exit):
        return error.exit_code
    if isinstance(error, Terminated):
        return error.code
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return _say("interrupted", 128 + signal.SIGINT)
    if isinstance(error, BrokenPipeError) and _reader_is_gone():
        return _DONE
    if isinstance(error, UserError) and error.is_reported:
        return error.code
    line = explain(error)
    if line is None:
        return _report_defect(error)
    return _say(line, error.code if isinstance(error, UserError) else _MISTAKE)


def explain(error: BaseException) -> str | None:
    """What a user can make of an error; None for one that no input or machine should bring about."""
    text = one_line(str(error))
    if isinstance(error, UserError):
        return text
    if isinstance(error, _UsageError):
        return _explain_usage(error)
    if isinstance(error, OSError):
        return explain_os_error(error)
    if isinstance(error, MemoryError) or any(sign in str(error) for sign in _MEMORY_SIGNS):
        return f"not enough memory ({text or 'MemoryError'}); try smaller sizes, batches or inputs"
    if type(error) is RuntimeError and "Symlink loop" in text:  # how pathlib says it
        return f"{text}; symbolic links that go round in a circle"
    if isinstance(error, RecursionError):
        return f"the input is nested too deeply ({text})"
    if isinstance(error, UnicodeError):
        return f"text that cannot be written or read ({text}); expected UTF-8"
    # the core's own, without importing it
    if isinstance(error, ArithmeticError) and isinstance(error, ValueError):
        return f"the model's numbers are not finite: {text}; its weights or inputs are too large, train once more"
    if isinstance(error, ValueError | OverflowError):
        return f"{text} ({DEBUG}=1 shows where)"
    return None


def _explain_usage(error: Any) -> str:
    """The message of the command line's parser, and where to look."""
    text = one_line(error.format_message()).rstrip(".")
    text = text[:1].lower() + text[1:]
    context = getattr(error, "ctx", None)
    where = f"; see {context.command_path} --help" if context is not None else ""
    return text + ("" if "did you mean" in text.lower() else where)


def _report_defect(error: BaseException) -> int:
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="latentalign-", suffix=".txt", delete=False, encoding="utf-8", errors="replace"
        ) as report:
            report.write(f"{' '.join(sys.argv)}\n\n")
            report.write("".join(traceback.format_exception(error)))
        where = f"the traceback is in {report.name}"
    except OSError:
        where = f"{DEBUG}=1 shows the traceback"
    kind = type(error).__name__
    return _say(
        f"unexpected {kind} ({one_line(str(error))[:200]}): a defect of latentalign; {where}, please report it",
        _DEFECT,
    )


def _say(line: str, code: int) -> int:
    with contextlib.suppress(OSError, ValueError):
        print(f"latentalign: {one_line(line)}", file=sys.stderr, flush=True)
    return code


def _code_of(error: SystemExit) -> int:
    return error.code if isinstance(error.code, int) else _DONE if error.code is None else _MISTAKE


# --- signals -----------------------------------------------------------------------------


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP unwind the stack, so that all clean-up code runs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)  # once is enough; do not disturb the cleaning up
        raise Terminated(number)

    before = {
        number: signal.signal(number, end)
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN  # as nohup asks
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# --- standard streams --------------------------------------------------------------------


class _Closed:
    """Standard output that the caller closed: nothing is lost silently."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        if text:
            raise UserError("standard output is closed; expected somewhere to write the result")
        return 0

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False


@contextlib.contextmanager
def _open_streams() -> Iterator[None]:
    """Make sure that there are standard streams, that they speak UTF-8, and that no file takes their numbers."""
    before = sys.stdout, sys.stderr
    if None in (sys.stdin, sys.stdout, sys.stderr):
        while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
            pass
        os.close(descriptor)
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  it stays open
    if sys.stdout is None:
        sys.stdout = _Closed()  # type: ignore[assignment]
    elif hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _reader_is_gone() -> bool:
    """Whether a standard stream is a pipe whose reader is gone."""
    poll = select.poll()
    for number in (1, 2):
        poll.register(number, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _let_go_of_broken_streams() -> None:
    """A write that failed has been reported: the interpreter should not fail on it again when it flushes at its end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, stream.fileno())
                os.close(null)
