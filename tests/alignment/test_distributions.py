"""Alignment distributions against brute force and against torch.distributions on the real positions."""

import math

import pytest
import torch
from torch import Tensor

from latentalign.alignment import Categorical, Dirichlet, LogisticNormal, Normal
from latentalign.alignment.latents.categorical import external_posterior
from tests import oracles
from tests.alignment import problems

SEEDS = range(3)
DOUBLE = torch.float64


def rows(distribution: Categorical) -> list[list[float]]:
    return distribution.probs.detach().flatten(0, 1).tolist()


def random_scores(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("normalizer", "oracle"),
    [("softmax", oracles.softmax), ("sparsemax", oracles.sparsemax), ("entmax15", oracles.entmax15)],
)
def test_probabilities_are_those_of_the_normaliser(seed: int, normalizer: str, oracle) -> None:
    problem = problems.make(seed, lengths=(4, 2, 1), steps=2)
    prior = problem.prior(normalizer)
    plain = problem.plain()
    expected = [[oracle(plain.prior_scores[b][t], plain.mask[b]) for t in range(2)] for b in range(3)]
    torch.testing.assert_close(prior.probs.tolist(), expected, rtol=1e-9, atol=1e-9)
    assert torch.equal(prior.support, prior.probs > 0)
    assert torch.equal(prior.log_probs == -math.inf, ~prior.support)
    assert (prior.probs[~problem.mask[:, None].expand_as(prior.probs)] == 0).all()


@pytest.mark.parametrize("normalizer", ["sparsemax", "entmax15"])
def test_sparse_normalisers_pass_gradcheck_where_the_support_is_stable(normalizer: str) -> None:
    scores = torch.tensor([[[0.3, 0.1, -3.0, 9.0]]], dtype=DOUBLE, requires_grad=True)
    mask = torch.tensor([[True, True, True, False]])

    def mean(scores: Tensor) -> Tensor:
        return Categorical.from_scores(scores, mask, normalizer=normalizer).mean()

    assert mean(scores)[0, 0, 2] == 0
    assert torch.autograd.gradcheck(mean, (scores,))
    (slope,) = torch.autograd.grad(mean(scores)[0, 0, 0], scores)
    assert slope[0, 0, 3] == 0


def test_a_mask_per_step_is_kept_apart() -> None:
    mask = torch.tensor([[[True, False, True], [False, True, True]]])
    prior = Categorical.from_scores(torch.zeros(1, 2, 3, dtype=DOUBLE), mask)
    assert prior.probs.tolist() == [[[0.5, 0.0, 0.5], [0.0, 0.5, 0.5]]]


def test_no_mask_means_all_positions_are_real() -> None:
    assert Categorical.from_scores(torch.zeros(1, 1, 4)).probs.tolist() == [[[0.25] * 4]]


