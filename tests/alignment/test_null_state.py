"""Outputs that come from nowhere, against all paths: the fast marginal, and the chain over 2S + 1 states."""

import math

import pytest
import torch
from torch import Tensor

from latentalign.alignment import (
    Chain,
    MatrixTransitions,
    MonotoneTransitions,
    f_with_null,
    marginalise_with_null,
    positions_with_null,
    with_null,
)
from tests import chain_oracles, oracles
from tests.alignment import chains
from tests.alignment.chains import DOUBLE, EXACT, close
from tests.chain_oracles import PlainChain

SEEDS = range(3)


def test_the_null_state_remembers_where_the_chain_was() -> None:
    generator = torch.Generator().manual_seed(1)

    def leaf(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=DOUBLE).requires_grad_()

    scores, log_f, nowhere, jumps = leaf(1, 3, 2), leaf(1, 3, 2), leaf(1, 3), leaf(2, 2)
    chance = 0.3
    odds = torch.tensor(math.log(chance / (1 - chance)), dtype=DOUBLE, requires_grad=True)
    chain = Chain.from_scores(scores, transitions=MatrixTransitions(jumps))
    marginal = marginalise_with_null(chain, log_f, nowhere, odds)
    value = marginal.surrogate
    assert torch.equal(marginal.value, value)
    assert not marginal.value.requires_grad

    def plain(s, f, n, r, p=chance):
        chain = PlainChain(s, r, null=p)
        return chain_oracles.increments(chain, f, n)

    lists = [scores[0].tolist(), log_f[0].tolist(), nowhere[0].tolist(), jumps.tolist()]
    close(value[0], plain(*lists))
    law = chain_oracles.posterior(PlainChain(lists[0], lists[3], null=chance), lists[1], lists[2])
    close(marginal.positions[0], chain_oracles.marginals(law, 2))
    close(marginal.nowhere[0], [sum(p for z, p in law.items() if z[t] < 0) for t in range(3)])
    found = torch.autograd.grad(value.sum(), (scores, log_f, nowhere, jumps, odds))
    for number, leaf_found in enumerate(found[:4]):
        shape = list(torch.tensor(lists[number]).shape)

        def at(point, number=number, shape=shape):
            moved = [*lists]
            moved[number] = chains.nest(point, shape)
            return oracles.total(plain(*moved))

        flat = torch.tensor(lists[number], dtype=DOUBLE).flatten().tolist()
        close(leaf_found.flatten(), oracles.gradient(at, flat))
    # the probability of coming from nowhere is learnt through its log odds
    slope = (sum(plain(*lists, chance + 1e-6)) - sum(plain(*lists, chance - 1e-6))) / 2e-6
    assert found[4].item() == pytest.approx(slope * chance * (1 - chance), rel=1e-6)


def test_nothing_comes_from_nowhere_beyond_the_end() -> None:
    generator = torch.Generator().manual_seed(4)
    scores, log_f = torch.randn(2, 1, 3, 2, generator=generator, dtype=DOUBLE)
    nowhere = torch.randn(1, 3, generator=generator, dtype=DOUBLE)
    moves = MatrixTransitions(torch.randn(2, 2, generator=generator, dtype=DOUBLE))
    padded = Chain.from_scores(scores, transitions=moves, steps=torch.tensor([[True, True, False]]))
    found = marginalise_with_null(padded, log_f, nowhere, -1.0)
    alone = Chain.from_scores(scores[:, :2], transitions=moves)
    expected = marginalise_with_null(alone, log_f[:, :2], nowhere[:, :2], -1.0)
    for one, other in ((found.nowhere, expected.nowhere), (found.positions, expected.positions)):
        torch.testing.assert_close(one[:, :2], other, **EXACT)
        assert (one[:, 2] == 0).all()


def test_what_comes_from_nowhere_is_as_likely_in_every_null_state() -> None:
    found = f_with_null(torch.tensor([[[1.0, 2.0, 3.0]]]), torch.tensor([[-1.0]]))
    assert found.tolist() == [[[1.0, 2.0, 3.0, -1.0, -1.0, -1.0, -1.0]]]


@pytest.mark.parametrize("monotone", [False, True])
def test_a_chain_with_null_states_is_that_of_all_paths(monotone: bool) -> None:
    generator = torch.Generator().manual_seed(2)
    scores, log_f = torch.randn(2, 2, 3, 2, generator=generator, dtype=DOUBLE)
    nowhere = torch.randn(2, 3, generator=generator, dtype=DOUBLE)
    jumps = torch.randn(2, 2, generator=generator, dtype=DOUBLE)
    start, chance = torch.tensor([0.3, -0.4], dtype=DOUBLE), 0.3
    odds = math.log(chance / (1 - chance))
    moves = MonotoneTransitions(2) if monotone else MatrixTransitions(jumps)
    chain = Chain.from_scores(scores, transitions=moves, start=start)
    states = with_null(chain, odds)
    found = states.marginalise(f_with_null(log_f, nowhere))
    fast = marginalise_with_null(chain, log_f, nowhere, odds)
    torch.testing.assert_close(found.surrogate, fast.surrogate, **EXACT)
    torch.testing.assert_close(found.posterior.mean()[..., :2], fast.positions, **EXACT)
    for b in range(2):
        table = [[0.0, 0.0], [None, 0.0]] if monotone else jumps.tolist()
        plain = PlainChain(scores[b].tolist(), table, start=start.tolist(), null=chance)
        law = chain_oracles.posterior(plain, log_f[b].tolist(), nowhere[b].tolist())
        best = max(law, key=law.__getitem__)
        assert positions_with_null(found.posterior.mode()[b], 2).tolist() == list(best)
        prior = dict(plain.paths(3))
        entropy = -sum(p * math.log(p) for p in prior.values())
        assert states.entropy()[b].sum().item() == pytest.approx(entropy, abs=1e-12)
    drawn = positions_with_null(states.sample(4000, torch.Generator().manual_seed(3))[:, 1], 2)
    plain_law = {tuple(z): 0 for z in drawn.tolist()}
    for path in drawn.tolist():
        plain_law[tuple(path)] += 1
    # 4,000 draws: the largest of some twenty shares is off by more than 0.04 once in 100,000 seeds
    assert max(abs(n / 4000 - prior[z]) for z, n in plain_law.items()) < 0.04
