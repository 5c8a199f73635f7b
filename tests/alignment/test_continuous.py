"""Relaxed alignments and the Gaussian vector against torch.distributions and against quadrature."""

import math

import pytest
import torch
from torch import Tensor

from latentalign.alignment import Dirichlet, LogisticNormal, Normal
from tests import integrals

DOUBLE = torch.float64


def random_scores(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def within_errors(sample: Tensor, expected: Tensor, errors: float = 5.0) -> bool:
    """Mean over axis 0 within 5 standard errors: fails for one seed in 1.7 million per number compared."""
    error = sample.std(dim=0) / math.sqrt(sample.shape[0])
    return bool(((sample.mean(dim=0) - expected).abs() <= errors * error + 1e-12).all())


# ------------------------------------------------------------------------------------------ Dirichlet


def test_dirichlet_against_torch_on_the_real_positions() -> None:
    scores, others = random_scores(0, 2, 2, 5), random_scores(1, 2, 2, 5)
    mask = torch.tensor([[True, True, True, False, False], [True, False, True, True, True]])
    q, p = Dirichlet.from_scores(scores, mask), Dirichlet.from_scores(others, mask)
    z = q.rsample(3, torch.Generator().manual_seed(0))
    assert z.shape == (3, 2, 2, 5)
    for b in range(2):
        real = mask[b]
        torch_q = torch.distributions.Dirichlet(scores[b][:, real].exp())
        torch_p = torch.distributions.Dirichlet(others[b][:, real].exp())
        torch.testing.assert_close(q.kl(p)[b], torch.distributions.kl_divergence(torch_q, torch_p))
        torch.testing.assert_close(q.entropy()[b], torch_q.entropy())
        torch.testing.assert_close(q.mean()[b][:, real], torch_q.mean)
        torch.testing.assert_close(q.log_prob(z)[:, b], torch_q.log_prob(z[:, b][..., real]))
        assert (z[:, b][..., ~real] == 0).all()
        assert (q.mean()[b][:, ~real] == 0).all()
        alignment = torch.distributions.Categorical(torch_q.mean).entropy()
        torch.testing.assert_close(q.alignment_entropy()[b], alignment)
    torch.testing.assert_close(z.sum(dim=-1), torch.ones(3, 2, 2, dtype=DOUBLE))


def test_dirichlet_samples_have_its_mean_and_second_moment() -> None:
    scores = torch.tensor([[[0.5, 1.0, -0.5, 3.0]]], dtype=DOUBLE)
    mask = torch.tensor([[True, True, True, False]])
    dirichlet = Dirichlet.from_scores(scores, mask)
    z = dirichlet.rsample(20_000, torch.Generator().manual_seed(0))
    mean = dirichlet.mean()
    total = scores[..., :3].exp().sum()
    second = mean * (mean * total + 1) / (total + 1)
    assert within_errors(z, mean)
    assert within_errors(z**2, second)


# ------------------------------------------------------------------------------------------ logistic-normal


def quotient_normal(loc: Tensor, scale: Tensor) -> torch.distributions.MultivariateNormal:
    """The Gaussian of u_i − u_last, which is all that softmax(u) depends on."""
    covariance = torch.diag(scale[:-1] ** 2) + scale[-1] ** 2
    return torch.distributions.MultivariateNormal(loc[:-1] - loc[-1], covariance)


@pytest.mark.parametrize("size", [2, 4])
def test_logistic_normal_against_the_gaussian_of_differences(size: int) -> None:
    mask = torch.ones(1, size + 1, dtype=torch.bool)
    mask[0, 0] = False
    locs, scales = random_scores(0, 2, 1, size + 1), random_scores(1, 2, 1, size + 1).exp()
    q = LogisticNormal.from_scores(locs[:1], mask, scale=scales[:1])
    p = LogisticNormal.from_scores(locs[1:], mask, scale=scales[1:])
    torch_q = quotient_normal(locs[0, 0, 1:], scales[0, 0, 1:])
    torch_p = quotient_normal(locs[1, 0, 1:], scales[1, 0, 1:])
    torch.testing.assert_close(q.kl(p)[0, 0], torch.distributions.kl_divergence(torch_q, torch_p))
    z = q.rsample(4, torch.Generator().manual_seed(0))
    real = z[:, 0, 0, 1:]
    # density on the simplex of the first S − 1 coordinates: change of variables to log z_i − log z_last
    expected = torch_q.log_prob(real[:, :-1].log() - real[:, -1:].log()) - real.log().sum(dim=-1)
    torch.testing.assert_close(q.log_prob(z)[:, 0, 0], expected)
    assert (z[..., 0] == 0).all()
    torch.testing.assert_close(real.sum(dim=-1), torch.ones(4, dtype=DOUBLE))


def test_logistic_normal_density_integrates_to_one() -> None:
    q = LogisticNormal.from_scores(torch.tensor([[[0.4, -0.3]]], dtype=DOUBLE), scale=0.9)
    width = 0.02
    u = -12 + width * torch.arange(1200, dtype=DOUBLE)
    z = torch.stack([u.sigmoid(), (-u).sigmoid()], dim=-1)[:, None, None]  # [K,1,1,2]
    mass = q.log_prob(z).exp()[:, 0, 0] * z[:, 0, 0].prod(dim=-1) * width  # dz = z (1 − z) du
    assert mass.sum().item() == pytest.approx(1, abs=1e-6)


def test_logistic_normal_mean_is_close_and_samples_have_the_true_mean() -> None:
    q = LogisticNormal.from_scores(torch.tensor([[[0.8, -0.3]]], dtype=DOUBLE), scale=0.6)
    deviation = math.sqrt(0.6**2 + 0.6**2)
    true = integrals.normal_expectation(1.1, deviation, lambda u: 1 / (1 + math.exp(-u)))
    # the probit approximation; without its shrinking the error would be 0.03
    assert q.mean()[0, 0, 0].item() == pytest.approx(true, abs=0.015)
    z = q.rsample(20_000, torch.Generator().manual_seed(0))[..., 0]
    assert within_errors(z, torch.tensor(true))


def test_logistic_normal_does_not_feel_a_common_shift_even_in_single_precision() -> None:
    mask = torch.tensor([[True, True, True, False]])
    locs = random_scores(0, 2, 1, 4).float()
    prior = LogisticNormal.from_scores(locs[:1], mask, scale=0.7)
    near = LogisticNormal.from_scores(locs[1:], mask, scale=1.3)
    far = LogisticNormal.from_scores(locs[1:] + 4096.0, mask, scale=1.3)  # rounds to multiples of 2^-11
    torch.testing.assert_close(far.kl(prior), near.kl(prior), atol=5e-3, rtol=0)
    z = near.rsample(5, torch.Generator().manual_seed(0))
    torch.testing.assert_close(far.log_prob(z), near.log_prob(z), atol=5e-3, rtol=0)


def test_relaxed_kl_is_zero_for_one_real_position_and_for_equal_distributions() -> None:
    mask = torch.tensor([[True, False, False]])
    for family in (Dirichlet, LogisticNormal):
        q = family.from_scores(random_scores(0, 1, 2, 3), mask)
        p = family.from_scores(random_scores(1, 1, 2, 3), mask)
        torch.testing.assert_close(q.kl(p), torch.zeros(1, 2, dtype=DOUBLE))
        assert (q.mean() == mask.double()).all()
        whole = family.from_scores(random_scores(0, 1, 2, 3))
        torch.testing.assert_close(whole.kl(whole), torch.zeros(1, 2, dtype=DOUBLE))


# ------------------------------------------------------------------------------------------ Gaussian vector


def test_normal_against_torch() -> None:
    loc, scale = random_scores(0, 2, 3, 4), random_scores(1, 2, 3, 4).exp()
    q, p = Normal(loc, scale), Normal(random_scores(2, 2, 3, 4), random_scores(3, 2, 3, 4).exp())
    torch_q, torch_p = (torch.distributions.Normal(d.loc, d.scale) for d in (q, p))
    torch.testing.assert_close(q.kl(p), torch.distributions.kl_divergence(torch_q, torch_p).sum(dim=-1))
    torch.testing.assert_close(q.entropy(), torch_q.entropy().sum(dim=-1))
    z = q.rsample(20_000, torch.Generator().manual_seed(0))
    torch.testing.assert_close(q.log_prob(z[:5]), torch_q.log_prob(z[:5]).sum(dim=-1))
    assert within_errors(z, loc)
    assert within_errors((z - loc) ** 2, scale**2)


def test_the_standard_normal_has_the_shape_of_the_other() -> None:
    unit = Normal.standard_like(Normal(random_scores(0, 2, 3, 4), random_scores(1, 2, 3, 4).exp()))
    assert torch.equal(unit.loc, torch.zeros(2, 3, 4, dtype=DOUBLE))
    assert torch.equal(unit.scale, torch.ones(2, 3, 4, dtype=DOUBLE))


def test_half_precision_computes_in_single() -> None:
    generator = torch.Generator().manual_seed(0)
    rough = (3 * torch.rand(1, 2, 5, generator=generator) + 0.1).bfloat16()
    mask = torch.ones(1, 2, 5, dtype=torch.bool)
    found = Dirichlet(rough, mask).entropy()
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, Dirichlet(rough.float(), mask).entropy().bfloat16())
