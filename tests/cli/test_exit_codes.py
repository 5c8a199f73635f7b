"""However a command ends: its exit code, one line at most, and nothing left behind."""

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from latentalign.cli import COMMANDS, exit_codes
from latentalign.errors import UserError
from latentalign.training.run.stopping import Interrupted, ProcessLost, TrainingStopped
from tests.cli.command import assert_mistake, latentalign, start, untrained_run, wait_for

FAST = ("--beam", "2", "--max-length-factor", "0.5")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return untrained_run(tmp_path_factory.mktemp("runs") / "run")


def leave(error: BaseException, capsys) -> tuple[int, str]:
    def command() -> None:
        raise error

    code = exit_codes.run_command(command)
    return code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (UserError("place: expected a, received b"), "place: expected a, received b"),
        (FileNotFoundError(2, "No such file", "here"), "here: no such file or folder"),
        (IsADirectoryError(21, "Is a directory", "here"), "here: is a folder"),
        (OSError(28, "No space left on device"), "no space left on the disk"),
        (MemoryError(), "not enough memory"),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 9 bytes"),
            "not enough memory",
        ),
        (RecursionError("maximum recursion depth exceeded"), "nested too deeply"),
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"), "expected UTF-8"),
        (ValueError("two\nlines"), "two lines (LATENTALIGN_DEBUG=1"),
        (OverflowError("too large"), "too large"),
    ],
)
def test_what_a_user_brings_about_is_one_line(error, told, capsys):
    code, err = leave(error, capsys)
    assert code == 2
    assert err.startswith("latentalign: ")
    assert err.count("\n") == 1
    assert told in err


