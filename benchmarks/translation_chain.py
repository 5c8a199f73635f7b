"""Does a chain help the translator? Soft attention, the exact marginal and a chain's marginal on Multi30k.

python -m benchmarks.translation_chain --data data/multi30k [--epochs 6] [--work runs/chain] [--out docs/results/chain]

All three share the first two epochs, which are soft attention, and from there on see the same batches and dropout. A
chain whose jumps are 0 is the categorical alignment, so the shared weights get jumps of 0 when the chain takes over.
(The recipe multi30k-de-en-chain has them from the start.) What is finished is not done again.
"""

import argparse
import json
import shutil
import time
from pathlib import Path
from typing import Any

import torch

import latentalign as la
from benchmarks.measure import report
from latentalign.files import read_lines, write_atomic
from latentalign.reports.provenance import provenance_of_run, write_recipes
from latentalign.training.recipe.overrides import merge
from latentalign.training.recipe.recipes import build_recipe, load_recipe
from latentalign.training.run.checkpoints import VerifiedCheckpoints, checkpoint_path, newest_good
from latentalign.training.run.config_file import load_config, load_resumed, save_config
from latentalign.training.run.forking import fork_run
from latentalign.training.run.marker import remark
from latentalign.training.train import train

WARM_UP = 2.0  # epochs
JUMPS = "latent.transitions.scores"
ROWS = {
    "soft": "multi30k-de-en-soft",
    "marginal": "multi30k-de-en-marginal",
    "chain": "multi30k-de-en-chain",
}


def warm_up(data: Path, work: Path) -> Path:
    """Two epochs of soft attention."""
    folder = work / "warm-up"
    if not (folder / "config.yaml").is_file():
        settings = [f"data.folder={data}", f"training.epochs={WARM_UP}"]
        train(load_recipe(ROWS["soft"], settings), folder)
    return folder


def branch(name: str, source: Path, folder: Path, epochs: float) -> None:
    """Go on from the warm-up by the recipe of that row, with its alignment."""
    recipe = load_recipe(ROWS[name])
    if not recipe.schedule:  # it goes on as it began
        shutil.copytree(source, folder)
        return
    fork_run(source, folder, schedule=recipe.schedule, epochs=epochs)
    alignment = recipe.resolved()["model"]["alignment"]
    if alignment != load_config(folder).resolved()["model"]["alignment"]:
        _add_jumps(folder, alignment)


def _add_jumps(folder: Path, alignment: dict[str, Any]) -> None:
    """Make the run's alignment a chain: jumps of 0 in its checkpoint, and no history of them in the optimiser."""
    values = merge(load_config(folder).resolved(), {"model": {"alignment": alignment}})
    recipe = build_recipe(values)
    save_config(recipe, folder)
    remark(folder, recipe.resolved())
    found = newest_good(folder, lambda text: None)
    assert found is not None
    path, content = found
    content["state_dict"][f"model.{JUMPS}"] = torch.zeros(2 * int(alignment["width"]) + 1)
    for state in content["optimizer_states"]:
        (group,) = state["param_groups"]
        group["params"] = [*group["params"], len(group["params"])]  # the last of the model's parameters
    Path(path).unlink()
    VerifiedCheckpoints().save_checkpoint(content, checkpoint_path(folder, content["place"]["step"]))


