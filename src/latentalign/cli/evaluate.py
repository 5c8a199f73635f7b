"""`evaluate`: the same numbers for every task."""

from pathlib import Path
from typing import Annotated, Any

import typer

from latentalign.cli.options import DeviceOption
from latentalign.cli.progress import progress
from latentalign.files import to_json


def evaluate(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN…", help="A run folder; several translate together.")
    ],
    source: Annotated[Path | None, typer.Option(help="Translation: source sentences, one a line.")] = None,
    target: Annotated[Path | None, typer.Option(help="Translation: their translations.")] = None,
    table: Annotated[
        Path | None,
        typer.Option(
            help="Translation: instead of two files, a .tsv of sources and targets without a header."
        ),
    ] = None,
    tag: Annotated[
        str | None,
        typer.Option(
            help="Translation: what every source begins with, as <TAG>; for a run of several languages."
        ),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="VQA and memory: the data folder.")] = None,
    split: Annotated[str | None, typer.Option(help="VQA and memory: which part of the data.")] = None,
    inference: Annotated[
        str | None, typer.Option(help="exact, kmax:K, sample:N or soft; default: as the run was validated.")
    ] = None,
    bleu: Annotated[
        bool, typer.Option("--bleu", help="Translation: also translate, and give BLEU and chrF.")
    ] = False,
    errors: Annotated[
        bool,
        typer.Option("--errors", help="Translation: also the share of wrong words and phones, in percent."),
    ] = False,
    beam: Annotated[int, typer.Option(help="Translation: beam of --bleu and --errors.")] = 10,
    seed: Annotated[int, typer.Option(help="For inference by sampling.")] = 0,
    device: DeviceOption = "auto",
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure a trained run on data of its task: NLL, perplexity, bound, KL, entropy and the task's own scores."""
    from latentalign.training.trained_ensemble import load_together

    given = {"source": source, "target": target, "table": table, "tag": tag, "data": data, "split": split}
    loaded = load_together(runs, device=device)
    with progress("evaluating") as advance:
        results = loaded.evaluate(
            inference=inference,
            seed=seed,
            bleu=bleu,
            errors=errors,
            beam=beam,
            progress=advance,
            **{name: value for name, value in given.items() if value is not None},
        )
    _print(results, as_json=json_output)


def _print(results: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(to_json(results))
        return
    width = max(map(len, results))
    for name, value in results.items():
        print(f"{name:<{width}}  {value:.4f}" if isinstance(value, float) else f"{name:<{width}}  {value}")
