"""Batched beam search over any model that scores the next token.

A hypothesis of `len` tokens (the end of sentence not counted) is ranked by

    (log p(y) - eos_penalty * src_len / (len + 1)) / ((5 + len) / 6) ** length_penalty

The penalty is taken off the score of the end token, so it also decides when a hypothesis may end. An end
enters the finished ones if it is among the `beam` best continuations of its sentence; the beam goes on with
the `beam` best others. A sentence is done, and leaves the batch, when no living hypothesis can still enter the n
best; when `beam` have ended and the n best of them are likelier than every living one; or at its length limit, where
only the end is left to choose. That `beam` have ended is not enough: beside one hypothesis that is nearly certain,
the others are unlikely ends, and they come first.
"""

from dataclasses import dataclass
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from latentalign.errors import UserError

WIDEST_BEAM = 1000  # memory and time grow with it: a typing mistake should not take the machine
LARGEST_FACTOR = 100  # of the longest output over the length of its source
LARGEST_LENGTH_PENALTY, LARGEST_EOS_PENALTY = 10, 100
BLOCK = 64  # columns whose maximum is taken first when the best continuations are searched


class Selectable(Protocol):
    """Tensors with one row per sentence (memory) or per hypothesis (state)."""

    def select(self, index: Tensor) -> Self:
        """The rows at `index`, in that order."""
        ...


class SearchModel(Protocol):
    """What the search needs of a model."""

    @property
    def start_token(self) -> int: ...

    @property
    def end_token(self) -> int: ...

    def step(self, memory: Any, state: Any, tokens: Tensor, beam: "BeamStatus") -> tuple["Scores", Any]:
        """Feed `tokens` [A,W] (A sentences, W hypotheses each); score what follows.

        Scores of continuations that cannot enter the beam may be too low: a model need not compute them well.
        """
        ...


@dataclass(frozen=True)
class BeamStatus:
    """The hypotheses that a step continues, and what they compete for."""

    log_probs: Tensor  # [A,W] of every hypothesis so far, −inf for one that does not exist
    places: int  # how many continuations of a sentence go on
    only_end: Tensor  # [A] bool: the length limit is reached, only the end may follow


@dataclass(frozen=True)
class Scores:
    """Next-token scores in the form that the model computes, so that [N,V] is not copied only to take a logarithm.

    log p = values - log_normalizer, or log(values) - log_normalizer where the values are probabilities up to a factor.
    """

    values: Tensor  # [A,W,V]; may be overwritten by the search
    log_normalizer: Tensor  # [A,W]
    probabilities: bool = False

    def log_probs(self, rows: Tensor, values: Tensor) -> Tensor:
        """Log-probabilities of chosen values, given the (flat) hypothesis row of each."""
        return (values.log() if self.probabilities else values) - self.log_normalizer.flatten()[rows]

    def forbid(self, token: int) -> None:
        """Never choose this token."""
        self.values[:, :, token] = 0.0 if self.probabilities else -torch.inf


@dataclass(frozen=True)
class SearchOptions:
    """How to search. The paper's released code has an `eos_penalty` of 3: models of little training repeat themselves
    under it; 0.5 translated held-out Multi30k best."""

    beam: int = 10
    n_best: int = 1
    length_penalty: float = 1.0
    eos_penalty: float = 0.5
    max_length_factor: float = 2.0  # longest output: factor * source length + 10 tokens

    def __post_init__(self) -> None:
        if not 1 <= self.beam <= WIDEST_BEAM:
            raise UserError(
                f"beam: expected a whole number from 1 (greedy search) to {WIDEST_BEAM}, got {self.beam}; try 10"
            )
        if not 1 <= self.n_best <= self.beam:
            raise UserError(
                f"n-best: expected between 1 and the beam size {self.beam}, got {self.n_best}; widen the beam"
            )
        # what overflows ranks nothing: no hypothesis would ever finish
        if not abs(self.length_penalty) <= LARGEST_LENGTH_PENALTY:
            raise UserError(
                f"length penalty: expected a number from -{LARGEST_LENGTH_PENALTY} to {LARGEST_LENGTH_PENALTY}, "
                f"got {self.length_penalty}; try 1"
            )
        if not 0 <= self.eos_penalty <= LARGEST_EOS_PENALTY:
            raise UserError(
                f"end-of-sentence penalty: expected 0 to {LARGEST_EOS_PENALTY}, got {self.eos_penalty}; try 0.5"
            )
        if not 0 < self.max_length_factor <= LARGEST_FACTOR:
            raise UserError(
                f"maximal length factor: expected more than 0 and up to {LARGEST_FACTOR}, "
                f"got {self.max_length_factor}; try 2"
            )

    def limits(self, lengths: Tensor) -> Tensor:
        """The longest output allowed for every source length."""
        return (lengths * self.max_length_factor).long() + 10

    def normalizer(self, lengths: Tensor) -> Tensor:
        """What a hypothesis of that many tokens is divided by."""
        return ((5.0 + lengths) / 6.0) ** self.length_penalty