@pytest.mark.parametrize("seed", SEEDS)
def test_entropy_kl_mode_and_log_prob(seed: int) -> None:
    problem = problems.make(seed, lengths=(4, 2, 1), steps=2)
    prior, posterior = problem.prior(), problem.posterior()
    pairs = list(zip(rows(posterior), rows(prior), strict=True))
    entropies = [oracles.entropy(p) for _, p in pairs]
    torch.testing.assert_close(prior.entropy().flatten().tolist(), entropies, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(prior.alignment_entropy(), prior.entropy())
    divergences = [oracles.kl(q, p) for q, p in pairs]
    torch.testing.assert_close(posterior.kl(prior).flatten().tolist(), divergences, rtol=1e-12, atol=1e-12)
    assert prior.mode().flatten().tolist() == [p.index(max(p)) for _, p in pairs]
    positions = torch.stack([prior.mode(), torch.zeros_like(prior.mode())])  # [2,B,T]
    logs = [
        [math.log(p[i]) for (_, p), i in zip(pairs, row, strict=True)]
        for row in positions.flatten(1).tolist()
    ]
    torch.testing.assert_close(prior.log_prob(positions).flatten(1).tolist(), logs, rtol=1e-12, atol=1e-12)


def test_categorical_kl_and_entropy_against_torch() -> None:
    p, q = (Categorical.from_scores(random_scores(seed, 2, 3, 5)) for seed in (1, 2))
    torch_p, torch_q = (torch.distributions.Categorical(logits=d.log_probs) for d in (p, q))
    torch.testing.assert_close(q.kl(p), torch.distributions.kl_divergence(torch_q, torch_p))
    torch.testing.assert_close(p.entropy(), torch_p.entropy())


def test_kl_is_infinite_where_the_prior_has_no_mass_and_finite_the_other_way() -> None:
    narrow = Categorical.from_probs(torch.tensor([[[0.5, 0.5, 0.0]]], dtype=DOUBLE))
    wide = Categorical.from_probs(torch.tensor([[[0.25, 0.25, 0.5]]], dtype=DOUBLE))
    assert wide.kl(narrow).item() == math.inf
    assert narrow.kl(wide).item() == pytest.approx(math.log(2))


def test_from_probs_normalises_and_keeps_zeros() -> None:
    given = torch.tensor([[[2.0, 0.0, 6.0, 5.0]]], dtype=DOUBLE)
    links = Categorical.from_probs(given, torch.tensor([[True, True, True, False]]))
    assert links.probs.tolist() == [[[pytest.approx(0.25), 0.0, pytest.approx(0.75), 0.0]]]
    assert links.support.tolist() == [[[True, False, True, False]]]


def test_external_posterior_smooths_and_fills_rows_without_a_link() -> None:
    links = torch.tensor([[[0.0, 3.0, 1.0, 7.0], [0.0, 0.0, 0.0, 7.0]]], dtype=DOUBLE)
    mask = torch.tensor([[True, True, True, False]])
    fixed = external_posterior(links, mask, smoothing=0.3)
    expected = [[0.1, 0.7 * 0.75 + 0.1, 0.7 * 0.25 + 0.1, 0.0], [1 / 3, 1 / 3, 1 / 3, 0.0]]
    torch.testing.assert_close(fixed.probs.tolist(), [expected])
    assert external_posterior(links, mask).support[0, 0].tolist() == [False, True, True, False]


def test_restricting_conditions_on_the_smaller_support() -> None:
    wide = Categorical.from_probs(torch.tensor([[[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]]], dtype=DOUBLE))
    support = torch.tensor([[[True, True, False], [False, True, True]]])
    inside = wide.restricted(support)
    torch.testing.assert_close(inside.probs.tolist(), [[[0.4, 0.6, 0.0], [0.0, 0.5, 0.5]]])
    assert torch.equal(inside.support, support)
    assert wide.restricted(torch.ones_like(support)) is wide


def test_detach_cuts_the_graph() -> None:
    problem = problems.make()
    assert problem.prior().probs.requires_grad
    assert not problem.prior().detach().probs.requires_grad
    scores = random_scores(0, 1, 1, 3).requires_grad_()
    assert not Dirichlet.from_scores(scores).detach().mean().requires_grad
    assert not LogisticNormal.from_scores(scores).detach().mean().requires_grad
    assert not Normal(scores, scores.exp()).detach().mean().requires_grad


def chi_square(counts: Tensor, probs: Tensor, draws: int) -> float:
    return float(((counts - draws * probs) ** 2 / (draws * probs)).sum())


# 99.9999 % quantile of chi-square with 2 degrees of freedom: a fair sampler fails once in a million seeds
CHI_SQUARE_2 = 27.7


def test_samples_follow_the_probabilities_step_by_step() -> None:
    problem = problems.make(4, lengths=(4, 3), steps=2, spread=0.7)
    problem.mask[0, 0] = False
    prior = problem.prior().detach()
    draws = 20_000
    samples = prior.sample(draws, torch.Generator().manual_seed(1))
    assert samples.shape == (draws, 2, 2)
    assert samples.dtype == torch.long
    for b in range(2):
        for t in range(2):
            counts = torch.bincount(samples[:, b, t], minlength=4)
            real = problem.mask[b]
            assert (counts[~real] == 0).all()
            assert chi_square(counts[real], prior.probs[b, t][real], draws) < CHI_SQUARE_2


def test_relaxed_samples_have_the_argmax_of_the_categorical() -> None:
    problem = problems.single(7, size=4, spread=0.7)
    problem.mask[0, 3] = False
    prior = problem.prior().detach()
    draws = 20_000
    relaxed = prior.relaxed_sample(draws, 0.5, torch.Generator().manual_seed(1))[:, 0, 0]  # [K,S]
    assert (relaxed[:, 3] == 0).all()
    torch.testing.assert_close(relaxed.sum(dim=-1), torch.ones(draws, dtype=DOUBLE))
    counts = torch.bincount(relaxed.argmax(dim=-1), minlength=4)[:3]
    assert chi_square(counts, prior.probs[0, 0, :3], draws) < CHI_SQUARE_2


def test_relaxed_samples_sharpen_as_the_temperature_falls() -> None:
    prior = problems.make(3, lengths=(3,)).prior().detach()
    at = [prior.relaxed_sample(200, tau, torch.Generator().manual_seed(0)) for tau in (5.0, 0.5, 1e-3)]
    peaks = [sample.amax(dim=-1).mean().item() for sample in at]
    assert peaks[0] < peaks[1] < peaks[2]
    assert peaks[2] > 0.99
    # log z at temperature 1 is log p + Gumbel noise up to a constant: the same noise at every temperature
    plain = prior.relaxed_sample(1, 1.0, torch.Generator().manual_seed(0))[0].log() - prior.log_probs
    tempered = prior.relaxed_sample(1, 0.5, torch.Generator().manual_seed(0))[0].log() * 0.5 - prior.log_probs
    torch.testing.assert_close(plain.diff(dim=-1), tempered.diff(dim=-1))
