"""Mutants: what is changed, and that the changed code can be put into a function that is there already."""

from pathlib import Path
from types import FunctionType

import pytest
from benchmarks.equivalent_mutants import EQUIVALENT
from benchmarks.mutants import _change_functions
from benchmarks.mutation import mutants

import latentalign

SOURCE = '''
def mean(values, *, least=1):
    """Not this 1."""
    if not values:
        raise ValueError("no 1")
    return sum(values) / max(least, len(values) - 1 + 1)


class Loud(list):
    def append(self, value):
        super().append(value)
'''


def test_every_computation_is_changed_once_and_texts_and_defaults_are_not():
    assert [(found.function, found.key.rpartition(" [")[2].rstrip("]")) for found in mutants(SOURCE)] == [
        ("mean", "negate the condition"),
        ("mean", "drop Not"),
        ("mean", "drop the statement"),
        ("mean", "Div -> Mult"),
        ("mean", "sum -> mean"),
        ("mean", "max -> min"),
        ("mean", "Add -> Sub"),
        ("mean", "Sub -> Add"),
        ("mean", "1 -> 0"),
        ("mean", "1 -> 0] #2"),
        ("Loud.append", "drop the statement"),
    ]


def test_a_mutant_is_put_into_the_functions_that_exist():
    for found in mutants(SOURCE):
        names: dict[str, object] = {}
        exec(compile(found.original(), "here.py", "exec"), names)
        functions = [names["mean"], names["Loud"].append]
        before = [function.__code__ for function in functions]
        assert all(isinstance(function, FunctionType) for function in functions)
        assert _change_functions(functions, found), found.key
        changed = [function.__code__ != code for function, code in zip(functions, before, strict=True)]
        assert changed == [found.function == "mean", found.function != "mean"]


@pytest.mark.parametrize("path", EQUIVALENT)
def test_mutants_that_are_called_equivalent_exist(path):
    """A line that was changed since has to be judged again."""
    source = (Path(latentalign.__file__).parent / path).read_text(encoding="utf-8")
    assert not EQUIVALENT[path].keys() - {found.key for found in mutants(source)}


def test_what_a_dropped_statement_refers_to_stays_in_reach():
    dropped = mutants(SOURCE)[-1]
    names: dict[str, object] = {}
    exec(compile(dropped.original(), "here.py", "exec"), names)
    assert _change_functions([names["Loud"].append], dropped)
    loud = names["Loud"]()
    loud.append(1)
    assert loud == []
