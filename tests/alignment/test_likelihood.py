"""log f at pairs, everywhere and for mixtures, whole or in recomputed chunks."""

import math

import pytest
import torch
from torch import Tensor

from latentalign.alignment import ConfigError, ContextLikelihood, Likelihood, TableLikelihood
from tests import oracles
from tests.alignment import problems
from tests.alignment.problems import EXACT

DOUBLE = torch.float64


def shaped(problem: problems.Problem) -> tuple[int, int, int]:
    return tuple(problem.prior_scores.shape)


@pytest.mark.parametrize("seed", range(3))
def test_values_at_pairs_everywhere_and_for_mixtures(seed: int) -> None:
    problem = problems.make(seed, lengths=(3, 2), steps=3)
    plain, f = problem.plain(), problem.likelihood()
    tables = torch.tensor([[plain.output(b, t).log_f for t in range(3)] for b in range(2)], dtype=DOUBLE)
    mask = problem.mask[:, None].expand(2, 3, 3)
    torch.testing.assert_close(f.everywhere(mask), tables * mask, **EXACT)

    chosen = torch.tensor([1, 0, 0]), torch.tensor([2, 0, 2]), torch.tensor([1, 2, 0])
    torch.testing.assert_close(f.pairs(*chosen), tables[chosen], **EXACT)

    positions = torch.randint(2, (4, 2, 3), generator=torch.Generator().manual_seed(seed))
    expected = torch.stack([tables.gather(-1, row[..., None])[..., 0] for row in positions])
    torch.testing.assert_close(f.at(positions), expected, **EXACT)

    soft = torch.tensor([[plain.output(b, t).soft for t in range(3)] for b in range(2)], dtype=DOUBLE)
    z = problem.prior().probs
    torch.testing.assert_close(f.mixture(z), soft, **EXACT)
    both = torch.stack([z, problem.posterior().probs])
    torch.testing.assert_close(f.mixture(both)[0], soft, **EXACT)
    torch.testing.assert_close(f.mixture(both)[1], f.mixture(problem.posterior().probs), **EXACT)


def test_everywhere_asks_the_head_for_real_pairs_only() -> None:
    problem = problems.make(0, lengths=(5, 2, 1), steps=4)
    asked = []

    def head(context: Tensor, query: Tensor) -> Tensor:
        asked.append(context.shape[0])
        return problem.head(context, query)

    f = ContextLikelihood(head, problem.values, problem.queries, problem.targets, width=3)
    f.everywhere(problem.mask[:, None].expand(3, 4, 5))
    assert asked == [4 * (5 + 2 + 1)]


def test_log_probs_of_every_output_value() -> None:
    problem = problems.make(2, lengths=(3, 2), steps=2)
    plain, f = problem.plain(), problem.likelihood()
    chosen = torch.tensor([1, 0]), torch.tensor([1, 0]), torch.tensor([1, 2])
    expected = [
        [
            oracles.table(plain.values[b], plain.queries[b][t], plain.weight, y)[s]
            for y in range(len(plain.weight))
        ]
        for b, t, s in zip(*(index.tolist() for index in chosen), strict=True)
    ]
    torch.testing.assert_close(f.log_probs_pairs(*chosen).tolist(), expected, **EXACT)
    mixtures = problem.posterior().probs
    at_mixtures = f.log_probs_mixture(mixtures)
    assert at_mixtures.shape == (2, 2, 3)
    torch.testing.assert_close(at_mixtures.exp().sum(dim=-1), torch.ones(2, 2, dtype=torch.float64))
    torch.testing.assert_close(
        at_mixtures.gather(-1, problem.targets[..., None])[..., 0], f.mixture(mixtures)
    )
    one = oracles.log_likelihood(
        plain.values[1], plain.queries[1][0], plain.weight, 2, mixtures[1, 0].tolist()
    )
    assert at_mixtures[1, 0, 2].item() == pytest.approx(one)