def test_a_defect_is_one_line_with_the_traceback_in_a_file(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(exit_codes.tempfile, "tempdir", str(tmp_path))
    code, err = leave(AttributeError("no such thing"), capsys)
    assert code == 1
    assert err.count("\n") == 1
    (report,) = tmp_path.glob("latentalign-*.txt")
    assert str(report) in err
    assert "a defect of latentalign" in err
    assert "in command\n    raise error\n" in report.read_text()


def test_debugging_shows_the_traceback_of_a_mistake(capsys, monkeypatch):
    monkeypatch.setenv("LATENTALIGN_DEBUG", "1")
    code, err = leave(UserError("mistake"), capsys)
    assert code == 2
    assert err.startswith("Traceback")
    assert err.endswith("latentalign: mistake\n")


def test_interruptions_have_their_exit_codes(capsys):
    assert leave(KeyboardInterrupt(), capsys) == (130, "latentalign: interrupted\n")
    assert leave(SystemExit(75), capsys) == (75, "")
    assert leave(SystemExit(None), capsys) == (0, "")


def test_a_training_that_ends_early_has_the_code_of_its_reason(capsys):
    for kind, code in ((Interrupted, 75), (ProcessLost, 69), (TrainingStopped, 2)):
        assert leave(kind("step 3: saved"), capsys) == (code, "latentalign: step 3: saved\n")
    reported = ProcessLost("the first process says it")
    reported.is_reported = True
    assert leave(reported, capsys) == (69, "")


# --- options of every command --------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["trian", "tranlsate", "evalute", "alig"])
def test_a_mistyped_command_names_the_nearest(wrong):
    began = time.perf_counter()
    found = latentalign(wrong, "x")
    assert time.perf_counter() - began < 1
    assert_mistake(found, wrong, "did you mean")


def test_a_mistyped_command_comes_at_once_in_a_new_process():
    script = (
        "import sys; from latentalign.cli import main\ntry: main()\nfinally: print('torch' in sys.modules)"
    )
    found = subprocess.run(
        [sys.executable, "-c", script, "trian"], capture_output=True, text=True, check=False
    )
    assert found.returncode == 2
    assert found.stdout == "False\n"
    assert "did you mean 'train'" in found.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_helps_and_refuses_unknown_options(command):
    assert latentalign(command, "--help").code == 0
    assert_mistake(latentalign(command, "--no-such-option"), "--no-such-option")


def test_no_command_shows_the_help():
    found = latentalign()
    assert found.code == 0
    assert "translate" in found.stdout


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e999"])
def test_numbers_are_finite(run, value):
    assert_mistake(latentalign("translate", run, "--length-penalty", value, stdin="ja\n"), "--length-penalty")
    assert_mistake(
        latentalign("align", run, "--source", "a", "--target", "b", "--threshold", value), "threshold"
    )


@pytest.mark.parametrize("value", [2**31, -(2**31), 10**14, 10**30, "9" * 5000])
def test_numbers_have_a_size(run, value):
    assert_mistake(latentalign("translate", run, "--seed", value, stdin="ja\n"), "--seed")
    assert_mistake(latentalign("translate", run, "--batch-size", value, stdin="ja\n"), "--batch-size")


# --- processes -----------------------------------------------------------------------------


def named_pipe(place: Path) -> int:
    """Make a named pipe and open it at both ends: nobody waits for the other."""
    os.mkfifo(place)
    return os.open(place, os.O_RDWR)


def test_control_c_while_waiting_for_input(run, tmp_path):
    stdin, out = tmp_path / "stdin", tmp_path / "out"
    writer = named_pipe(stdin)
    process = start("translate", run, *FAST, stdin=stdin, stdout=out, stderr=tmp_path / "err")
    os.write(writer, b"ja\n")
    wait_for(lambda: out.exists() and out.stat().st_size > 0)
    os.kill(process.pid, signal.SIGINT)
    process.join(30)
    os.close(writer)
    assert process.exitcode == 130
    assert (tmp_path / "err").read_text() == "latentalign: interrupted\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_leave_no_half_written_file(run, tmp_path, number):
    stdin, results = tmp_path / "stdin", tmp_path / "results"
    writer = named_pipe(stdin)
    options = ("--output", results / "out.en", "--alignments", results / "links")
    process = start("translate", run, *FAST, *options, stdin=stdin, stderr=tmp_path / "err")
    wait_for(lambda: len(list(results.glob(".*.part"))) == 2)
    os.kill(process.pid, number)
    process.join(30)
    os.close(writer)
    assert process.exitcode == 128 + number
    assert (tmp_path / "err").read_text() == ""
    assert list(results.iterdir()) == []


def test_a_reader_that_has_enough_ends_it_quietly(run, tmp_path):
    text, stdout = tmp_path / "text", tmp_path / "stdout"
    text.write_text("ja\n" * 300)
    reader = named_pipe(stdout)
    options = ("--batch-size", 2, "--input", text)
    process = start("translate", run, *FAST, *options, stdout=stdout, stderr=tmp_path / "err")
    assert select.select([reader], [], [], 60)[0]
    os.close(reader)  # as head -1 does
    process.join(60)
    assert process.exitcode == 0
    assert (tmp_path / "err").read_text() == ""


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), ("train", "--help")])
@pytest.mark.parametrize(
    ("redirection", "code", "told"),
    [
        (">/dev/full", 2, "no space left"),
        (">&-", 2, "standard output is closed"),
        ("2>&-", 0, ""),
        ("<&-", 0, ""),
        ("<&- 2>&-", 0, ""),
        ("| false", 0, ""),
    ],
)
def test_standard_streams_that_do_not_work(redirection, code, told, arguments):
    script = f'"$@" {redirection}; exit ${{PIPESTATUS[0]}}'
    command = [sys.executable, "-m", "latentalign", *arguments]
    found = subprocess.run(["bash", "-c", script, "-", *command], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr.count("\n")) == (code, 1 if told else 0), found.stderr
    assert told in found.stderr


def test_closed_standard_input_is_told_before_anything_is_loaded(run):
    script = f"{sys.executable} -m latentalign translate {run} <&-"
    found = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (2, "")
    assert "standard input is closed" in found.stderr


