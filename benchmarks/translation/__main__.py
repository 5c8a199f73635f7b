"""Speed and memory of translation, every figure a ratio within one run, contenders taking turns.

make bench                                             # everything, an hour or two on two quiet cores
python -m benchmarks.translation training decoding     # some sections; the others keep their results
python -m benchmarks.translation --run RUN             # begin with a trained run instead of training one

Sections: startup, training (objectives over soft), decoding (inferences over soft; beam and batch), machine (share of
the speed of matrix products), profile (operators of a step), peer (JoeyNMT), growth (sentence length and vocabulary).
"""

import argparse
import json
import platform
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import report
from benchmarks.translation import decoding, growth, machine, operators, peer, startup, training
from benchmarks.translation.goals import judge_all, lines
from benchmarks.translation.page import write_page
from benchmarks.translation.setting import Setting, load_averages, note
from latentalign.training.loop.allocator import keep_freed_memory

SECTIONS = {
    "startup": startup.run,
    "training": training.run,
    "decoding": decoding.run,
    "machine": machine.run,
    "profile": operators.run,
    "peer": peer.run,
    "growth": growth.run,
}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.translation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("sections", nargs="*", choices=[*SECTIONS, []], help="which to measure; all unless given")
    add(
        "--data",
        type=Path,
        default=Path("data/multi30k"),
        help="Multi30k; generated text where it is missing",
    )
    add("--run", type=Path, help="a trained soft run of the recipe's kind; trained here unless given")
    add(
        "--finished", type=Path, help="a run trained to the end by an exact objective, to decode with as well"
    )
    add("--epochs", type=float, help="of soft training here; as in the recipe unless given")
    add(
        "--sharpen",
        type=int,
        default=450,
        help="batches by the exact objective after soft, before it is timed",
    )
    add("--set", action="append", default=[], metavar="A.B=C", help="a setting of the recipe")
    add("--batches", type=int, default=8, help="training batches of a turn")
    add("--rounds", type=int, default=5, help="turns of each contender")
    add("--turn-seconds", type=float, default=5.0, help="how long a turn of training steps lasts at least")
    add("--sentences", type=int, default=1000, help="test sentences to decode")
    add("--few-sentences", type=int, default=256, help="of them for the growth with beam and batch")
    add(
        "--peer-env", type=Path, default=Path("bench-results/joeynmt-env"), help="where JoeyNMT is or will be"
    )
    add("--peer-updates", type=int, default=450, help="of each system before it decodes")
    add("--growth-tokens", type=int, default=growth.TOKENS, help="target tokens of a batch")
    add("--growth-size", type=int, default=512, help="units of the model")
    add("--pairs", type=int, help="at most so many pairs of generated text")
    add("--threads", type=int, default=2)
    add("--quick", action="store_true", help="fewer points of growth")
    add("--work", type=Path, default=Path("bench-results/translation"), help="runs and states; used again")
    add("--out", type=Path, default=Path("bench-results/performance"), help="where results and page go")
    return parser.parse_args(arguments)


def facts(setting: Setting, before: list[float], section: str) -> dict[str, Any]:
    """What a figure should not be read without."""
    return {
        "when": time.strftime("%Y-%m-%d"),
        "machine": _processor(),
        "torch": torch.__version__,
        "threads": setting.threads,
        "data": "made-up batches" if section == "growth" else setting.describe_data(),
        "load": [before[0], load_averages()[0]],
    }


def _processor() -> str:
    try:
        listed = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in listed if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def main(arguments: list[str] | None = None) -> None:
    """Measure section by section; each is written as soon as it is known."""
    options = parse(arguments)
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    setting = Setting(options)
    path: Path = options.out / "performance.json"
    results: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    with setting.stack:
        for section in options.sections or SECTIONS:
            note(f"{section}: load {load_averages()}")
            before = load_averages()
            results[section] = SECTIONS[section](setting)
            results.setdefault("measured", {})[section] = facts(setting, before, section)
            results["goals"] = judge_all(results)
            report(
                "translation", {name: value for name, value in results.items() if name != "benchmark"}, path
            )
    write_page(results, options.out)
    print("\n".join(lines(judge_all(results))))


if __name__ == "__main__":
    main()
