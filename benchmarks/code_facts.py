"""Facts about the code of some revisions, side by side: how much there is, and how much of it is hard to read.

python -m benchmarks.code_facts bb7a4fe HEAD

Reads the revisions from git, runs nothing. A passage stands twice if six lines in a row, each of at least ten
characters without its indentation, are in two places.
"""

import argparse
import ast
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePath

PACKAGE = "src/latentalign"
LONG = 50  # lines of a function
PASSAGE, SHORTEST = 6, 10


@dataclass(frozen=True)
class Revision:
    """The modules of the package at a revision."""

    sources: dict[str, str]  # path -> text

    @classmethod
    def read(cls, name: str) -> "Revision":
        listed = _git("ls-tree", "-r", "--name-only", name, PACKAGE).splitlines()
        return cls({path: _git("show", f"{name}:{path}") for path in listed if path.endswith(".py")})

    def nodes(self, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
        for text in self.sources.values():
            yield from (node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds))

    def lines(self) -> int:
        return sum(text.count("\n") for text in self.sources.values())

    def largest_folder(self) -> str:
        count = Counter(str(PurePath(path).parent.relative_to(PACKAGE)) for path in self.sources)
        folder, modules = count.most_common(1)[0]
        return f"{modules} ({folder})"

    def longest_module(self) -> int:
        return max(text.count("\n") for text in self.sources.values())

    def _function_lengths(self) -> list[int]:
        found = []
        for node in self.nodes(ast.FunctionDef, ast.AsyncFunctionDef):
            assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            assert node.end_lineno is not None
            found.append(node.end_lineno - node.lineno + 1)
        return sorted(found, reverse=True)

    def longest_functions(self) -> str:
        return ", ".join(map(str, self._function_lengths()[:5]))

    def long_functions(self) -> int:
        return sum(length > LONG for length in self._function_lengths())

    def namesakes(self) -> int:
        names = Counter(node.name for node in self.nodes(ast.ClassDef) if isinstance(node, ast.ClassDef))
        return sum(count > 1 for count in names.values())

    def type_questions(self) -> int:
        names = Counter(node.id for node in self.nodes(ast.Name) if isinstance(node, ast.Name))
        return names["isinstance"] + names["getattr"] + names["hasattr"]

    def passages_twice(self) -> int:
        """Windows of lines that stand in more than one place; windows that overlap count once."""
        places: dict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
        for path, text in self.sources.items():
            lines = [line.strip() for line in text.splitlines()]
            for number in range(len(lines) - PASSAGE + 1):
                window = tuple(lines[number : number + PASSAGE])
                if all(len(line) >= SHORTEST for line in window):
                    places[window].append((path, number))
        repeated = {place for found in places.values() if len(found) > 1 for place in found}
        return sum((path, number - 1) not in repeated for path, number in repeated) // 2


FACTS: dict[str, Callable[[Revision], object]] = {
    "modules": lambda revision: len(revision.sources),
    "lines of code": Revision.lines,
    "longest module, lines": Revision.longest_module,
    "modules in the fullest folder": Revision.largest_folder,
    "longest functions, lines": Revision.longest_functions,
    f"functions over {LONG} lines": Revision.long_functions,
    "class names with two meanings": Revision.namesakes,
    "isinstance, getattr, hasattr": Revision.type_questions,
    "passages that stand twice": Revision.passages_twice,
}


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("revisions", nargs="+")
    names = parser.parse_args().revisions
    revisions = [Revision.read(name) for name in names]
    print("| | " + " | ".join(names) + " |")
    print("|---" * (len(names) + 1) + "|")
    for name, fact in FACTS.items():
        print(f"| {name} | " + " | ".join(str(fact(revision)) for revision in revisions) + " |")


if __name__ == "__main__":
    main()