def test_results_are_utf8_whatever_the_terminal_says():
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    command = [sys.executable, "-m", "latentalign", "--help"]
    script = "import sys; from latentalign.cli.exit_codes import run_command\nrun_command(lambda: print('Mädchen'))"
    found = subprocess.run([*command[:1], "-c", script], capture_output=True, env=environment, check=False)
    assert found.stdout.decode() == "Mädchen\n", found.stderr


# --- what commands write -------------------------------------------------------------------


def test_outputs_that_cannot_be_written(run, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("kept")
    places = {
        tmp_path / "folder": "is a folder",
        tmp_path / "file" / "out": "",
        "/dev/full": "no space left",
        tmp_path / ("n" * 300): "too long",
        "/proc/nothing/here": "",
    }
    for place, told in places.items():
        assert_mistake(latentalign("translate", run, *FAST, "-o", place, stdin="ja\n"), told)
        plot = ("plot", run, "--source", "ja", "--target", "yes", "-o", f"{place}.png")
        if not str(place).startswith("/dev"):
            found = latentalign(*plot)
            assert (found.code, found.stderr.count("\n")) in ((0, 0), (2, 1))
    assert (tmp_path / "file").read_text() == "kept"
    assert not list(tmp_path.glob(".*"))


def test_two_results_in_one_file_are_refused(run, tmp_path):
    path = tmp_path / "both"
    found = latentalign("translate", run, *FAST, "-o", path, "--alignments", path, stdin="ja\n")
    assert_mistake(found, "the same file")
    text = tmp_path / "text"
    text.write_text("ja\n")
    assert_mistake(latentalign("translate", run, *FAST, "-i", text, "-o", text), "the same file")
    assert_mistake(latentalign("align", run, "--source", text, "--target", text, "-o", text), "the same file")
    assert text.read_text() == "ja\n"


def test_a_dash_is_standard_input(run):
    found = latentalign("translate", run, *FAST, "-i", "-", stdin="ja\nja\n")
    assert (found.code, found.stdout.count("\n")) == (0, 2)


def test_a_byte_order_mark_changes_no_translation(run, tmp_path):
    plain, marked = tmp_path / "plain", tmp_path / "marked"
    plain.write_text("ja ja\n")
    marked.write_text("ja ja\n", encoding="utf-8-sig")
    expected = latentalign("translate", run, *FAST, "-i", plain, "--scores").stdout
    assert latentalign("translate", run, *FAST, "-i", marked, "--scores").stdout == expected
    assert latentalign("translate", run, *FAST, "--scores", stdin=marked.read_bytes()).stdout == expected


@pytest.mark.parametrize(
    "penalty",
    [
        ("--length-penalty", "-1e308"),
        ("--length-penalty", "11"),
        ("--eos-penalty", "1e308"),
        ("--eos-penalty", "101"),
    ],
)
def test_penalties_that_overflow_are_refused(run, penalty):
    """They rank nothing: there would be fewer lines than were read."""
    assert_mistake(latentalign("translate", run, *FAST, *penalty, stdin="ja\n"), "penalty: expected")


@pytest.mark.parametrize(
    "penalty",
    [("--length-penalty", "-10"), ("--length-penalty", "10"), ("--eos-penalty", "100")],
)
def test_there_are_as_many_lines_as_were_read(run, penalty):
    found = latentalign("translate", run, *FAST, *penalty, stdin="ja\n\nein Hund\n")
    assert (found.code, found.stdout.count("\n")) == (0, 3)


def test_weights_so_large_that_nothing_is_finite_are_told(run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    large = {
        name: torch.full_like(tensor, 3e38) for name, tensor in load_file(copy / "model.safetensors").items()
    }
    save_file(large, copy / "model.safetensors")
    found = latentalign("translate", copy, *FAST, stdin="ja\n")
    assert_mistake(found, "not finite")


def test_memory_that_is_not_there_is_a_line(capsys):
    def command() -> None:
        torch.empty(2**50)

    assert exit_codes.run_command(command) == 2
    assert "not enough memory" in capsys.readouterr().err
