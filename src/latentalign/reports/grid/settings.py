"""What a grid is over, as plain values that another process can read."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class GridSettings:
    """What a grid is over. Plain values: another process gets them as JSON."""

    task: str
    recipe: str
    runs: str
    data: Mapping[str, Any]  # changes to the recipe's `data:`
    test: Mapping[str, str]  # arguments of the task's dataset
    adopt: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (1,)
    every_seed: bool = False
    only: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()  # a.b=c, over the recipe
    beam: int = 10
    samples: int = 20  # of sampled prediction

    @classmethod
    def from_json(cls, text: str) -> "GridSettings":
        values = json.loads(text)
        for name in ("adopt", "seeds", "only", "changes"):
            values[name] = tuple(values[name])
        return cls(**values)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @property
    def recipe_name(self) -> str:
        """The recipe without the folder it lies in."""
        return Path(self.recipe).stem if self.recipe.endswith((".yaml", ".yml")) else self.recipe

    @property
    def measured_on(self) -> dict[str, Any]:
        """What a measurement depends on besides the weights; a change makes it be taken again."""
        files = {
            name: _digest(Path(value)) if Path(value).is_file() else value
            for name, value in self.test.items()
        }
        return {"test": files, "beam": self.beam, "samples": self.samples}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
