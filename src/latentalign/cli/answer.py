"""`latentalign answer`: one question to a run whose task answers questions.

The command knows no task: a task refuses the options that mean nothing to it.
"""

from pathlib import Path
from typing import Any

import typer

from latentalign.cli.options import DeviceOption
from latentalign.errors import UserError
from latentalign.files import to_json


def answer(
    run: Path = typer.Argument(..., help="Folder of a trained VQA or memory run."),
    question: str = typer.Option(..., "--question", "-q", help="The question, as a person would ask it."),
    features: Path | None = typer.Option(None, help="VQA: region features, a TSV file or a prepared folder."),
    image: int | None = typer.Option(
        None, help="VQA: which image of the features (needed for more than one)."
    ),
    story: Path | None = typer.Option(None, help="Memory: text file, one sentence a line."),
    given: str | None = typer.Option(
        None, "--answer", help="A known answer: shows where the posterior looks."
    ),
    inference: str | None = typer.Option(
        None, help="exact, kmax:5, sample:20 or soft; by default what fits the run's objective."
    ),
    seed: int = typer.Option(0, help="Seed of sampled inference."),
    top: int = typer.Option(5, min=1, help="How many answers to list."),
    picture: Path | None = typer.Option(None, help="VQA: the image itself, to draw the regions on."),
    output: Path | None = typer.Option(None, help="VQA: PNG of the image with its regions weighted."),
    device: DeviceOption = "auto",
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Answer one question with a VQA or memory run and show where it looked."""
    from latentalign.training.trained_run import load

    if (picture is None) != (output is None):
        raise UserError("a picture of the regions needs both --picture IMAGE and --output FILE.png")
    result = load(run, device=device).answer(
        question,
        answer=given,
        features=features,
        image=image,
        story=story,
        inference=inference,
        top=top,
        seed=seed,
    )
    if picture is not None and output is not None:
        from latentalign.reports.figures.image_regions import draw_answer

        draw_answer(result, picture, output)
        result = {**result, "picture": str(output)}
    print(to_json(result) if as_json else _as_text(result))


def _as_text(result: dict[str, Any]) -> str:
    lines = [f"{entry['probability']:6.3f}  {entry['answer']}" for entry in result["answers"]]
    posterior = any("posterior" in entry for entry in result["evidence"])
    lines += ["", " prior  " + ("posterior  " if posterior else "") + "where"]
    for entry in sorted(result["evidence"], key=lambda entry: -entry["prior"]):
        second = f"{entry['posterior']:9.3f}  " if posterior else ""
        lines.append(f"{entry['prior']:6.3f}  {second}{entry['text']}")
    return "\n".join(lines)