def measure(name: str, folder: Path, data: Path, epochs: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """A row of the result, and the recipe it is by."""
    run = la.load(folder, device="cpu")
    test = data / "test_2016_flickr"
    found = run.evaluate(source=f"{test}.de.gz", target=f"{test}.en.gz", bleu=True, beam=10)
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    proof, values = provenance_of_run(folder)
    row = {
        "model": name,
        "recipe": ROWS[name],
        "settings": [f"training.epochs={epochs:g}"],
        **proof,
        "validation_ppl": [line["ppl"] for line in metrics if line["epoch"] == int(line["epoch"])],
        **{
            key: found[key] for key in ("ppl", "bleu", "bleu_signature", "chrf", "prior_entropy", "inference")
        },
    }
    jumps = dict(run.model.named_parameters()).get(JUMPS)
    if jumps is not None:
        row["jumps"] = (run.model.latent.transitions.rate * jumps).tolist()
    return row, values


def search_cost(work: Path, data: Path, *, sentences: int = 100, rounds: int = 3) -> dict[str, float]:
    """CPU seconds of beam 10 with kmax:5 for independent steps and for the chain: the least of some rounds, in turn."""
    lines = list(read_lines(data / "test_2016_flickr.de.gz"))[:sentences]
    names = ("marginal", "chain")
    runs = {name: la.load(work / name, device="cpu") for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name, run in runs.items():
            begun = time.process_time()
            run.translate(lines, beam=10, inference="kmax:5")
            seconds[name].append(time.process_time() - begun)
    return {name: min(found) for name, found in seconds.items()}


PAGE = """# What a chain does for the translator

Multi30k de→en, {epochs:g} epochs, one seed, the sizes of `multi30k-de-en-marginal` (256 units). All rows share the
first two epochs of soft attention and see the same batches; then soft goes on as it was, the others by the exact
marginal (pruned at 0.005). Beam 10 on `test_2016_flickr`:

{results}

Validation perplexity after each epoch:

{curve}

The learnt scores of the chain's jumps, in pieces of the source: {jumps}.

Beam 10 with `kmax:5` over 100 test sentences takes the chain, whose filter every hypothesis carries, {ratio:.2f} times
the CPU time of independent steps (least of three rounds in turn: {chain:.1f} s and {marginal:.1f} s).

```
python -m benchmarks.translation_chain --data DATA --epochs {epochs:g}
```

Revisions, fingerprints and all jumps are in [results.json](results.json).
"""


def page(rows: list[dict[str, Any]], epochs: float, search: dict[str, float]) -> str:
    """What was found, to be read."""
    results = ["| alignment | recipe | test PPL | BLEU | chrF | prior entropy |", "|---|---|---|---|---|---|"]
    for row in rows:
        results.append(
            f"| {row['model']} | `{row['recipe']}` | {row['ppl']:.2f} | {row['bleu']:.2f} | {row['chrf']:.1f} "
            f"| {row['prior_entropy']:.2f} |"
        )
    count = max(len(row["validation_ppl"]) for row in rows)
    curve = [
        "| alignment | " + " | ".join(map(str, range(1, count + 1))) + " |",
        "|---" * (count + 1) + "|",
    ]
    curve += [
        f"| {row['model']} | " + " | ".join(f"{ppl:.2f}" for ppl in row["validation_ppl"]) + " |"
        for row in rows
    ]
    found = next(row["jumps"] for row in rows if "jumps" in row)
    width = len(found) // 2
    jumps = ", ".join(f"{d:+d}: {found[d + width]:.1f}" for d in range(-3, 5))
    return PAGE.format(
        epochs=epochs,
        results="\n".join(results),
        curve="\n".join(curve),
        jumps=jumps,
        ratio=search["chain"] / search["marginal"],
        **search,
    )


def main() -> None:
    """Train what is missing, measure, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=float, default=6.0)
    parser.add_argument("--work", type=Path, default=Path("runs/chain"))
    parser.add_argument("--out", type=Path, default=Path("docs/results/chain"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    source = warm_up(options.data.resolve(), options.work)
    rows, recipes = [], []
    for name in ROWS:
        folder = options.work / name
        if not folder.is_dir():
            branch(name, source, folder, options.epochs)
        train(load_resumed(folder, [f"training.epochs={options.epochs}"]), folder, resume=True)
        row, values = measure(name, folder, options.data, options.epochs)
        rows.append(row)
        recipes.append(values)
    search = search_cost(options.work, options.data)
    report("translation-chain", {"rows": rows, "search_cpu_seconds": search}, options.out / "results.json")
    write_recipes(options.out, recipes)
    text = page(rows, options.epochs, search)
    write_atomic(options.out / "README.md", text)
    print(text)


if __name__ == "__main__":
    main()
