"""Train and measure the VQA table cell by cell; a cell that is done is not done again.

python benchmarks/vqa_table.py --data data/vqa-scenes --runs runs/vqa-table --out docs/results/vqa
"""

import argparse
import json
import time
from pathlib import Path

from latentalign.files import write_atomic
from latentalign.reports.vqa_table import RECIPE, SEEDS, Cell, as_markdown, cells, row
from latentalign.training.fit import train
from latentalign.training.recipes import load_recipe
from latentalign.training.runs import load_run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("data/vqa-scenes"))
    parser.add_argument("--runs", type=Path, default=Path("runs/vqa-table"))
    parser.add_argument("--out", type=Path, default=Path("docs/results/vqa"))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    arguments = parser.parse_args()
    for cell in cells(arguments.seeds):
        if not any(_is_row_of(found, cell) for found in _read(arguments.out)):
            _add(arguments.out, _run(cell, arguments.runs / cell.name, arguments.data, arguments.set))


def _run(cell: Cell, folder: Path, data: Path, settings: list[str]) -> dict:
    recipe = load_recipe(RECIPE, [f"data.folder={data}", *settings, *cell.settings])
    started = time.perf_counter()
    train(recipe, folder, resume=(folder / "config.yaml").is_file())
    minutes = (time.perf_counter() - started) / 60
    found = row(load_run(folder), cell, data=data, minutes=minutes)
    print(json.dumps(found), flush=True)
    return found


def _is_row_of(found: dict, cell: Cell) -> bool:
    return (found["objective"], found["estimator"], found["seed"]) == (
        cell.objective,
        cell.estimator,
        cell.seed,
    )


def _read(folder: Path) -> list[dict]:
    path = folder / "table1.json"
    return json.loads(path.read_text())["rows"] if path.is_file() else []


def _add(folder: Path, found: dict) -> None:
    rows = [*_read(folder), found]
    order = [(cell.objective, cell.estimator, cell.seed) for cell in cells(sorted({r["seed"] for r in rows}))]
    rows.sort(key=lambda r: order.index((r["objective"], r["estimator"], r["seed"])))
    write_atomic(folder / "table1.json", json.dumps({"rows": rows}, indent=1) + "\n")
    write_atomic(folder / "table1.md", as_markdown(rows))


if __name__ == "__main__":
    main()
