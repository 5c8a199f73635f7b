"""`latentalign plot`: alignments of one pair, or a run's training, as a picture."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from latentalign.cli.options import DeviceOption
from latentalign.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from latentalign.training.trained_aligner import TrainedAligner
    from latentalign.training.trained_run import Run


def plot(
    run: Path = typer.Argument(..., metavar="RUN|ALIGNER", help="Folder of a trained run or of an aligner."),
    output: Path = typer.Option(..., "--output", "-o", help="Picture: FILE.png, .svg or .pdf."),
    source: str | None = typer.Option(None, "--source", help="A source sentence."),
    target: str | None = typer.Option(
        None, "--target", help="Its translation; the model's own unless given."
    ),
    links: str | None = typer.Option(None, "--links", help="Known links to frame, such as '0-0 1-2'."),
    curves: bool = typer.Option(False, "--curves", help="The run's training curves instead."),
    device: DeviceOption = "auto",
) -> None:
    """Draw prior and posterior alignments of a pair, or a run's training curves."""
    from latentalign.reports.figures.heatmap import check_format, save

    check_format(output)
    if curves == (source is not None):
        raise UserError("plot: expected either --source SENTENCE (and --target) or --curves")
    if curves:
        from latentalign.reports.figures.training_curves import curves_of_run

        save(curves_of_run(run), output)
        return
    assert source is not None
    if not source.split() or (target is not None and not target.split()):
        raise UserError("plot: expected at least one word in --source and in --target, got an empty sentence")
    from latentalign.training.trained_aligner import TrainedAligner, load_one

    loaded = load_one(run, device=device)
    if isinstance(loaded, TrainedAligner):
        if target is None:
            raise UserError(f"plot: {run} is an aligner, which does not translate; give --target, too")
        panels, words = _panels_of_aligner(loaded, source, target)
    else:
        panels, words = _panels_of_run(loaded, source, target)
    _draw(panels, words, links, output)


# matrices by name; source and target words
Panels = tuple[dict[str, "np.ndarray"], tuple[list[str], list[str]]]


def _panels_of_run(run: "Run", source: str, target: str | None) -> Panels:
    if target is None:
        target = run.translate([source])[0].text
        if not target:
            raise UserError("plot: the model's translation is empty; give one with --target")
    found = next(iter(run.aligner().align([(source, target)])))
    panels = {"prior": found.prior}
    if found.posterior is not None:
        panels["posterior"] = found.posterior
    return panels, (found.source_words, found.target_words)


def _panels_of_aligner(aligner: "TrainedAligner", source: str, target: str) -> Panels:
    found = next(iter(aligner.aligner.align([(source, target)])))
    panels = {
        "target given source": found.forward,
        "source given target": found.backward,
        "links": found.probs,
    }
    return panels, (found.source_words, found.target_words)


def _draw(
    panels: dict[str, "np.ndarray"], words: tuple[list[str], list[str]], links: str | None, output: Path
) -> None:
    from latentalign.reports.figures.heatmap import heatmap, save
    from latentalign.text.links import Links, check_links, parse_links

    known = Links(frozenset()) if links is None else parse_links(links, place="--links")
    check_links(known, len(words[0]), len(words[1]), place="--links")
    save(heatmap(panels, *words, gold=known.all), output)
