"""Break the library in small ways, one at a time, and list the faults that no test notices.

python -m benchmarks.mutants --json bench-results/mutants.json --sample 20
python -m benchmarks.mutants --json bench-results/mutants.json --list        # survivors so far

For every module its tests are collected once. Then each mutant gets a process of its own (a fork), which puts the
changed code into the functions concerned and runs the tests until one fails. Results are kept by the mutant's key
(function, line, change), so that a run can be stopped and taken up again, and a mutant of a changed line is new.
Constants and defaults outside of functions are not mutated.
"""

import argparse
import gc
import importlib
import json
import os
import random
import resource
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from types import CodeType, FunctionType

import pytest

from benchmarks.mutation import Mutant, mutants

PACKAGE = Path("src/latentalign")
# module -> its own tests, quickest first
TARGETS: dict[str, list[str]] = {
    f"alignment/{name}.py": [f"tests/alignment/test_{test}.py" for test in tests.split()]
    for name, tests in {
        "learning/importance": "importance impossible objectives",
        "learning/objectives": "objectives estimators bad_input pruning",
        "learning/estimators": "estimators objectives bad_input pruning",
        "prediction": "prediction bad_input bad_shapes",
        "latents/pruning": "pruning impossible softmax_head",
        "attention": "attention layer_inputs layer_choices",
        "likelihoods/heads": "likelihood layer_inputs layer_choices softmax_head",
        "likelihoods/likelihood": "likelihood layer_inputs layer_choices prediction bad_shapes softmax_head",
        "likelihoods/softmax_head": "softmax_head layer_inputs layer_choices on_devices",
        "masks": "masks distributions bad_shapes impossible objectives",
        "precision": "layer_inputs layer_choices on_devices",
        "latents/continuous": "continuous pathwise layer_inputs layer_choices",
        "latents/context": "context on_devices",
        "checks": "bad_input bad_shapes",
        "latents/dependence": "prediction estimators chain_objectives",
        "latents/categorical": "distributions objectives metrics",
        "latents/latent": "distributions objectives prediction estimators bad_input",
        "metrics": "metrics",
        "learning/problem": "objectives layer_inputs layer_choices chain_objectives",
        "learning/bound": "objectives",
        "learning/marginal": "objectives bad_shapes",
        "registry": "registry layer_inputs layer_choices",
        "scores": "scores",
        "chains/chain": "chain chain_objectives chain_mistakes",
        "chains/filtering": "chain chain_objectives",
        "chains/forward_backward": "chain hidden_markov",
        "chains/hidden_markov": "hidden_markov",
        "chains/transitions": "chain hidden_markov chain_objectives",
        "chains/matrix": "chain hidden_markov chain_objectives",
        "chains/monotone": "chain chain_objectives",
        "chains/null_state": "null_state",
        "chains/movement": "chain chain_objectives",
    }.items()
}
SECONDS = 60  # of the processor; more is taken for a mutant that hangs
NOT_CHANGED = 77  # exit code: the mutant's code could not be put in


class Judge:
    """A plugin of pytest that runs the collected tests once for every mutant."""

    def __init__(self, target: str, chosen: list[Mutant], results: "Results", until: float) -> None:
        self.target, self.chosen, self.results, self.until = target, chosen, results, until

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if not session.items or self._fate(session, None) != "survived":
            sys.exit(
                f"{self.target}: its tests fail without any mutant; run pytest {' '.join(TARGETS[self.target])}"
            )
        for mutant in self.chosen:
            if time.monotonic() > self.until:
                break
            self.results.add(self.target, mutant, self._fate(session, mutant))
        return True

    def _fate(self, session: pytest.Session, mutant: Mutant | None) -> str:
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
            os._exit(self._child(session, mutant))
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        return {0: "survived", NOT_CHANGED: "not changed", -signal.SIGXCPU: "timeout"}.get(code, "killed")

    def _child(self, session: pytest.Session, mutant: Mutant | None) -> int:
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        if mutant is not None and not _change_functions(_module_name(self.target), mutant):
            return NOT_CHANGED
        for item in session.items:
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            if session.testsfailed:
                return 1
        return 0


