"""`latentalign demo`: everything once, on a corpus that comes with the package."""

import sys
from pathlib import Path

import typer

from latentalign import __version__

MARKER = "demo.json"  # the folder is a demonstration, and may be replaced by another one
MOST = 1_000_000


def demo(
    out: Path = typer.Option(
        Path("demo"), "--out", help="Folder for the corpus, all that is learnt, and report.html."
    ),
    overwrite: bool = typer.Option(False, "--overwrite", help="Replace a demonstration that exists."),
    pairs: int = typer.Option(5000, "--pairs", min=1, max=MOST, help="Sentence pairs to train on."),
    test_pairs: int = typer.Option(
        500, "--test-pairs", min=1, max=MOST, help="Sentence pairs to validate and to test on."
    ),
    seed: int = typer.Option(1, "--seed", help="Of the corpus and of both trainings."),
    settings: list[str] | None = typer.Option(
        None, "--set", metavar="KEY=VALUE", help="Change both recipes, as for train."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """The embedded corpus: learn an aligner, train soft and variational attention, translate, align, and report.

    The corpus is generated: German–English-like sentences with gold alignments from a small grammar.
    """
    from latentalign.files import require_free, to_json, write_atomic
    from latentalign.reports.demo.comparison import DemoSize, run_demo, summary
    from latentalign.reports.demo.page import page

    size = DemoSize(
        train=pairs,
        valid=test_pairs,
        test=test_pairs,
        seed=seed,
        settings=(f"seed={seed}", *(settings or [])),
    )
    require_free(out, marker=MARKER, overwrite=overwrite, option="--out")
    write_atomic(out / MARKER, to_json({"demo": __version__}) + "\n")
    found = run_demo(out, size, log=_say)
    report = out / "report.html"
    write_atomic(report, page(found))
    if as_json:
        print(to_json({**found.to_dict(), "report": str(report)}))
        return
    print(f"A generated corpus, {len(found.test)} test pairs; {found.seconds / 60:.1f} minutes in all.")
    print(summary(found))
    print(f"Report: {report}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
