"""What every objective returns."""

from dataclasses import dataclass, field

from torch import Tensor

from latentalign.alignment.latents.latent import Latent


@dataclass(frozen=True)
class Bound:
    """An objective's value for each output, all of shape [B,T], in nats, to be maximised.

    `value` is what to report and `surrogate` what to differentiate; they need not be the same number.
    `log_likelihood` is the reconstruction (the objective without its KL) and `kl` is 0 where there is none.
    """

    value: Tensor
    surrogate: Tensor
    log_likelihood: Tensor
    kl: Tensor
    diagnostics: dict[str, Tensor] = field(default_factory=dict)


def describe(prior: Latent, posterior: Latent | None = None, **more: Tensor | None) -> dict[str, Tensor]:
    """Diagnostics that any objective can give without another evaluation of f."""
    named = {"prior_entropy": prior.alignment_entropy().detach()}
    if posterior is not None:
        named["posterior_entropy"] = posterior.alignment_entropy().detach()
    named.update({name: value.detach() for name, value in more.items() if value is not None})
    return named
