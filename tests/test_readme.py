"""The README's example runs as printed and shows what the README says it shows."""

import contextlib
import io
import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
LINE = re.compile(r"(\w+)\s+NLL ([\d.]+)  true item found by attention (\d+)%, by posterior (\d+)%")


@pytest.fixture(scope="module")
def blocks() -> tuple[str, str]:
    """The first Python block and the output printed below it."""
    found = re.search(r"```python\n(.*?)```\s*```\n(.*?)```", README.read_text(encoding="utf-8"), re.S)
    assert found
    return found[1], found[2]


def _numbers(text: str) -> dict[str, list[float]]:
    return {name: [float(value) for value in values] for name, *values in LINE.findall(text)}


def test_the_example_is_short(blocks: tuple[str, str]) -> None:
    assert len([line for line in blocks[0].splitlines() if line.strip()]) <= 20


def test_the_example_prints_what_the_readme_says(blocks: tuple[str, str]) -> None:
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        exec(compile(blocks[0], "README.md", "exec"), {})
    ran, printed = _numbers(stream.getvalue()), _numbers(blocks[1])
    assert ran.keys() == printed.keys() == {"soft", "marginal"}
    for objective in ran:
        # other machines round differently: the figures agree, not the bits
        assert ran[objective] == pytest.approx(printed[objective], rel=0.05)
    assert ran["marginal"][0] < 0.8 * ran["soft"][0]
    # like with like: each posterior against its own attention, and the two posteriors against each other
    for _, attention, posterior in ran.values():
        assert posterior > 2 * attention
    assert ran["marginal"][2] == pytest.approx(ran["soft"][2], abs=3)
