"""Run an aligner in a process of its own: its links of the first pairs, CPU seconds and peak memory."""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latentalign.text.links import Link, read_links

Links = list[frozenset[Link]]


@dataclass(frozen=True)
class Result:
    """What a system says of the pairs aligned by hand, by each way to symmetrise, and what it cost."""

    links: dict[str, Links]
    seconds: float  # of CPU, user and system, children included
    megabytes: float

    def plain(self) -> dict[str, Any]:
        links = {method: [sorted(pair) for pair in pairs] for method, pairs in self.links.items()}
        return {"links": links, "seconds": self.seconds, "megabytes": self.megabytes}

    @classmethod
    def of(cls, plain: dict[str, Any]) -> "Result":
        links = {
            method: [frozenset((int(i), int(j)) for i, j in pair) for pair in pairs]
            for method, pairs in plain["links"].items()
        }
        return cls(links, plain["seconds"], plain["megabytes"])


def timed(command: list[str], output: Path | None = None) -> tuple[float, float]:
    """CPU seconds and peak megabytes of a command and its children, with one thread, as GNU time tells them.

    (The memory of a child of this process would be at least that of this process.)
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with open(output or os.devnull, "wb") as stream, tempfile.NamedTemporaryFile() as told:
        whole = ["/usr/bin/time", "-f", "%U %S %M", "-o", told.name, *command]
        subprocess.run(whole, stdout=stream, stderr=subprocess.DEVNULL, env=environment, check=True)
        user, system, kilobytes = (float(value) for value in Path(told.name).read_text().split())
    return user + system, kilobytes / 1000


def first(path: Path, pairs: int) -> Links:
    found = [links.sure for links in read_links(path)]
    return found[:pairs]


def ours(files: tuple[Path, Path], work: Path, pairs: int, options: tuple[str, ...] = ()) -> Result:
    """`latentalign align` as a user calls it; other ways to symmetrise come from the aligner it saved."""
    aligner, links = work / "aligner", work / "links"
    base = [sys.executable, "-m", "latentalign", "align"]
    text = ["--source", str(files[0]), "--target", str(files[1])]
    cost = timed([*base, *text, "--save", str(aligner), *options], links)
    found = {"mean": first(links, pairs)}
    dev = tuple(_head(path, pairs, work) for path in files)
    for method in ("grow-diag-final-and", "forward", "backward", "intersection"):
        timed(
            [*base, str(aligner), "--source", str(dev[0]), "--target", str(dev[1]), "--symmetrise", method],
            links,
        )
        found[method] = first(links, pairs)
    return Result(found, *cost)


def _head(path: Path, lines: int, work: Path) -> Path:
    short = work / f"head{path.suffix}"
    short.write_text(
        "".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[:lines]), encoding="utf-8"
    )
    return short


def eflomal(peers: Path, files: tuple[Path, Path], work: Path, pairs: int) -> Result:
    """eflomal with its own defaults (model 3, no priors)."""
    forward, backward = work / "eflomal.fwd", work / "eflomal.rev"
    command = [str(peers / "bin/eflomal-align"), "-s", str(files[0]), "-t", str(files[1]), "-f", str(forward),
               "-r", str(backward), "--overwrite"]  # fmt: skip
    cost = timed(command)
    return Result(_both(first(forward, pairs), first(backward, pairs)), *cost)


_FAST_ALIGN = """
import json, sys
import systran_align
source, target, work, pairs = sys.argv[1:]
sides = [open(path, encoding="utf-8").read().splitlines() for path in (source, target)]
with open(work + "/joint", "w", encoding="utf-8") as stream:
    stream.writelines(f"{left} ||| {right}\\n" for left, right in zip(*sides))
systran_align.generate_alignment_probabilities(work + "/joint", work + "/fwd", work + "/bwd",
    favor_diagonal=True, optimize_tension=True, variational_bayes=True)
aligner = systran_align.Aligner(work + "/fwd", work + "/bwd")
found = aligner.align_batch(*([line.split() for line in side] for side in sides))
print(json.dumps([[list(link) for link in item["alignments"]] for item in found[: int(pairs)]]))
"""


def fast_align(peers: Path, files: tuple[Path, Path], work: Path, pairs: int) -> Result:
    """fast_align by systran-align with the options its authors recommend; it gives grow-diag-final-and only."""
    output = work / "fast_align.json"
    command = [
        str(peers / "bin/python"),
        "-c",
        _FAST_ALIGN,
        str(files[0]),
        str(files[1]),
        str(work),
        str(pairs),
    ]
    cost = timed(command, output)
    found: list[list[Any]] = json.loads(output.read_text().splitlines()[-1])
    links = [frozenset((int(i), int(j)) for i, j in item) for item in found]
    return Result({"grow-diag-final-and": links}, *cost)


def _both(forward: Links, backward: Links) -> dict[str, Links]:
    from latentalign.text.symmetrise import SYMMETRISATIONS

    combined = {
        name: [combine(one, other) for one, other in zip(forward, backward, strict=True)]
        for name, (combine, _) in SYMMETRISATIONS.items()
    }
    return {"forward": forward, "backward": backward, **combined}
