"""Break the library in small ways, one at a time, and list the faults that no test notices.

python -m benchmarks.mutants --minutes 30      # as many as there is time for, spread over all functions
python -m benchmarks.mutants --list            # what is known; run nothing

The tests of a part are run once under a profiler: which functions does each enter, and how long does it take? Then
each mutant gets a process of its own (a fork), which puts the changed code into the function concerned and runs the
tests that enter it, until one fails: those that noticed others of its function first, then the quickest. They get
`--seconds` altogether, so that a survivor may only mean that a slower test is needed to see it; `--again` with more
seconds finds out.

What is known of tests and mutants is kept on disk: a run can be stopped and taken up again, a mutant of a changed
line is new, and a changed file of tests is measured again. Constants and defaults outside of functions are not
mutated.
"""

import argparse
import gc
import hashlib
import inspect
import json
import os
import random
import resource
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import chain, zip_longest
from pathlib import Path
from types import CodeType, FrameType, FunctionType

import pytest

from benchmarks.equivalent_mutants import EQUIVALENT
from benchmarks.mutation import Mutant, mutants

PACKAGE = Path("src/latentalign")
SECONDS = 40  # of the processor; more is taken for a mutant that hangs
SLOW = "*on_devices.py"  # the same once more on other devices
NOT_CHANGED = 77  # exit code: the mutant's code could not be put in


@dataclass(frozen=True)
class Part:
    """Modules, and the tests that are to notice what is wrong with them."""

    modules: list[str]  # below the package; a folder stands for all in it
    tests: list[str]

    def targets(self) -> list[str]:
        found = chain.from_iterable(
            [PACKAGE / name] if name.endswith(".py") else sorted((PACKAGE / name).rglob("*.py"))
            for name in self.modules
        )
        return [str(path.relative_to(PACKAGE)) for path in found]


PARTS = {
    "alignment": Part(["alignment"], ["tests/alignment"]),
    "search": Part(
        ["translation/beam", "translation/ensemble.py", "translation/align.py", "text/symmetrise.py"],
        [
            "tests/translation/test_align.py",
            "tests/translation/test_chain.py",
            "tests/translation/test_decoding.py",
            "tests/translation/test_ensemble.py",
            "tests/translation/test_latents.py",
            "tests/translation/test_position_pruning.py",
            "tests/translation/test_piece_links.py",
            "tests/translation/test_search.py",
            "tests/translation/test_transformer.py",
            "tests/translation/test_translate.py",
            "tests/text",
        ],
    ),
    "aligner": Part(["wordalign"], ["tests/wordalign"]),
}


@dataclass(frozen=True)
class Measured:
    """What is known of a test."""

    test: str
    file: str  # digest of the file it stands in
    seconds: float
    enters: list[str]  # functions, as target:name

    @property
    def key(self) -> tuple[str, str]:
        return self.test, self.file


