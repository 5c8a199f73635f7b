"""Chains against all of their paths: evidence and its gradients, marginals, best paths, entropy, divergences."""

import math

import pytest
import torch
from torch import Tensor

from latentalign.alignment import (
    Categorical,
    Chain,
    MatrixTransitions,
    MonotoneTransitions,
)
from latentalign.alignment.chains.evidence import log_evidence
from tests import chain_oracles, oracles
from tests.alignment import chains
from tests.alignment.chains import DOUBLE, EXACT, ChainProblem, close
from tests.chain_oracles import PlainChain

SEEDS = range(3)


@pytest.mark.parametrize("obvious", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_evidence_and_gradients_are_those_of_all_paths(seed: int, obvious: bool) -> None:
    problem = chains.make(seed)
    value = problem.prior(obvious=obvious).marginalise(problem.log_f).surrogate
    weights = torch.randn(value.shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)
    for b, plain in enumerate(problem.plain()):
        count, _ = problem.sizes(b)
        close(value[b, :count], chain_oracles.increments(plain.prior, plain.log_f))
        assert (value[b, count:] == 0).all()
    plain = [example.gradients for example in problem.plain()]
    found = problem.gradients((weights * value).sum())
    # any weights of the steps, also such that do not fall
    expected = []
    for b, gradients in enumerate(plain):
        share = weights[b].tolist()
        expected.append(
            gradients(
                lambda p, share=share: oracles.total(
                    [w * v for w, v in zip(share, chain_oracles.increments(p.prior, p.log_f), strict=False)]
                )
            )
        )
    for name in ("scores", "jumps", "log_f"):
        total = chains.padded_sum([part[name] for part in expected], found[name].shape)
        torch.testing.assert_close(found[name], total, **EXACT)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_posterior_is_a_chain_with_the_smoothed_marginals(seed: int) -> None:
    problem = chains.make(seed)
    posterior = problem.prior().marginalise(problem.log_f).posterior
    assert isinstance(posterior, Chain)
    assert (posterior.scores.amax(dim=-1)[problem.steps] == 0).all()  # relative to the best of a step
    assert (posterior.log_terms().sources[:, 0] == 0).all()  # nothing comes before the first step
    for latent, laws in (
        (posterior, [chain_oracles.posterior(p.prior, p.log_f) for p in problem.plain()]),
        (problem.prior(), [chain_oracles.law(p.prior) for p in problem.plain()]),
    ):
        for b, law in enumerate(laws):
            count, size = problem.sizes(b)
            close(latent.mean()[b, :count, :size], chain_oracles.marginals(law, size))
            close(latent.pair_marginals()[b, :count, :size, :size], chain_oracles.pairs(law, size))
            best = max(law, key=law.get)
            assert latent.mode()[b, :count].tolist() == list(best)
            assert latent.entropy()[b].sum().item() == pytest.approx(chain_oracles.entropy(law))
            paths = torch.tensor([*law])[:, None].expand(-1, len(laws), -1)  # [K,B,count]
            padded = torch.zeros(*paths.shape[:2], latent.shape[1], dtype=torch.long)
            padded[..., :count] = paths
            log_probs = latent.log_prob(padded)[:, b].sum(dim=-1)
            close(log_probs.exp(), [*law.values()])
        assert latent.mean()[~problem.steps].abs().max() == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_entropy_and_divergences_with_their_gradients(seed: int) -> None:
    problem = chains.make(seed)
    chain, other, factorised = problem.posterior(), problem.prior(), problem.factorised()

    def laws(p: chains.PlainProblem):
        return (
            chain_oracles.law(p.posterior),
            chain_oracles.law(p.prior),
            chain_oracles.independent(p.factorised()),
        )

    cases = {
        "entropy of a chain": (chain.entropy(), lambda p: chain_oracles.entropy(laws(p)[0])),
        "chain from chain": (chain.kl(other), lambda p: chain_oracles.kl(laws(p)[0], laws(p)[1])),
        "independent from chain": (factorised.kl(other), lambda p: chain_oracles.kl(laws(p)[2], laws(p)[1])),
        "chain from independent": (other.kl(factorised), lambda p: chain_oracles.kl(laws(p)[1], laws(p)[2])),
    }
    for found, expected in cases.values():
        assert found.shape == problem.steps.shape
        for b, plain in enumerate(problem.plain()):
            assert found[b].sum().item() == pytest.approx(expected(plain))
        assert (found[~problem.steps] == 0).all()
        chains.assert_same_gradients(problem, problem.gradients(found.sum()), expected)
    torch.testing.assert_close(chain.kl(chain), torch.zeros(3, 3, dtype=DOUBLE))


def test_the_evidence_passes_gradcheck_with_a_matrix_for_each_example() -> None:
    generator = torch.Generator().manual_seed(0)

    def leaf(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=DOUBLE).requires_grad_()

    steps = torch.tensor([[True, True, True], [True, True, False]])

    def value(scores: Tensor, log_f: Tensor, start: Tensor, matrix: Tensor) -> Tensor:
        return log_evidence(scores, log_f, start, MatrixTransitions(matrix), steps)

    assert torch.autograd.gradcheck(value, (leaf(2, 3, 3), leaf(2, 3, 3), leaf(2, 3), leaf(2, 3, 3)))


# ------------------------------------------------------------------------------------------ special cases


@pytest.mark.parametrize("seed", SEEDS)
def test_without_jumps_it_is_the_categorical_to_the_last_digit(seed: int) -> None:
    problem = chains.make(seed)
    chain = Chain.from_scores(
        problem.scores, problem.mask, transitions=MatrixTransitions(torch.zeros(3, 3)), steps=problem.steps
    )
    plain = Categorical.from_scores(problem.scores, problem.mask)
    real, last = problem.steps, {"rtol": 1e-14, "atol": 1e-15}
    found, expected = chain.marginalise(problem.log_f), plain.marginalise(problem.log_f)
    torch.testing.assert_close(found.value[real], expected.value[real], **last)
    torch.testing.assert_close(found.responsibilities[real], expected.responsibilities[real], **last)
    torch.testing.assert_close(found.expected_log_f[real], expected.expected_log_f[real], **last)
    torch.testing.assert_close(chain.mean()[real], plain.mean()[real], **last)
    torch.testing.assert_close(chain.entropy()[real], plain.entropy()[real], **last)
    mine, theirs = (
        torch.autograd.grad((value * real).sum(), (problem.scores, problem.log_f), retain_graph=True)
        for value in (found.surrogate, expected.surrogate)
    )
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-13, atol=1e-15)
    assert torch.equal(chain.mode()[real], plain.mode()[real])