@dataclass(frozen=True)
class Hypothesis:
    """A finished output: its tokens without the end, its rank score and its plain log-probability."""

    tokens: list[int]
    score: float
    log_prob: float


@dataclass
class _Beam:
    """The living and the finished hypotheses of the sentences still searched (A of them).

    Log-probabilities have single precision at least, whatever the model's: they are sums of many steps.
    """

    sentence: Tensor  # [A] index in the batch
    source_length: Tensor  # [A]
    limit: Tensor  # [A]
    alive: Tensor  # [A,W] log-probability so far
    history: Tensor  # [A,W,L] tokens so far
    ended: Tensor  # [A] how many have ended
    score: Tensor  # [A,F] finished, best first, -inf where there is none
    log_prob: Tensor  # [A,F]
    length: Tensor  # [A,F]
    finished: Tensor  # [A,F,L]

    def select(self, index: Tensor) -> "_Beam":
        return _Beam(*(getattr(self, name).index_select(0, index) for name in self.__dataclass_fields__))

    @classmethod
    def start(cls, source_length: Tensor, limit: Tensor, options: SearchOptions) -> "_Beam":
        count, longest = len(limit), int(limit.max())
        pool = (count, options.beam)
        device = limit.device
        return cls(
            sentence=torch.arange(count, device=device),
            source_length=source_length,
            limit=limit,
            alive=torch.zeros(count, 1, dtype=torch.float32, device=device),
            history=torch.zeros(count, 1, longest + 1, dtype=torch.long, device=device),
            ended=torch.zeros(count, dtype=torch.long, device=device),
            score=torch.full(pool, -torch.inf, dtype=torch.float32, device=device),
            log_prob=torch.full(pool, -torch.inf, dtype=torch.float32, device=device),
            length=torch.zeros(pool, dtype=torch.long, device=device),
            finished=torch.zeros(*pool, longest + 1, dtype=torch.long, device=device),
        )


@torch.no_grad()
def beam_search(
    model: SearchModel,
    memory: Selectable,
    state: Selectable,
    source_lengths: Tensor,
    *,
    options: SearchOptions,
    limits: Tensor | None = None,
) -> list[list[Hypothesis]]:
    """Search all sentences of a batch at once; per sentence the finished hypotheses, best first.

    `state` has one row per sentence at the start; up to `options.beam` hypotheses come back for each
    sentence (the caller takes its n best: two token sequences may spell the same text).
    """
    limits = options.limits(source_lengths) if limits is None else limits
    beam = _Beam.start(source_lengths, limits, options)
    tokens = torch.full_like(beam.history[:, :, 0], model.start_token)  # [A,1]
    results: list[list[Hypothesis]] = [[] for _ in range(len(limits))]
    for step in range(int(limits.max()) + 1):
        status = BeamStatus(beam.alive, options.beam, beam.limit == step)
        scores, state = model.step(memory, state, tokens, status)
        beam, rows = _advance(beam, scores, step, end_token=model.end_token, options=options)
        done = _done(beam, step, options)
        if bool(done.any()):
            _collect(results, beam.select(done.nonzero().squeeze(1)))
            keep = (~done).nonzero().squeeze(1)
            if len(keep) == 0:
                break
            beam, memory, rows = beam.select(keep), memory.select(keep), rows[keep]
        state = state.select(rows.flatten())
        tokens = beam.history[:, :, step]
    return results


def _advance(
    beam: _Beam, scores: Scores, step: int, *, end_token: int, options: SearchOptions
) -> tuple[_Beam, Tensor]:
    """One step for all sentences: end some hypotheses, extend the others; and the state row of each."""
    count, width, _ = scores.values.shape
    base = torch.arange(count * width, device=beam.alive.device).view(count, width)  # [A,W] row numbers
    end_values = scores.values[:, :, end_token].clone()
    end_log_prob = beam.alive + scores.log_probs(base, end_values)  # [A,W]
    penalty = options.eos_penalty * beam.source_length / (step + 1)  # [A]
    end_scores = end_log_prob - penalty[:, None]
    scores.forbid(end_token)

    alive, parent, token = best_continuations(scores, beam.alive, options.beam)  # [A,K]
    alive = alive.masked_fill(beam.limit[:, None] == step, -torch.inf)
    best = torch.cat([alive, end_scores], dim=1).topk(min(options.beam, alive.shape[1] + width)).indices
    accepted = torch.zeros(count, alive.shape[1] + width, dtype=torch.bool, device=alive.device)
    accepted = accepted.scatter_(1, best, True)[:, alive.shape[1] :] & end_scores.isfinite()  # [A,W]
    if bool(accepted.any()):
        _finish(beam, accepted, end_log_prob, end_scores, step, options)

    history = beam.history.gather(1, parent[:, :, None].expand(-1, -1, beam.history.shape[2]))
    history[:, :, step] = token
    beam.alive, beam.history = alive, history
    return beam, base[:, :1] + parent