class Tests:
    """The collected tests of a part."""

    def __init__(self, session: pytest.Session, memory: Path) -> None:
        self.session, self.memory = session, memory
        self.items = {item.nodeid: item for item in session.items}
        self.digests = {item.path: _digest(item.path) for item in session.items}

    def entering(self, seconds: float) -> dict[str, list[pytest.Item]]:
        """The tests that enter a function, quickest first: as many as take so many seconds, and one at least."""
        found: dict[str, list[pytest.Item]] = defaultdict(list)
        spent: dict[str, float] = defaultdict(float)
        for measured in sorted(self._measured(), key=lambda measured: measured.seconds):
            for function in measured.enters:
                if not found[function] or spent[function] + measured.seconds <= seconds:
                    found[function].append(self.items[measured.test])
                    spent[function] += measured.seconds
        return found

    def _measured(self) -> Iterator[Measured]:
        wanted = {(name, self.digests[item.path]): item for name, item in self.items.items()}
        new = wanted.keys() - {measured.key for measured in self._remembered()}
        # in the order of the files, in a process of its own: what a test leaves behind is to disturb no mutant
        if _fork(lambda: self._measure([item for key, item in wanted.items() if key in new])):
            sys.exit("a test fails without any mutant; run pytest")
        return (measured for measured in self._remembered() if measured.key in wanted)

    def _remembered(self) -> list[Measured]:
        lines = self.memory.read_text().splitlines() if self.memory.exists() else []
        return [Measured(**json.loads(line)) for line in lines]

    def _measure(self, items: list[pytest.Item]) -> int:
        self.memory.parent.mkdir(parents=True, exist_ok=True)
        with self.memory.open("a") as file:
            for item in items:
                enters: set[str] = set()
                start = time.process_time()
                sys.setprofile(_note_calls(enters))
                failing = _first_failing(self.session, [item])
                sys.setprofile(None)
                if failing is not None:
                    print(f"fails: {item.nodeid}", file=sys.stderr)
                    return 1
                seconds = round(time.process_time() - start, 3)
                measured = Measured(item.nodeid, self.digests[item.path], seconds, sorted(enters))
                print(json.dumps(asdict(measured)), file=file, flush=True)
        return 0


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _note_calls(found: set[str]):  # type: ignore[no-untyped-def]
    """A profiler that notes which functions of the package are entered; a nested one counts as the outer one."""
    package = str(PACKAGE.resolve()) + os.sep
    seen: set[CodeType] = set()

    def profile(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code not in seen:
            seen.add(code)
            if code.co_filename.startswith(package):
                function = code.co_qualname.split(".<locals>")[0]
                found.add(f"{code.co_filename.removeprefix(package)}:{function}")

    return profile


def _first_failing(session: pytest.Session, items: list[pytest.Item]) -> int | None:
    """The number of the first test that fails."""
    for number, item in enumerate(items):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        if session.testsfailed:
            return number
    return None


def _fork(task) -> int:  # type: ignore[no-untyped-def]
    """The exit code of a task in a process of its own; minus the signal that ended it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = task()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Judge:
    """A plugin of pytest that runs the collected tests for every mutant instead of once."""

    def __init__(
        self, chosen: list[tuple[str, Mutant]], results: "Results", *, seconds: float, until: float
    ) -> None:
        self.chosen, self.results, self.seconds, self.until = chosen, results, seconds, until
        self.kills: Counter[tuple[str, str]] = (
            Counter()
        )  # (module or function, test) -> mutants that it noticed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        tests = Tests(session, self.results.path.with_suffix(".tests.jsonl")).entering(self.seconds)
        functions = _functions_by_file()
        gc.freeze()  # else every process would walk through all that is imported, again and again
        for target, mutant in self.chosen:
            if time.monotonic() > self.until:
                break
            items = self._by_kills(tests.get(f"{target}:{mutant.function}", []), target, mutant)
            in_file = functions[str((PACKAGE / target).resolve())]
            fate, number = _fate(session, mutant, items, in_file)
            if number is not None:
                for place in (target, f"{target}:{mutant.function}"):
                    self.kills[place, items[number].nodeid] += 1
            self.results.add(target, mutant, fate)
        return True

    def _by_kills(self, items: list[pytest.Item], target: str, mutant: Mutant) -> list[pytest.Item]:
        """Tests that have noticed mutants of the same function or module first, then the quickest."""
        places = (f"{target}:{mutant.function}", target)
        return sorted(items, key=lambda item: [-self.kills[place, item.nodeid] for place in places])


def _fate(
    session: pytest.Session, mutant: Mutant, items: list[pytest.Item], functions: list[FunctionType]
) -> tuple[str, int | None]:
    """What becomes of a mutant, and the number of the test that notices it."""
    if not items:
        return "not entered", None
    read, write = os.pipe()

    def child() -> int:
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
        signal.alarm(60 * SECONDS)  # a mutant that waits for ever takes no time of the processor
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        if not _change_functions(functions, mutant):
            return NOT_CHANGED
        number = _first_failing(session, items)
        if number is None:
            return 0
        os.write(write, str(number).encode())
        return 1

    fates = {
        0: "survived",
        NOT_CHANGED: "not changed",
        -signal.SIGXCPU: "timeout",
        -signal.SIGALRM: "timeout",
    }
    fate = fates.get(_fork(child), "killed")
    os.close(write)
    told = os.read(read, 20)
    os.close(read)
    return fate, int(told) if told else None


def _functions_by_file() -> dict[str, list[FunctionType]]:
    found: dict[str, list[FunctionType]] = defaultdict(list)
    for thing in gc.get_objects():
        if type(thing) is FunctionType:
            found[thing.__code__.co_filename].append(thing)
    return found


def _change_functions(functions: list[FunctionType], mutant: Mutant) -> bool:
    """Put the mutant's code into every function that was made of the code it changes; whether there was one."""
    path = functions[0].__code__.co_filename
    old, new = (_functions(compile(tree, path, "exec")) for tree in (mutant.original(), mutant.tree()))
    changed = {name: code for name, code in new.items() if code != old.get(name)}
    found = False
    for function in functions:
        code = changed.get(function.__code__.co_qualname)
        if code is not None and len(code.co_freevars) == len(function.__code__.co_freevars):
            function.__code__ = code
            found = True
    return found


def _functions(code: CodeType) -> dict[str, CodeType]:
    """Code of the functions and methods of a module, nested ones too, under their qualified names."""
    found = {}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found.update(_functions(constant))
            is_function = constant.co_flags & inspect.CO_OPTIMIZED  # and not the body of a class
            if is_function and not constant.co_name.startswith("<"):  # several lambdas may have one name
                found[constant.co_qualname] = constant
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

    def left(self, targets: list[str], options: argparse.Namespace) -> list[tuple[str, Mutant]]:
        """What is to be judged: a mutant of every function, then a second one of each, and so on."""
        done = ("killed",) if options.again else ("killed", "survived", "timeout", "not entered")
        columns = []
        for target in targets:
            fates = self.current(target)
            functions = defaultdict(list)
            for mutant in mutants((PACKAGE / target).read_text()):
                functions[mutant.function].append(mutant)
            for choices in functions.values():
                random.Random(options.seed).shuffle(choices)
                columns.append([(target, mutant, fates.get(mutant.key)) for mutant in choices])
        rounds = list(zip_longest(*columns))[: options.sample or None]
        chosen = [choice for round_ in rounds for choice in round_ if choice is not None]
        return [
            (target, mutant)
            for target, mutant, fate in chosen
            if fate not in done
            and (fate is not None or not options.again)
            and mutant.key not in EQUIVALENT.get(target, {})
        ]

    def current(self, target: str) -> dict[str, str]:
        """Fates of the mutants of a module as it is now; those of lines that are gone are forgotten."""
        keys = {mutant.key for mutant in mutants((PACKAGE / target).read_text())}
        fates = self.fates.setdefault(target, {})
        for key in fates.keys() - keys:
            del fates[key]
        return fates

    def report(self, part: str, targets: list[str]) -> None:
        every = {target: mutants((PACKAGE / target).read_text()) for target in targets}
        functions = {(target, mutant.function) for target in targets for mutant in every[target]}
        judged = {
            (target, mutant.function)
            for target in targets
            for mutant in every[target]
            if mutant.key in self.current(target)
        }
        counts: Counter[str] = Counter()
        for target in targets:
            known = EQUIVALENT.get(target, {})
            for key, fate in self.current(target).items():
                fate = "equivalent" if key in known and fate != "killed" else fate
                counts[fate] += 1
                if fate in ("survived", "not entered"):
                    print(f"    {fate}: {target} {key}")
            for key in known.keys() - {mutant.key for mutant in every[target]}:
                print(f"    no such mutant any more: {target} {key}")
        print(
            f"{part}: {sum(counts.values())} of {sum(map(len, every.values()))} mutants judged, "
            f"in {len(judged)} of {len(functions)} functions: {dict(counts)}"
        )


def judge_part(name: str, options: argparse.Namespace, until: float) -> int:
    results = Results(options.json)
    targets = [target for target in PARTS[name].targets() if _is_wanted(target, options.only)]
    chosen = results.left(targets, options)
    if not chosen:
        return 0
    # torch may have been imported before pytest could look at it; a busy machine is no reason for a timeout
    warnings = "ignore::pytest.PytestAssertRewriteWarning"
    plugins = ["-p", "no:cacheprovider", "-p", "no:faulthandler"]
    arguments = ["-q", "--timeout", "0", "--ignore-glob", SLOW, "--tb", "native", *plugins, "-W", warnings]
    arguments += PARTS[name].tests
    judge = Judge(chosen, results, seconds=options.seconds, until=until)
    return int(pytest.main(arguments, plugins=[judge]))


def _is_wanted(target: str, only: list[str]) -> bool:
    return not only or any(target.startswith(prefix) for prefix in only)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=Path("bench-results/mutants.json"))
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--only", nargs="*", default=[], help="modules whose path starts like this")
    parser.add_argument("--sample", type=int, default=0, help="so many of each function; 0 = all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=5.0, help="of tests for each mutant")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument("--list", action="store_true", help="what is known; run nothing")
    parser.add_argument("--again", action="store_true", help="judge survivors once more, and nothing else")
    options = parser.parse_args()
    until = time.monotonic() + 60 * options.minutes
    for part in [] if options.list else options.parts:
        if _fork(lambda part=part: judge_part(part, options, until)):
            sys.exit(1)
    for part in options.parts:
        Results(options.json).report(part, PARTS[part].targets())


if __name__ == "__main__":
    main()