def monotone_law(problem: ChainProblem, b: int, *, stay: bool) -> tuple[dict, dict]:
    """All monotone paths of an example, prior and posterior, by choosing only among what can be finished."""
    count, size = problem.sizes(b)
    scores, log_f = problem.scores[b].tolist(), problem.log_f[b].tolist()

    def finishable(t: int, i: int) -> bool:
        return stay or size - 1 - i >= count - 1 - t

    law = {(): 1.0}
    for t in range(count):
        grown = {}
        for path, chance in law.items():
            least = 0 if not path else path[-1] + (0 if stay else 1)
            row = {i: math.exp(scores[t][i]) for i in range(least, size) if finishable(t, i)}
            for i, power in row.items():
                grown[*path, i] = chance * power / sum(row.values())
        law = grown
    joint = {path: p * math.exp(sum(log_f[t][i] for t, i in enumerate(path))) for path, p in law.items()}
    return law, joint


@pytest.mark.parametrize("stay", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_monotone_chains_are_the_monotone_paths(seed: int, stay: bool) -> None:
    problem = chains.make(seed, sizes=((3, 4), (2, 2), (3, 3)))
    chain = Chain.from_scores(
        problem.scores, problem.mask, transitions=MonotoneTransitions(4, stay), steps=problem.steps
    )
    found = chain.marginalise(problem.log_f)
    for b in range(3):
        count, size = problem.sizes(b)
        law, joint = monotone_law(problem, b, stay=stay)
        assert sum(law.values()) == pytest.approx(1)
        mass = sum(joint.values())
        assert found.value[b].sum().item() == pytest.approx(math.log(mass))
        posterior = {path: value / mass for path, value in joint.items()}
        close(found.responsibilities[b, :count, :size], chain_oracles.marginals(posterior, size))
        close(chain.mean()[b, :count, :size], chain_oracles.marginals(law, size))
        assert found.posterior.mode()[b, :count].tolist() == list(max(posterior, key=posterior.get))
        assert chain.entropy()[b].sum().item() == pytest.approx(chain_oracles.entropy(law))
        divergence = found.posterior.kl(chain)[b].sum().item()
        assert divergence == pytest.approx(chain_oracles.kl(posterior, law))
    # as the same chain with a matrix of 0 and −inf, gradients included
    grid = MonotoneTransitions(4, stay).allowed
    matrix = torch.zeros(4, 4, dtype=DOUBLE).masked_fill(~grid, -torch.inf)
    dense = Chain.from_scores(
        problem.scores, problem.mask, transitions=MatrixTransitions(matrix), steps=problem.steps
    )
    for one, other in (
        (found.surrogate, dense.marginalise(problem.log_f).surrogate),
        (chain.entropy(), dense.entropy()),
    ):
        torch.testing.assert_close(one, other, **EXACT)
        leaves = (problem.scores, problem.log_f)
        mine, theirs = (
            torch.autograd.grad(
                value.sum(), leaves, allow_unused=True, materialize_grads=True, retain_graph=True
            )
            for value in (one, other)
        )
        for left, right in zip(mine, theirs, strict=True):
            torch.testing.assert_close(left, right, **EXACT)


def test_a_posterior_off_the_monotone_paths_is_infinitely_far() -> None:
    scores = torch.zeros(1, 2, 2, dtype=DOUBLE)
    prior = Chain.from_scores(scores, transitions=MonotoneTransitions(2))
    free = Chain.from_scores(scores, transitions=MatrixTransitions(torch.zeros(2, 2)))
    assert free.kl(prior).tolist() == [[0.0, math.inf]]
    assert Categorical.from_scores(scores).kl(prior).tolist() == [[0.0, math.inf]]
    assert torch.isfinite(prior.kl(free)).all()


def test_one_position_and_one_step() -> None:
    alone = Chain.from_scores(torch.zeros(2, 3, 1), transitions=MonotoneTransitions(1))
    log_f = torch.tensor([[[-1.0], [-2.0], [-3.0]]]).expand(2, 3, 1)
    found = alone.marginalise(log_f)
    assert found.value.tolist() == [[-1.0, -2.0, -3.0]] * 2
    assert alone.mode().tolist() == [[0, 0, 0]] * 2
    assert alone.entropy().abs().max() == 0
    problem = chains.make(0, sizes=((1, 3),))
    expected = problem.factorised().marginalise(problem.log_f)
    first = problem.posterior().marginalise(problem.log_f)
    torch.testing.assert_close(first.value, expected.value)
    torch.testing.assert_close(first.responsibilities, expected.responsibilities)


# ------------------------------------------------------------------------------------------ numbers


def test_a_batch_is_its_examples_one_by_one_whatever_the_padding() -> None:
    problem = chains.make(2)
    problem.scores.data[~problem.steps] = 50.0
    problem.scores.data.transpose(1, 2)[~problem.mask] = -300.0
    problem.log_f.data.transpose(1, 2)[~problem.mask] = 70.0
    together = problem.prior()
    found = together.marginalise(problem.log_f)
    slopes = problem.gradients(found.surrogate.sum())
    for b in range(3):
        count, size = problem.sizes(b)
        one = problem.one(b)
        alone = one.prior().marginalise(one.log_f)
        torch.testing.assert_close(found.value[b, :count], alone.value[0])
        torch.testing.assert_close(found.responsibilities[b, :count, :size], alone.responsibilities[0])
        torch.testing.assert_close(together.entropy()[b, :count], one.prior().entropy()[0])
        (slope,) = torch.autograd.grad(alone.surrogate.sum(), problem.scores)
        torch.testing.assert_close(slopes["scores"][b], slope[b])
    assert slopes["scores"][~problem.steps].abs().max() == 0
    assert slopes["log_f"].transpose(1, 2)[~problem.mask].abs().max() == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_every_step_may_have_a_mask_of_its_own(seed: int) -> None:
    problem = chains.make(seed, sizes=((3, 3),))
    mask = torch.tensor([[[True, True, False], [False, True, True], [True, False, True]]])
    chain = Chain.from_scores(problem.scores, mask, transitions=MatrixTransitions(problem.jumps))
    (whole,) = problem.plain()
    plain = PlainChain(whole.scores, whole.jumps, mask[0].tolist())
    law = chain_oracles.law(plain)
    assert len(law) == 8
    close(chain.mean()[0], chain_oracles.marginals(law, 3))
    assert chain.entropy().sum().item() == pytest.approx(chain_oracles.entropy(law))
    found = chain.marginalise(problem.log_f)
    close(found.value[0], chain_oracles.increments(plain, whole.log_f))
    posterior = chain_oracles.posterior(plain, whole.log_f)
    close(found.responsibilities[0], chain_oracles.marginals(posterior, 3))
    assert found.posterior.kl(chain).sum().item() == pytest.approx(chain_oracles.kl(posterior, law))
    paths = torch.tensor([*law])[:, None]
    close(chain.log_prob(paths)[:, 0].sum(dim=-1).exp(), [*law.values()])


@pytest.mark.parametrize("transitions", ["jumps", "monotone"])
def test_scores_of_ten_thousand_are_exact(transitions: str) -> None:
    """One path carries all the prior, another all the likelihood."""
    scores = torch.full((1, 3, 3), -1e4, dtype=DOUBLE)
    scores[0, :, 0] = 1e4
    log_f = torch.full((1, 3, 3), -1e5, dtype=DOUBLE)
    path = [0, 1, 2]
    log_f[0, range(3), path] = 0.0
    jumps = torch.tensor([[0.5, 1.0, -0.5], [0.25, -1.0, 0.75], [0.0, 0.1, 0.2]], dtype=DOUBLE)
    choice = MatrixTransitions(jumps) if transitions == "jumps" else MonotoneTransitions(3)
    leaves = [scores.requires_grad_(), log_f.requires_grad_()]
    chain = Chain.from_scores(scores, transitions=choice)
    found = chain.marginalise(log_f)
    if transitions == "jumps":
        # by hand: every step away from 0 costs 2e4 and the difference of the jumps
        expected = [0.0, -2e4 + 1.0 - 0.5, -2e4 + 0.75 - 0.25]
    else:
        # from 0 the step to 1 costs 2e4; from 1 the positions 1 and 2 are alike
        expected = [0.0, -2e4, math.log(0.5)]
    torch.testing.assert_close(found.value[0].tolist(), expected, rtol=1e-13, atol=1e-12)
    torch.testing.assert_close(found.responsibilities[0].tolist(), torch.eye(3).tolist())
    for slope in torch.autograd.grad(found.surrogate.sum(), leaves):
        assert torch.isfinite(slope).all()


@pytest.mark.parametrize("transitions", ["jumps", "monotone"])
def test_five_hundred_steps_in_float32_agree_with_float64(transitions: str) -> None:
    generator = torch.Generator().manual_seed(0)
    scores, log_f = (torch.randn(1, 500, 500, generator=generator, dtype=DOUBLE) * 3 for _ in range(2))
    jumps = torch.randn(500, 500, generator=generator, dtype=DOUBLE)
    found = []
    for dtype in (DOUBLE, torch.float32):
        own = [x.to(dtype).requires_grad_() for x in (scores, log_f)]
        moves = MatrixTransitions(jumps.to(dtype)) if transitions == "jumps" else MonotoneTransitions(500)
        value = Chain.from_scores(own[0], transitions=moves).marginalise(own[1]).surrogate
        assert value.dtype == dtype
        found.append((value, *torch.autograd.grad(value.sum(), own)))
    for wide, narrow in zip(*found, strict=True):
        torch.testing.assert_close(narrow.double(), wide, rtol=2e-4, atol=2e-5)


def test_the_fast_sums_give_way_where_they_would_not_be_exact() -> None:
    jumps = torch.tensor([[0.0, -600.0], [-600.0, 0.0]], dtype=DOUBLE)
    scores = torch.tensor([[[0.0, -400.0], [0.0, 0.0]]], dtype=DOUBLE)
    log_f = torch.tensor([[[-2000.0, 0.0], [-5000.0, 0.0]]], dtype=DOUBLE)
    fast, slow = (
        Chain.from_scores(scores, transitions=MatrixTransitions(jumps, obvious)).marginalise(log_f)
        for obvious in (False, True)
    )
    torch.testing.assert_close(fast.value, slow.value)
    close(fast.value[0], [-400.0, 0.0])
