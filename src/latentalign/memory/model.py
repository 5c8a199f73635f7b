"""A memory network as an alignment problem: its last hop (or its path of hops) is the latent alignment."""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from latentalign.alignment.latents.categorical import Categorical
from latentalign.alignment.latents.latent import Latent
from latentalign.alignment.learning.problem import AlignmentProblem
from latentalign.alignment.prediction import Predictor
from latentalign.alignment.registry import build_distribution
from latentalign.alignment.scores import from_prior
from latentalign.memory.config import MemoryModelConfig
from latentalign.memory.dataset import MemoryBatch
from latentalign.memory.dynamic import Dynamic
from latentalign.memory.end_to_end import EndToEnd
from latentalign.memory.inference_network import MemoryInferenceNetwork
from latentalign.memory.reading import Reading, fact_loss, hop_marginals, hop_targets, masked_softmax
from latentalign.memory.supervised import Supervised
from latentalign.memory.vocabulary import UNKNOWN_ANSWER, Vocabulary

NETWORKS: dict[str, type[EndToEnd] | type[Supervised] | type[Dynamic]] = {
    "end-to-end": EndToEnd,
    "supervised": Supervised,
    "dynamic": Dynamic,
}


@dataclass(frozen=True)
class MemoryProblem(AlignmentProblem):
    """An alignment problem that remembers the hops before the latent one."""

    reading: Reading | None = field(default=None, kw_only=True)

    def attention(self, latent: Latent, slots: int) -> Tensor:
        """Attention of every hop [B,hops,S], the latent ones under `latent` (the prior or the posterior)."""
        assert self.reading is not None
        mask = self.reading.mask[:, :slots]
        last = hop_marginals(latent.mean()[:, 0], self.reading.hops_in_latent, slots)
        earlier = [masked_softmax(scores, mask)[:, None] for scores in self.reading.earlier]
        return torch.cat([*earlier, last], dim=1)