def _module_name(target: str) -> str:
    return "latentalign." + target.removesuffix(".py").replace("/", ".")


def _change_functions(module: str, mutant: Mutant) -> bool:
    """Put the mutant's code into every function that was made of the code it changes; whether there was one."""
    path = importlib.import_module(module).__file__
    assert path is not None
    old, new = (_functions(compile(tree, path, "exec")) for tree in (mutant.original(), mutant.tree()))
    changed = {name: code for name, code in new.items() if code != old[name]}
    found = False
    for thing in gc.get_objects():
        if type(thing) is FunctionType and thing.__code__.co_filename == path:
            code = changed.get(thing.__code__.co_qualname)
            if code is not None and len(code.co_freevars) == len(thing.__code__.co_freevars):
                thing.__code__ = code
                found = True
    return found


def _functions(code: CodeType) -> dict[str, CodeType]:
    """Code of the functions and methods of a module, under their qualified names."""
    found = {}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            is_function = bool(
                constant.co_flags & 2
            )  # has fast locals: a function and not the body of a class
            found.update({constant.co_qualname: constant} if is_function else _functions(constant))
    return found


class Results:
    """Fates by module and mutant, on disk after each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fates: dict[str, dict[str, str]] = json.loads(path.read_text()) if path.exists() else {}

    def add(self, target: str, mutant: Mutant, fate: str) -> None:
        self.fates.setdefault(target, {})[mutant.key] = fate
        print(f"{fate:8} {target}:{mutant.line} {mutant.key}", file=sys.stderr, flush=True)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.fates, indent=1, ensure_ascii=False) + "\n")
        part.replace(self.path)

    def left(self, target: str, options: argparse.Namespace) -> list[Mutant]:
        """What is to be judged; mutants of lines that are gone are forgotten."""
        every = mutants((PACKAGE / target).read_text())
        fates = self.fates.setdefault(target, {})
        for key in set(fates) - {mutant.key for mutant in every}:
            del fates[key]
        chosen = random.Random(options.seed).sample(every, min(options.sample or len(every), len(every)))
        done = ("killed",) if options.again else ("killed", "survived", "timeout")
        return [mutant for mutant in chosen if fates.get(mutant.key) not in done]

    def report(self, target: str) -> None:
        fates = self.fates.get(target, {})
        counts = Counter(fates.values())
        if fates:
            print(
                f"{target}: {len(fates)} mutants, {counts['survived']} survived, {counts['timeout']} timed out"
            )
        for key, fate in fates.items():
            if fate == "survived":
                print(f"    {key}")


def judge_module(target: str, options: argparse.Namespace, until: float) -> int:
    """In a process of its own, since each module needs its tests imported afresh."""
    results = Results(options.json)
    chosen = results.left(target, options)
    if not chosen:
        return 0
    # torch may have been imported before pytest could look at it
    warnings = "ignore::pytest.PytestAssertRewriteWarning"
    arguments = ["-q", "-p", "no:cacheprovider", "-p", "no:faulthandler", "-W", warnings, *TARGETS[target]]
    return int(pytest.main(arguments, plugins=[Judge(target, chosen, results, until)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=Path("bench-results/mutants.json"))
    parser.add_argument(
        "--only", nargs="*", default=list(TARGETS), choices=list(TARGETS), help="some modules"
    )
    parser.add_argument("--sample", type=int, default=0, help="so many of each module; 0 = all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument("--list", action="store_true", help="what is known; run nothing")
    parser.add_argument("--again", action="store_true", help="judge survivors once more")
    options = parser.parse_args()
    until = time.monotonic() + 60 * options.minutes
    for target in [] if options.list else options.only:
        child = os.fork()
        if child == 0:
            os._exit(judge_module(target, options, until))
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status):
            sys.exit(1)
    for target in options.only:
        Results(options.json).report(target)


if __name__ == "__main__":
    main()
