"""Diagnostics: the exact log marginal, how tight a bound is, the soft gap and its curvature bound, AER."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from latentalign.alignment.checks import check_count
from latentalign.alignment.errors import ConfigError
from latentalign.alignment.latents.categorical import Categorical
from latentalign.alignment.latents.latent import DiscreteLatent, Latent
from latentalign.alignment.learning.bound import Bound
from latentalign.alignment.learning.marginal import exact_marginal
from latentalign.alignment.likelihoods.likelihood import Likelihood

Link = tuple[int, int]


def log_marginal(prior: Latent, likelihood: Likelihood) -> Tensor:
    """log Σ_i p_i f_i (of a chain: log p(y_t | y_<t)) without a graph, [B,T]."""
    with torch.no_grad():
        return exact_marginal(_discrete(prior, "log_marginal"), likelihood).value


def exact_posterior(prior: Latent, likelihood: Likelihood) -> DiscreteLatent:
    """p(z|x,y) ∝ p(z) f(z), the q at which the ELBO is tight; without a graph."""
    with torch.no_grad():
        return exact_marginal(_discrete(prior, "exact_posterior"), likelihood).posterior


def tightness(bound: Bound, prior: Latent, likelihood: Likelihood) -> Tensor:
    """Exact log marginal − bound, [B,T]: 0 for a tight bound; never below 0, for a chain summed over its steps."""
    return log_marginal(prior, likelihood) - bound.value


def _discrete(prior: Latent, name: str) -> DiscreteLatent:
    return prior.discrete(f"prior: {name}", instead="a continuous one has no exact posterior, use sample:N")


@dataclass(frozen=True)
class SoftGap:
    """The paper's Proposition 1 for observed outputs, all [B,T], as probabilities (not logs)."""

    gap: Tensor  # |p(y) − p_soft(y)|
    curvature: Tensor  # c: largest spectral norm of the Hessian of g(z) = f(x,z)_y that was met
    sharp_bound: Tensor  # ½ c (1 − ‖E z‖²), from the same proof without its last step

    @property
    def bound(self) -> Tensor:
        """The proposition's own bound: c."""
        return self.curvature


def proposition1(prior: Categorical, likelihood: Likelihood, *, grid: int = 17) -> SoftGap:
    """The true gap between marginal and soft attention, and the curvature bound on it.

    Taylor's theorem meets the Hessian only on the segments from E[z] to each vertex, so c is searched there,
    on `grid` points a segment. Meant for small problems: S × grid Hessians of size S × S an output.
    """
    check_count("grid", grid, least=2, hint="17 points a segment are a good start")
    centre = prior.probs.detach()  # [B,T,S]
    with torch.no_grad():
        exact = exact_marginal(prior, likelihood).value.exp()
        soft = likelihood.mixture(centre).exp()
    positions = centre.shape[-1]
    curvature = torch.zeros_like(exact)
    # z never leaves the support, so directions and vertices outside it (padding) do not count
    inside = (prior.support[..., None] & prior.support[..., None, :]).to(centre.dtype)  # [B,T,S,S]
    for position, vertex in enumerate(torch.eye(positions, dtype=centre.dtype, device=centre.device)):
        for fraction in torch.linspace(0, 1, grid, dtype=centre.dtype, device=centre.device):
            hessian = _hessian(likelihood, centre + fraction * (vertex - centre)) * inside
            norm = torch.linalg.matrix_norm(hessian, ord=2)
            curvature = torch.maximum(curvature, norm.masked_fill(~prior.support[..., position], 0.0))
    spread = 1 - centre.pow(2).sum(dim=-1)
    return SoftGap((exact - soft).abs(), curvature, 0.5 * curvature * spread)


def _hessian(likelihood: Likelihood, z: Tensor) -> Tensor:
    """Hessians of f(x,z)_y in z, one for each output: [B,T,S,S]."""
    with torch.enable_grad():
        z = z.detach().requires_grad_()
        value = likelihood.mixture(z).exp().sum()  # outputs do not share z, so the sum keeps them apart
        (slope,) = torch.autograd.grad(value, z, create_graph=True)
        rows = []
        for position in range(z.shape[-1]):
            column = slope[..., position].sum()
            if column.requires_grad:
                (row,) = torch.autograd.grad(
                    column, z, retain_graph=True, allow_unused=True, materialize_grads=True
                )
            else:  # f is linear in z: no curvature
                row = torch.zeros_like(z)
            rows.append(row)
    return torch.stack(rows, dim=-2)


@dataclass(frozen=True)
class AlignmentError:
    """Alignment error rate with its precision and recall (Och & Ney 2003)."""

    aer: float
    precision: float
    recall: float
    predicted: int
    sure: int
    possible: int


def alignment_error_rate(
    predicted: Iterable[Collection[Link]],
    sure: Iterable[Collection[Link]],
    possible: Iterable[Collection[Link]] | None = None,
) -> AlignmentError:
    """AER = 1 − (|A∩S| + |A∩P|)/(|A| + |S|) over sentences; sure links count as possible too.

    Example:
        >>> alignment_error_rate([{(0, 0), (1, 1)}], [{(0, 0)}], [{(1, 1)}]).aer
        0.0
    """
    links, certain = [set(s) for s in predicted], [set(s) for s in sure]
    maybe = [set() for _ in certain] if possible is None else [set(s) for s in possible]
    if not len(links) == len(certain) == len(maybe):
        raise ConfigError(
            f"links: expected one set a sentence, received {len(links)} predicted, {len(certain)} sure and "
            f"{len(maybe)} possible; check that the files belong together"
        )
    made = sum(map(len, links))
    known = sum(map(len, certain))
    hit_sure = sum(len(a & s) for a, s in zip(links, certain, strict=True))
    allowed = [s | p for s, p in zip(certain, maybe, strict=True)]
    hit_possible = sum(len(a & p) for a, p in zip(links, allowed, strict=True))
    total = made + known
    return AlignmentError(
        aer=1 - (hit_sure + hit_possible) / total if total else 0.0,
        precision=hit_possible / made if made else 0.0,
        recall=hit_sure / known if known else 0.0,
        predicted=made,
        sure=known,
        possible=sum(map(len, allowed)),
    )