class MemoryModel(nn.Module):
    """A memory network, and an inference network where an objective asks for one.

    `memory` is the number of slots and `batches` that of an epoch, in which linear start is counted.
    """

    def __init__(
        self,
        config: MemoryModelConfig,
        vocabulary: Vocabulary,
        *,
        memory: int,
        batches: int = 1,
        needs_posterior: bool = False,
    ) -> None:
        super().__init__()
        self.config = config
        self.network = NETWORKS[config.kind](config, vocabulary, memory=memory, batches=batches)
        self.inference = (
            MemoryInferenceNetwork(config, vocabulary, self.network.encoder, memory=memory)
            if needs_posterior and config.posterior == "network"
            else None
        )
        self.distribution = build_distribution(config.distribution)

    def theta(self) -> list[nn.Parameter]:
        return list(self.network.parameters())

    def phi(self) -> list[nn.Parameter]:
        return [] if self.inference is None else list(self.inference.parameters())

    def example_prior(self) -> Latent:
        """A prior over one slot, to see what kind it is."""
        return self.distribution(torch.zeros(1, 1, 1), None)

    def problem(self, batch: MemoryBatch, *, with_posterior: bool = False) -> MemoryProblem:
        if self.training:
            self.network.count()
        reading = self.network(batch, batch.answers)
        # ranking by a margin replaces the likelihood of the observed hop: the bound must not train it as well
        ranked = self.config.facts == "margin" and self.config.posterior == "facts"
        scores = reading.scores.detach() if ranked else reading.scores
        prior = self.distribution(scores[:, None], reading.mask)
        return MemoryProblem(
            prior=prior,
            likelihood=reading.likelihood,
            weights=torch.ones_like(batch.answers, dtype=scores.dtype),
            posterior=self._posterior(batch, reading, prior) if with_posterior else None,
            penalty=self._penalty(batch, reading),
            reading=reading,
        )

    def _posterior(self, batch: MemoryBatch, reading: Reading, prior: Latent) -> Latent:
        if self.inference is not None:
            scores = self.inference(batch, self.network.encoder)  # [B,Z]
            if self.config.inference_from_prior:
                scores = from_prior(reading.scores, scores)
            return self.distribution(scores[:, None], reading.mask)
        supporting = hop_targets(batch.support, len(reading.earlier) + reading.hops_in_latent)
        slots = batch.mask.shape[1]
        value = torch.zeros_like(supporting[:, 0])
        for hop in range(-reading.hops_in_latent, 0):
            value = value * slots + supporting[:, hop].clamp_min(0)
        observed = torch.zeros_like(reading.scores).scatter(1, value[:, None], 1.0)  # [B,Z]
        # where the file names no facts, q = p: the bound is then that of hard attention
        probs = torch.where(supporting[:, -1:] >= 0, observed, prior.alignment_probs().detach()[:, 0])
        return Categorical.from_probs(probs[:, None], reading.mask)

    def _penalty(self, batch: MemoryBatch, reading: Reading) -> Tensor | None:
        """What supporting facts add to the loss, [B,1]; where they are q, the bound has the last hop."""
        if self.config.facts == "none" or reading.hops_in_latent > 1:
            return None
        margin = self.config.margin if self.config.facts == "margin" else None
        scores = [*reading.earlier, reading.scores]
        supporting = hop_targets(batch.support, len(scores))
        if margin is None and self.config.posterior == "facts":
            scores = scores[:-1]
        losses = [
            fact_loss(score, batch.mask, supporting[:, hop], margin=margin)
            for hop, score in enumerate(scores)
        ]
        return self.config.facts_weight * sum(losses, torch.zeros_like(reading.scores[:, 0]))[:, None]

    def measures(
        self,
        batch: MemoryBatch,
        problem: MemoryProblem,
        predictor: Predictor,
        *,
        generator: torch.Generator | None = None,
    ) -> dict[str, tuple[float, float]]:
        """Accuracy (overall, by pattern, by source), and how often each hop looks at a supporting fact."""
        log_probs = predictor.log_probs(problem.prior, problem.likelihood, generator=generator)[:, 0]
        right = (best_answers(log_probs) == batch.answers[:, 0]).tolist()
        found = {"accuracy": (float(sum(right)), float(len(right)))}
        for kind, names in batch.groups.items():
            for name, hit in zip(names, right, strict=True):
                _add(found, f"accuracy by {kind}: {name}", float(hit), 1.0)
        _add(found, "unknown_word_share", float(sum(batch.unknown)), float(sum(batch.words)))
        slots = batch.mask.shape[1]
        if bool(batch.supporting.any()):
            self._measure_hops(found, "", problem.attention(problem.prior, slots), batch)
            if problem.posterior is not None and self.config.posterior == "network":
                self._measure_hops(found, "posterior_", problem.attention(problem.posterior, slots), batch)
        return found

    def _measure_hops(
        self, found: dict[str, tuple[float, float]], prefix: str, attention: Tensor, batch: MemoryBatch
    ) -> None:
        known = batch.supporting.any(dim=1)  # [B]
        strongest = attention.masked_fill(~batch.mask[:, None], -1.0).argmax(dim=-1)  # [B,hops]
        hits = batch.supporting.gather(1, strongest)[known]
        count = float(len(hits))
        hops = hits.sum(dim=0).tolist()
        _add(found, f"{prefix}attention_accuracy", float(hops[-1]), count)
        if not prefix:
            for number, hit in enumerate(hops, start=1):
                _add(found, f"attention_accuracy_hop_{number}", float(hit), count)


def best_answers(log_probs: Tensor) -> Tensor:
    """The likeliest answer [B] of log probabilities [B,A]; 'unknown' is never an answer."""
    possible = log_probs.clone()
    possible[:, UNKNOWN_ANSWER] = -torch.inf
    return possible.argmax(dim=-1)


def _add(found: dict[str, tuple[float, float]], name: str, total: float, count: float) -> None:
    before = found.get(name, (0.0, 0.0))
    found[name] = (before[0] + total, before[1] + count)
