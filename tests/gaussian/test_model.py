"""The Gaussian bound on digits: closed forms, the marginal likelihood, and what both methods train."""

import math

import pytest
import torch

from latentalign.alignment import Elbo, Pathwise
from latentalign.alignment.errors import ConfigError
from latentalign.gaussian.digits import PIXELS, load_digits
from latentalign.gaussian.model import DigitModel, PixelLikelihood, importance_log_marginal
from latentalign.gaussian.study import auto_encoding_loss, wake_sleep_loss

LEARN, HELD_OUT = load_digits(held_out=0.2, batch_size=100, threshold=8, seed=1)


def test_digits_are_split_once_and_binary() -> None:
    assert len(LEARN) + len(HELD_OUT) == 1797
    assert len(HELD_OUT) == round(0.2 * 1797)
    assert set(LEARN.pixels.unique().tolist()) == {0.0, 1.0}
    again = load_digits(held_out=0.2, batch_size=100, threshold=8, seed=1)[1]
    assert torch.equal(again.pixels, HELD_OUT.pixels)
    plan = LEARN.plan(0, 1)
    assert sorted(number for batch in plan for number in batch) == list(range(len(LEARN)))
    assert LEARN.plan(0, 1) == plan != LEARN.plan(1, 1)
    assert LEARN.describe([3]) == "pictures 3 of the training digits"


def test_the_likelihood_is_that_of_independent_pixels() -> None:
    torch.manual_seed(0)
    model = DigitModel(3, 7)
    z = torch.randn(2, 4, 1, 3)
    pixels = HELD_OUT.pixels[:4]
    log_f = PixelLikelihood(model.decoder, pixels).mixture(z)
    assert log_f.shape == (2, 4, 1)
    probs = model.decoder(z[1, 2, 0]).sigmoid()
    expected = sum(
        math.log(p if x else 1 - p) for p, x in zip(probs.tolist(), pixels[2].tolist(), strict=True)
    )
    assert float(log_f[1, 2, 0].detach()) == pytest.approx(expected, rel=1e-4)
    with pytest.raises(ConfigError, match="pathwise"):
        PixelLikelihood(model.decoder, pixels).at(torch.zeros(1, 4, 1, dtype=torch.long))


def test_importance_sampling_finds_the_marginal_of_a_plain_integral() -> None:
    """One latent number: the integral over a fine grid is the truth."""
    torch.manual_seed(3)
    model = DigitModel(1, 5).double()
    batch = HELD_OUT.collate([0, 1])
    batch = type(batch)(batch.pixels.double(), batch.labels)
    problem = model.problem(batch, with_posterior=True)
    grid = torch.linspace(-8, 8, 4001, dtype=torch.float64)
    with torch.no_grad():
        log_f = problem.likelihood.mixture(grid.view(-1, 1, 1, 1).expand(-1, 2, 1, 1))
    log_prior = -0.5 * grid**2 - 0.5 * math.log(2 * math.pi)
    truth = (log_f + log_prior.view(-1, 1, 1)).logsumexp(dim=0) + math.log(16 / 4000)
    found = importance_log_marginal(problem, 20000, generator=torch.Generator().manual_seed(0), chunk=5000)
    torch.testing.assert_close(found, truth, atol=0.03, rtol=0)
    bound = Elbo(Pathwise(2000))(problem, generator=torch.Generator().manual_seed(0))
    assert bool((bound.value < truth).all())


def gradients(model: DigitModel, part: str) -> float:
    parameters = model.theta() if part == "theta" else model.phi()
    return sum(float(p.grad.abs().sum()) for p in parameters if p.grad is not None)


def test_the_auto_encoding_loss_is_the_negative_bound() -> None:
    torch.manual_seed(0)
    model = DigitModel(2, 8)
    pixels = LEARN.pixels[:50]
    loss = auto_encoding_loss(model, pixels, torch.Generator().manual_seed(1))
    noise = torch.randn((1, 50, 1, 2), generator=torch.Generator().manual_seed(1))
    posterior = model.encoder(pixels)
    z = posterior.loc + posterior.scale * noise
    kl = 0.5 * (posterior.scale**2 + posterior.loc**2 - 1 - 2 * posterior.scale.log()).sum(-1)
    logits = model.decoder(z)[0, :, 0]
    log_f = (pixels * logits - torch.nn.functional.softplus(logits)).sum(-1)
    torch.testing.assert_close(loss, (kl[:, 0] - log_f).mean())
    loss.backward()
    assert gradients(model, "theta") > 0
    assert gradients(model, "phi") > 0


def test_wake_trains_the_decoder_and_sleep_the_encoder() -> None:
    """The decoder's gradient is that of log f at samples of q; the encoder's never sees a real picture."""
    torch.manual_seed(0)
    model = DigitModel(2, 8)
    pixels = LEARN.pixels[:30]
    wake_sleep_loss(model, pixels, torch.Generator().manual_seed(5)).backward()
    found = [p.grad.clone() for p in model.theta()]
    encoder = [p.grad.clone() for p in model.phi()]
    model.zero_grad()
    generator = torch.Generator().manual_seed(5)
    z = model.encoder(pixels).rsample(1, generator).detach()
    (-PixelLikelihood(model.decoder, pixels).mixture(z).mean()).backward()
    for mine, theirs in zip(found, (p.grad for p in model.theta()), strict=True):
        torch.testing.assert_close(mine, theirs)
    model.zero_grad()
    wake_sleep_loss(model, 1 - pixels, torch.Generator().manual_seed(5)).backward()
    for mine, theirs in zip(encoder, (p.grad for p in model.phi()), strict=True):
        torch.testing.assert_close(mine, theirs)  # other pictures, the same dreams


def test_shapes_of_a_problem() -> None:
    model = DigitModel(4, 6)
    batch = LEARN.collate([0, 1, 2])
    problem = model.problem(batch, with_posterior=True)
    assert problem.prior.shape == problem.posterior.shape == (3, 1, 4)
    assert problem.weights.shape == (3, 1)
    assert model.problem(batch).posterior is None
    assert batch.pixels.shape == (3, PIXELS)
    assert len(model.theta()) + len(model.phi()) == len(list(model.parameters()))
    measured = model.measures(batch, problem, None)
    assert measured["importance_nll"][1] == 3
    assert model.measures(batch, model.problem(batch), None) == {}