def _finish(
    beam: _Beam, accepted: Tensor, log_prob: Tensor, end_scores: Tensor, step: int, options: SearchOptions
) -> None:
    """Merge the hypotheses that end now, of `step` tokens each, into the finished ones."""
    score = end_scores / options.normalizer(torch.full_like(end_scores, step))
    score = torch.cat([beam.score, score.masked_fill(~accepted, -torch.inf)], dim=1)  # [A,F+W]
    beam.score, index = score.topk(beam.score.shape[1])
    beam.log_prob = torch.cat([beam.log_prob, log_prob], dim=1).gather(1, index)
    beam.length = torch.cat([beam.length, torch.full_like(accepted, step, dtype=torch.long)], 1).gather(
        1, index
    )
    everything = torch.cat([beam.finished, beam.history], dim=1)
    beam.finished = everything.gather(1, index[:, :, None].expand(-1, -1, everything.shape[2]))
    beam.ended = beam.ended + accepted.sum(1)


def _done(beam: _Beam, step: int, options: SearchOptions) -> Tensor:
    """Which sentences need no further step: [A]."""
    # an upper bound of the score of what may still end: no more log-probability lost, the smallest penalty, and
    # the larger divisor of the two extreme lengths (scores are negative, and the divisor is monotone in the length)
    log_prob = beam.alive.amax(1) - options.eos_penalty * beam.source_length / (beam.limit + 1)
    divisor = torch.maximum(
        options.normalizer(beam.limit.to(log_prob.dtype)),
        options.normalizer(torch.full_like(log_prob, step + 1)),
    )
    last = beam.score[:, options.n_best - 1]  # of the n best, −inf where there are fewer
    beaten = last >= log_prob / divisor
    undivided = last * options.normalizer(beam.length[:, options.n_best - 1].to(last.dtype))
    likelier = (beam.ended >= options.beam) & (undivided >= beam.alive.amax(1))
    return likelier | beaten | (beam.limit <= step)


def _collect(results: list[list[Hypothesis]], beam: _Beam) -> None:
    columns = zip(
        beam.sentence.tolist(),
        beam.score.tolist(),
        beam.log_prob.tolist(),
        beam.length.tolist(),
        beam.finished.tolist(),
        strict=True,
    )
    for sentence, scores, log_probs, lengths, finished in columns:
        results[sentence] = [
            Hypothesis(tokens[:length], score, log_prob)
            for score, log_prob, length, tokens in zip(scores, log_probs, lengths, finished, strict=True)
            if score > -torch.inf
        ]


def best_continuations(scores: Scores, alive: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The `count` best (hypothesis, token) pairs of each sentence: log-probability, hypothesis, token.

    The best `count` values lie in the `count` blocks of columns with the largest maxima, so only those
    blocks are sorted and turned into log-probabilities.
    """
    sentences, width, vocabulary = scores.values.shape
    blocks = -(-vocabulary // BLOCK)
    rows = torch.arange(sentences * width, device=alive.device).view(sentences, width, 1)
    maxima = block_maxima(scores.values)  # [A,W,C]
    maxima = scores.log_probs(rows, maxima) + alive[:, :, None]
    chosen = maxima.flatten(1).topk(min(count, width * blocks)).indices  # [A,K]
    hypothesis = chosen // blocks
    columns = (chosen % blocks)[:, :, None] * BLOCK + torch.arange(BLOCK, device=alive.device)  # [A,K,BLOCK]
    outside = columns >= vocabulary
    columns = columns.clamp(max=vocabulary - 1)  # any token will do there: its log-probability is −inf
    row = rows[:, :1, 0] + hypothesis  # [A,K]
    flat = row[:, :, None] * vocabulary + columns
    values = scores.log_probs(row[:, :, None], scores.values.reshape(-1)[flat])
    values = (values + alive.gather(1, hypothesis)[:, :, None]).masked_fill(outside, -torch.inf)
    best, index = values.flatten(1).topk(min(count, width * vocabulary))
    return best, hypothesis.gather(1, index // BLOCK), columns.flatten(1).gather(1, index)


def block_maxima(values: Tensor) -> Tensor:
    """Largest value of every block of columns: […,V] -> […,C]."""
    whole = values.shape[-1] // BLOCK * BLOCK
    parts = [values[..., :whole].reshape(*values.shape[:-1], -1, BLOCK).amax(-1)] if whole else []
    if whole < values.shape[-1]:
        parts.append(values[..., whole:].amax(-1, keepdim=True))
    return torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]
