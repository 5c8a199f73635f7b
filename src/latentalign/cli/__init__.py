"""The command line: thin functions over the library, results on stdout, everything else on stderr."""

import difflib
import importlib
import sys
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperGroup

from latentalign import __version__
from latentalign.cli.exit_codes import run_command
from latentalign.cli.options import deferred
from latentalign.errors import UserError

# command -> (where it is defined: a function, or a class of its options; one line of help). A module is imported only
# when its command is asked for: `latentalign --help` needs neither torch nor the commands themselves.
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("demo:demo", "The embedded corpus: train, translate, align, report."),
    "download": ("download:download", "Get a public data set, checked, into a folder."),
    "check": ("train:check", "Check a recipe and its data without training."),
    "prepare": ("prepare:prepare", "Convert a corpus or features once into memory-mapped files."),
    "train": ("train:train", "Train a model from a recipe."),
    "evaluate": ("evaluate:evaluate", "Measure a trained run on data of its task."),
    "translate": ("translate:Translate", "Translate text line by line, with alignments on request."),
    "align": ("align:Align", "Word alignments of sentence pairs, with a probability on every link."),
    "aer": ("align:aer", "Alignment error rate of links against a gold standard."),
    "plot": ("plot:plot", "Draw prior and posterior alignments of a pair, or a run's training curves."),
    "answer": ("answer:answer", "Answer one question with a VQA or memory run and show where it looked."),
    "reproduce": ("reproduce:Reproduce", "The paper's tables and figures on your data."),
    "serve": ("serve:Serve", "The inspector: a page to look at alignments, and an HTTP API."),
}


def find_command(name: str) -> Callable[..., Any]:
    """What the command of that name calls."""
    module, attribute = COMMANDS[name][0].split(":")
    found: Callable[..., Any] = getattr(importlib.import_module(f"latentalign.cli.{module}"), attribute)
    return found


class LazyCommands(TyperGroup):
    """A group whose commands are imported when they are used."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            near = difflib.get_close_matches(cmd_name, COMMANDS, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(COMMANDS)}"
            raise UserError(f"no such command {cmd_name!r}; {hint}")
        found = find_command(cmd_name)
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command(name=cmd_name, help=found.__doc__)(deferred(found))
        command = typer.main.get_command(single)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_line) for name, (_, help_line) in COMMANDS.items()])


app = typer.Typer(
    cls=LazyCommands,
    add_completion=False,
    rich_markup_mode=None,
    help="Attention as a latent alignment: train, translate, align, measure and look.",
    pretty_exceptions_enable=False,
)


def _show_version(value: bool) -> None:
    if value:
        print(f"latentalign {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Print the version."
    ),
) -> None:
    pass


def main() -> None:
    """Run the command line and end the process with the command's exit code (see `exit_codes`)."""
    raise SystemExit(run_command(_run))


def _run() -> None:
    work = app(sys.argv[1:] or ["--help"], standalone_mode=False)
    if callable(work):
        work()