@pytest.mark.parametrize("max_elements", [1, 7, 12, 40])
def test_chunks_change_neither_values_nor_gradients(max_elements: int) -> None:
    problem = problems.make(5, lengths=(4, 2), steps=3)
    mask = problem.mask[:, None].expand(2, 3, 4)
    whole, chunked = problem.likelihood(), problem.likelihood(max_elements=max_elements)

    def compare(function) -> None:
        found, expected = function(chunked), function(whole)
        torch.testing.assert_close(found, expected, **EXACT)
        slopes = torch.randn(found.shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
        problems.assert_same_gradients(
            problem.gradients((found * slopes).sum()), problem.gradients((expected * slopes).sum())
        )

    compare(lambda f: f.everywhere(mask))
    compare(lambda f: f.mixture(problem.prior().probs.expand(5, 2, 3, 4)))
    compare(lambda f: f.at(torch.ones(4, 2, 3, dtype=torch.long)))


def test_chunks_bound_what_exists_at_once_and_are_computed_again_in_the_backward_pass() -> None:
    problem = problems.make(0, lengths=(4, 4), steps=3)
    rows = []

    def head(context: Tensor, query: Tensor) -> Tensor:
        rows.append(context.shape[0])
        return problem.head(context, query)

    f = ContextLikelihood(head, problem.values, problem.queries, problem.targets, width=3, max_elements=15)
    value = f.everywhere(torch.ones(2, 3, 4, dtype=torch.bool)).sum()
    assert rows == [5, 5, 5, 5, 4]
    value.backward()
    assert sorted(rows[5:]) == [4, 5, 5, 5, 5]
    assert max(rows) * 3 <= 15


def test_without_gradients_nothing_is_computed_twice() -> None:
    problem = problems.make(0, lengths=(4,), steps=2)
    f = problem.likelihood(max_elements=4)
    with torch.no_grad():
        assert not f.everywhere(torch.ones(1, 2, 4, dtype=torch.bool)).requires_grad


def test_detach_keeps_values_and_drops_the_graph() -> None:
    problem = problems.make()
    f = problem.likelihood()
    cut = f.detach()
    mask = problem.mask[:, None].expand(shaped(problem))
    for found, expected in (
        (cut.everywhere(mask), f.everywhere(mask)),
        (cut.mixture(problem.prior().probs), f.mixture(problem.prior().probs)),
        (TableLikelihood(f.everywhere(mask)).detach().everywhere(mask), f.everywhere(mask)),
    ):
        assert not found.requires_grad
        assert torch.equal(found, expected)


def test_a_head_may_return_a_distribution() -> None:
    values = torch.tensor([[[0.0], [2.0]]], dtype=torch.float64)
    queries = torch.tensor([[[1.0], [3.0]]], dtype=torch.float64)
    targets = torch.tensor([[0.5, 4.0]], dtype=torch.float64)

    def head(context: Tensor, query: Tensor) -> torch.distributions.Distribution:
        return torch.distributions.Normal((context + query)[:, 0], 2.0)

    f = ContextLikelihood(head, values, queries, targets)

    def log_density(x: float, mean: float) -> float:
        return -((x - mean) ** 2) / 8 - math.log(2) - 0.5 * math.log(2 * math.pi)

    expected = [[log_density(0.5, 1), log_density(0.5, 3)], [log_density(4, 3), log_density(4, 5)]]
    found = f.everywhere(torch.ones(1, 2, 2, dtype=torch.bool))
    torch.testing.assert_close(found.tolist(), [expected])


def test_a_distribution_over_vectors_sums_its_last_axis() -> None:
    values, queries = torch.zeros(1, 2, 3), torch.zeros(1, 1, 3)
    targets = torch.ones(1, 1, 3)
    f = ContextLikelihood(lambda c, q: torch.distributions.Normal(c + q, 1.0), values, queries, targets)
    assert f.at(torch.zeros(1, 1, 1, dtype=torch.long)).item() == pytest.approx(
        3 * (-0.5 - 0.5 * math.log(2 * math.pi)), rel=1e-6
    )


def test_a_table_gives_back_its_entries() -> None:
    table = torch.arange(12.0).reshape(1, 3, 4)
    f = TableLikelihood(table)
    assert f.pairs(torch.tensor([0]), torch.tensor([2]), torch.tensor([1])).tolist() == [9.0]
    assert f.at(torch.tensor([[[3, 0, 1]]])).tolist() == [[[3.0, 4.0, 9.0]]]
    mask = torch.zeros(1, 3, 4, dtype=torch.bool)
    mask[0, 1, 2] = True
    assert f.everywhere(mask).nonzero().tolist() == [[0, 1, 2]]


def test_several_numbers_of_an_output_are_ignored_together() -> None:
    values, queries = torch.zeros(1, 2, 2), torch.zeros(1, 2, 2)
    targets = torch.tensor([[[1, 0], [-100, -100]]])

    def head(context: Tensor, query: Tensor) -> torch.distributions.Distribution:
        return torch.distributions.Categorical(logits=(context + query)[..., None].expand(-1, 2, 3))

    f = ContextLikelihood(head, values, queries, targets)
    assert f.counted is not None
    assert f.counted.tolist() == [[True, False]]
    found = f.everywhere(torch.ones(1, 2, 2, dtype=torch.bool))
    torch.testing.assert_close(found, torch.tensor([[[-2 * math.log(3)] * 2, [0.0, 0.0]]]))


class Twice(Likelihood):
    """One's own: no more than what has to be written."""

    def pairs(self, example: Tensor, step: Tensor, position: Tensor) -> Tensor:
        return 2.0 * position

    def mixture(self, z: Tensor) -> Tensor:
        return z.sum(dim=-1)


def test_nothing_is_promised_of_ones_own_likelihood() -> None:
    f = Twice()
    assert f.at(torch.tensor([[[1, 0, 3]]])).tolist() == [[[2.0, 0.0, 6.0]]]
    assert f.upper_bound(torch.tensor([[[1, 0]]])).tolist() == [[[math.inf, math.inf]]]
    assert not f.is_probability
    assert not f.is_lazy  # what matters is evaluated again with a graph, and only that
    for ask in (
        lambda: f.log_probs_mixture(torch.ones(1, 1, 2)),
        lambda: f.log_probs_pairs(*[torch.tensor([0])] * 3),
    ):
        with pytest.raises(ConfigError, match="Twice has no finite set of output values"):
            ask()
