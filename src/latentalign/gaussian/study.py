"""The auto-encoding bound against wake-sleep: the same networks, the same pictures, the same optimiser."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from latentalign.alignment.learning.estimators import Pathwise
from latentalign.alignment.learning.objectives import Elbo
from latentalign.alignment.learning.problem import AlignmentProblem
from latentalign.gaussian.digits import Digits, load_digits
from latentalign.gaussian.model import DigitModel, PixelLikelihood, importance_log_marginal

METHODS = ("auto-encoding", "wake-sleep")
EVALUATION_SAMPLES = 10
IMPORTANCE_SAMPLES = 1000


@dataclass(frozen=True)
class StudyConfig:
    """What is compared, and for how long."""

    sizes: tuple[int, ...] = (2, 8, 16)
    hidden: int = 200
    epochs: int = 400
    every: int = 10  # epochs between two points of a curve
    learning_rate: float = 1e-3
    batch_size: int = 100
    held_out: float = 0.2
    threshold: int = 8
    seeds: tuple[int, ...] = (1, 2, 3)
    data_seed: int = 1


@dataclass
class Curve:
    """The bound of one run while it learns, in nats a picture."""

    method: str
    latent: int
    seed: int
    samples_seen: list[int] = field(default_factory=list)
    train_bound: list[float] = field(default_factory=list)
    held_out_bound: list[float] = field(default_factory=list)
    held_out_kl: float = 0.0
    log_marginal: float = 0.0  # of held-out pictures, by importance sampling
    seconds: float = 0.0


def auto_encoding_loss(model: DigitModel, pixels: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """−ELBO by one reparameterised sample: one objective for decoder and encoder."""
    assert model.encoder is not None
    bound = Elbo(Pathwise(1))(
        AlignmentProblem(
            model.prior(len(pixels)), PixelLikelihood(model.decoder, pixels), posterior=model.encoder(pixels)
        ),
        generator=generator,
    )
    return -bound.surrogate.mean()


def wake_sleep_loss(model: DigitModel, pixels: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Wake: the decoder on pictures with z ~ q. Sleep: the encoder on dreams (z, x) ~ p. Two losses, no bound."""
    assert model.encoder is not None
    with torch.no_grad():
        z = model.encoder(pixels).rsample(1, generator)  # [1,B,1,D]
        dreamt = model.prior(len(pixels)).rsample(1, generator)
        dream = torch.bernoulli(model.decoder(dreamt)[0, :, 0].sigmoid(), generator=generator)  # [B,PIXELS]
    wake = PixelLikelihood(model.decoder, pixels).mixture(z).mean()
    sleep = model.encoder(dream).log_prob(dreamt).mean()
    loss: torch.Tensor = -(wake + sleep)
    return loss


LOSSES: dict[str, Callable[[DigitModel, torch.Tensor, torch.Generator], torch.Tensor]] = {
    "auto-encoding": auto_encoding_loss,
    "wake-sleep": wake_sleep_loss,
}


@torch.no_grad()
def measure(model: DigitModel, pixels: torch.Tensor, *, seed: int = 0) -> tuple[float, float]:
    """The bound and its KL on pictures, in nats a picture; the same noise every time."""
    assert model.encoder is not None
    generator = torch.Generator().manual_seed(seed)
    bound = Elbo(Pathwise(EVALUATION_SAMPLES))(
        AlignmentProblem(
            model.prior(len(pixels)), PixelLikelihood(model.decoder, pixels), posterior=model.encoder(pixels)
        ),
        generator=generator,
    )
    return float(bound.value.mean()), float(bound.kl.mean())


def train(
    method: str, latent: int, config: StudyConfig, *, seed: int, train: Digits, held_out: Digits
) -> tuple[DigitModel, Curve]:
    """One run; the same seed starts both methods from the same weights."""
    torch.manual_seed(seed)
    model = DigitModel(latent, config.hidden)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate, fused=True)
    generator = torch.Generator().manual_seed(seed)
    curve = Curve(method, latent, seed)
    loss_of = LOSSES[method]
    started = time.perf_counter()
    for epoch in range(config.epochs):
        for indices in train.plan(epoch, seed):
            loss = loss_of(model, train.collate(indices).pixels, generator)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        if (epoch + 1) % config.every == 0 or epoch == 0:
            curve.samples_seen.append((epoch + 1) * len(train))
            curve.train_bound.append(measure(model, train.pixels)[0])
            curve.held_out_bound.append(measure(model, held_out.pixels)[0])
    curve.seconds = time.perf_counter() - started
    curve.held_out_kl = measure(model, held_out.pixels)[1]
    problem = model.problem(held_out.collate(range(len(held_out))), with_posterior=True)
    values = importance_log_marginal(
        problem, IMPORTANCE_SAMPLES, generator=torch.Generator().manual_seed(seed)
    )
    curve.log_marginal = float(values.mean())
    return model, curve


def run_study(
    config: StudyConfig, *, log: Callable[[str], None] = lambda line: None
) -> tuple[list[Curve], dict[tuple[str, int], DigitModel], Digits]:
    """Every method, size and seed. Returns the curves, the models of the first seed, and the held-out pictures."""
    learn, held_out = load_digits(
        held_out=config.held_out,
        batch_size=config.batch_size,
        threshold=config.threshold,
        seed=config.data_seed,
    )
    curves: list[Curve] = []
    models: dict[tuple[str, int], DigitModel] = {}
    for latent in config.sizes:
        for seed in config.seeds:
            for method in METHODS:
                model, curve = train(method, latent, config, seed=seed, train=learn, held_out=held_out)
                models.setdefault((method, latent), model)
                curves.append(curve)
                log(
                    f"{method}, {latent} latent numbers, seed {seed}: held-out bound "
                    f"{curve.held_out_bound[-1]:.2f}, log p(x) {curve.log_marginal:.2f}, {curve.seconds:.0f} s"
                )
    return curves, models, held_out


def summarise(curves: list[Curve]) -> list[dict[str, Any]]:
    """Means over seeds for every size and method."""
    rows = []
    for latent in sorted({curve.latent for curve in curves}):
        for method in METHODS:
            runs = [curve for curve in curves if (curve.method, curve.latent) == (method, latent)]
            count = len(runs)
            rows.append(
                {
                    "latent": latent,
                    "method": method,
                    "seeds": count,
                    "train_bound": sum(run.train_bound[-1] for run in runs) / count,
                    "held_out_bound": sum(run.held_out_bound[-1] for run in runs) / count,
                    "best_held_out_bound": sum(max(run.held_out_bound) for run in runs) / count,
                    "held_out_kl": sum(run.held_out_kl for run in runs) / count,
                    "log_marginal": sum(run.log_marginal for run in runs) / count,
                    "seconds": sum(run.seconds for run in runs) / count,
                }
            )
    return rows
