"""Expected counts of a hidden Markov model against all of its paths, and against the chain's own recursion."""

import math

import pytest
import torch
from torch import Tensor

from latentalign.alignment.chains.forward_backward import (
    Inputs,
    Null,
    flow,
    pair_counts,
    run_backward,
    run_filter,
)
from latentalign.alignment.chains.hidden_markov import ExpectedCounts, expected_counts
from latentalign.alignment.chains.matrix import MatrixTransitions
from latentalign.alignment.chains.transitions import LOG_ZERO
from latentalign.alignment.errors import ConfigError
from tests import chain_oracles
from tests.chain_oracles import PlainChain

DOUBLE = torch.float64
CLOSE = {"rtol": 1e-10, "atol": 1e-12}


class Setting:
    """Three examples of different sizes, padded, with tables of their own."""

    lengths, widths = (3, 2, 1), (3, 2, 3)

    def __init__(self, null: float, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)

        def random(*shape: int) -> Tensor:
            return torch.rand(*shape, generator=generator, dtype=DOUBLE) + 0.05

        self.null = null
        self.emission, self.nowhere, self.end = random(3, 3, 3), random(3, 3), random(3, 3)
        self.mask = torch.arange(3) < torch.tensor(self.widths)[:, None]
        self.steps = torch.arange(3) < torch.tensor(self.lengths)[:, None]
        self.transitions = random(3, 3, 3) * self.mask[:, None]
        self.transitions = self.transitions / self.transitions.sum(dim=-1, keepdim=True)
        self.start = random(3, 3) * self.mask
        self.start = self.start / self.start.sum(dim=-1, keepdim=True)

    def counts(self, rows: slice = slice(None), **options: Tensor) -> ExpectedCounts:
        return expected_counts(
            self.emission[rows],
            self.transitions[rows],
            self.start[rows],
            mask=self.mask[rows],
            steps=self.steps[rows],
            null=self.null,
            null_emission=self.nowhere[rows],
            **options,
        )

    def plain(self, b: int) -> tuple[PlainChain, list, list]:
        size = self.widths[b]
        chain = PlainChain(
            scores=[[0.0] * size] * self.lengths[b],
            jumps=self.transitions[b, :size, :size].log().tolist(),
            start=self.start[b, :size].log().tolist(),
            null=self.null,
        )
        count = self.lengths[b]
        return chain, self.emission[b, :count, :size].log().tolist(), self.nowhere[b, :count].log().tolist()


@pytest.mark.parametrize("with_end", [False, True])
@pytest.mark.parametrize("null", [0.0, 0.3])
def test_counts_are_those_of_all_paths(null: float, with_end: bool) -> None:
    setting = Setting(null)
    found = setting.counts(**({"end": setting.end} if with_end else {}))
    for b, (count, size) in enumerate(zip(setting.lengths, setting.widths, strict=True)):
        chain, log_f, nowhere = setting.plain(b)
        joint = {}
        for path, chance in chain.paths(count):
            last = [i for i in path if i >= 0][-1:]
            factor = float(setting.end[b, last[0]]) if with_end and last else 1.0
            joint[path] = chance * factor * math.exp(chain_oracles.outputs(path, log_f, nowhere))
        mass = sum(joint.values())
        law = {path: value / mass for path, value in joint.items()}
        assert found.log_evidence[b].item() == pytest.approx(math.log(mass))
        marginals = torch.tensor(chain_oracles.marginals(law, size), dtype=DOUBLE)
        torch.testing.assert_close(found.positions[b, :count, :size], marginals, **CLOSE)
        torch.testing.assert_close(found.null[b, :count], 1 - marginals.sum(dim=-1), rtol=0, atol=1e-12)
        pairs = torch.tensor(chain_oracles.pairs(law, size), dtype=DOUBLE).sum(dim=0)
        torch.testing.assert_close(found.transitions[b, :size, :size], pairs, **CLOSE)
        for counts, place in ((found.start, 0), (found.end, -1)):
            expected = torch.zeros(size, dtype=DOUBLE)
            for path, chance in law.items():
                real = [i for i in path if i >= 0]
                if real:
                    expected[real[place]] += chance
            torch.testing.assert_close(counts[b, :size], expected, **CLOSE)
    # nothing is counted at padding
    assert found.positions[~setting.steps].abs().max() == 0
    assert found.null[~setting.steps].abs().max() == 0
    assert found.positions.transpose(1, 2)[~setting.mask].abs().max() == 0


def test_a_batch_counts_as_its_examples_one_by_one() -> None:
    setting = Setting(0.2, seed=3)
    together = setting.counts()
    for b in range(3):
        alone = setting.counts(slice(b, b + 1))
        for name, value in vars(alone).items():
            torch.testing.assert_close(value[0], getattr(together, name)[b])


def test_it_agrees_with_the_recursion_in_logarithms() -> None:
    setting = Setting(0.25, seed=5)
    found = setting.counts()
    odds = math.log(0.25 / 0.75)
    given = Inputs(
        torch.zeros(3, 3, 3, dtype=DOUBLE).masked_fill(~setting.mask[:, None], LOG_ZERO),
        setting.emission.log(),
        setting.start.log().clamp_min(LOG_ZERO),
        MatrixTransitions(setting.transitions.clamp_min(1e-9).log()),
        setting.steps,
        Null(
            torch.full((3, 3, 3), odds, dtype=DOUBLE),
            torch.full((3, 3), odds, dtype=DOUBLE),
            setting.nowhere.log(),
        ),
    )
    filtered = run_filter(given)
    last = torch.zeros(3, 3, dtype=DOUBLE).scatter(1, torch.tensor(setting.lengths)[:, None] - 1, 1.0)
    back = run_backward(given, filtered, last)
    torch.testing.assert_close(found.log_evidence, filtered.log_c.sum(dim=-1))
    torch.testing.assert_close(found.positions, flow(given, filtered, back).positions)
    torch.testing.assert_close(found.transitions, pair_counts(given, filtered, back), rtol=1e-7, atol=1e-9)


def test_float32_is_enough_for_long_sentences() -> None:
    generator = torch.Generator().manual_seed(0)
    emission = torch.rand(2, 200, 60, generator=generator, dtype=DOUBLE) * 1e-9
    place = torch.arange(60)
    jumps = torch.exp(-(place - place[:, None] - 1).abs().double() / 3) + 1e-3
    jumps = jumps / jumps.sum(dim=-1, keepdim=True)
    start = torch.full((60,), 1 / 60, dtype=DOUBLE)
    exact = expected_counts(emission, jumps, start)
    rough = expected_counts(emission.float(), jumps.float(), start.float())
    torch.testing.assert_close(rough.log_evidence.double(), exact.log_evidence, rtol=1e-5, atol=0)
    torch.testing.assert_close(rough.positions.double(), exact.positions, rtol=0, atol=1e-4)


def test_an_example_without_a_path_counts_nothing() -> None:
    emission = torch.tensor([[[1.0, 0.0]], [[1.0, 0.0]]])
    found = expected_counts(emission, torch.eye(2), torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    assert found.log_evidence.tolist() == [-math.inf, 0.0]
    assert found.positions.tolist() == [[[0.0, 0.0]], [[1.0, 0.0]]]
    assert found.null.tolist() == [[0.0], [0.0]]


def test_a_null_state_needs_its_emission() -> None:
    with pytest.raises(ConfigError, match=r"null_emission: expected .* received none; pass it"):
        expected_counts(torch.ones(1, 1, 2), torch.eye(2), torch.ones(2), null=0.1)
