"""Word alignments of sentence pairs from a trained model, with a probability on every link.

From pieces to words: the probability that target word j is linked to source word i is the mean over the
pieces of j of the sum over the pieces of i. A piece's alignment lands on one piece of the source, so the sum
is the chance that it lands in word i; the mean is the chance for a piece of j drawn at random. Every row is
then a distribution over source words and the null word; the end mark of the source stands for the null word.

The score of a pair is its mean log-probability log p(y|x) per target piece (end included), marginal over the
alignment: a pair whose target does not follow from its source comes last.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from latentalign.alignment.latents.latent import Marginalised
from latentalign.alignment.learning.marginal import exact_marginal
from latentalign.alignment.learning.problem import AlignmentProblem
from latentalign.alignment.likelihoods.likelihood import TableLikelihood
from latentalign.alignment.prediction import Predictor, Sampled
from latentalign.batching import cut
from latentalign.errors import UserError
from latentalign.text.links import Link
from latentalign.text.symmetrise import decode_links
from latentalign.translation.data.assets import TranslationAssets
from latentalign.translation.data.dataset import make_batch

SOURCES = ("posterior", "prior", "exact")
LONGEST = 1000  # pieces a side: cost grows with the product of both; a longer pair gets no links
_PRUNE = 1e-4  # positions that cannot reach this share of p(y|x) are left out of scores and exact posteriors


@dataclass(frozen=True)
class PairAlignment:
    """What a model says about one pair. Matrices are [target words, source words]."""

    source_words: list[str]
    target_words: list[str]
    prior: np.ndarray  # p(z | x, y so far): the attention of the translator
    posterior: np.ndarray | None = None  # q(z | x, y) of the inference network
    # p(z | x, y), by Bayes' rule from prior and likelihood; of a chain, smoothed
    exact: np.ndarray | None = None
    filtered: np.ndarray | None = None  # of a chain, p(z | x, y so far and now); else `exact` is that
    # the likeliest alignment of the whole pair: the share of each word's pieces
    path: np.ndarray | None = None
    score: float | None = None  # mean log p(y|x) per target piece
    too_long: bool = False  # for this aligner: no links

    def probs(self, by: str) -> np.ndarray:
        """The matrix of that name, which has to have been asked for."""
        found = {
            "prior": self.prior,
            "posterior": self.posterior,
            "exact": self.exact,
            "filtered": self.filtered,
            "path": self.path,
        }[by]
        if found is None:
            raise ValueError(f"{by} was not asked for")
        return found

    def path_links(self) -> dict[Link, float]:
        """The links of the likeliest alignment of the whole pair (Viterbi's), with their exact probabilities."""
        exact = self.probs("exact")
        return {(i, j): float(exact[j, i]) for i, j in decode_links(self.probs("path"))}


def word_probs(
    probs: Tensor, target_words: Sequence[int], source_words: Sequence[int], *, shape: tuple[int, int]
) -> np.ndarray:
    """Probabilities of pieces [T,S] as those of words (`shape`), given every piece's word (−1: none)."""
    columns = torch.tensor(source_words)
    rows = torch.tensor(target_words)
    real_columns, real_rows = columns >= 0, rows >= 0
    probs = probs[: len(rows), : len(columns)].double()
    by_source = probs.new_zeros(len(rows), shape[1])
    by_source.index_add_(1, columns[real_columns], probs[:, real_columns])
    total = probs.new_zeros(shape).index_add_(0, rows[real_rows], by_source[real_rows])
    pieces = torch.bincount(rows[real_rows], minlength=shape[0])
    return (total / pieces.clamp_min(1)[:, None]).numpy()


class TranslationAligner:
    """Aligns pairs of sentences with one trained model."""

    def __init__(
        self, model: Any, assets: TranslationAssets, *, batch_pieces: int = 4096, longest: int = LONGEST
    ) -> None:
        self.model = model.eval()
        self.assets = assets
        self.batch_pieces = batch_pieces
        self.longest = longest

    @property
    def has_posterior(self) -> bool:
        """Whether the model was trained with an inference network."""
        return len(self.model.phi()) > 0

    @property
    def is_discrete(self) -> bool:
        """Whether an alignment is one position, so that its posterior follows exactly from Bayes' rule."""
        return bool(self.model.example_prior().is_discrete)

    def choose(self, by: str | None = None) -> str:
        """The distribution to take links from: the one asked for, if this model has it, or the best it has.

        That is the exact posterior where it exists, else that of the inference network, else the prior.
        """
        if by is None:
            return "exact" if self.is_discrete else "posterior" if self.has_posterior else "prior"
        if by not in SOURCES:
            raise UserError(f"by: expected one of {', '.join(SOURCES)}, got {by!r}")
        if by == "posterior" and not self.has_posterior:
            raise UserError(
                "by: this run was trained without an inference network, so it has no posterior; "
                "use prior, or exact for the posterior by Bayes' rule"
            )
        if by == "exact" and not self.is_discrete:
            raise UserError(
                "by: the exact posterior needs a discrete alignment; this run's is "
                f"{self.model.example_prior().family}, use prior"
            )
        return by

    def align(
        self,
        pairs: Iterable[tuple[str, str]],
        *,
        exact: bool = False,
        score: bool = False,
        window: int = 2048,
    ) -> Iterator[PairAlignment]:
        """Align pairs in their order; `exact` posteriors and scores cost the likelihood, so ask for them."""
        stream = iter(pairs)
        while chunk := list(islice(stream, window)):
            yield from self.align_pieces([self.encode(*pair) for pair in chunk], exact=exact, score=score)

    def encode(self, source: str, target: str) -> "PairPieces":
        """The pieces of a pair, with the word that each belongs to."""
        return PairPieces(
            self.assets.source.words(source),
            self.assets.target.words(target),
            *self.assets.encode_source(source),
            *self.assets.encode_target(target),
        )

    def align_pieces(
        self, pairs: Sequence["PairPieces"], *, exact: bool = False, score: bool = False
    ) -> list[PairAlignment]:
        """Align pairs that are already in pieces, in batches of similar lengths."""
        results = [_empty(pair, too_long=self._is_too_long(pair)) for pair in pairs]
        for group in self._groups(pairs):
            aligned = self._align_batch([pairs[number] for number in group], exact=exact, score=score)
            for number, alignment in zip(group, aligned, strict=True):
                results[number] = alignment
        return results

    @torch.no_grad()
    def score(self, pairs: Iterable[tuple[str, str]], predictor: Predictor, *, seed: int = 0) -> list[float]:
        """Mean log p(y|x) per target piece, by any way to predict; −inf for a pair with an empty side."""
        encoded = [self.encode(*pair) for pair in pairs]
        device = next(self.model.parameters()).device
        generator = torch.Generator(device).manual_seed(seed)
        results = [-float("inf")] * len(encoded)
        for group in self._groups(encoded):
            batch = make_batch([encoded[n].source for n in group], [encoded[n].target for n in group])
            problem = self.model.problem(batch.to(device))
            log_probs = predictor.log_likelihood(
                problem.prior, problem.likelihood, generator=generator
            )  # [B,T]
            totals = torch.where(problem.weights, log_probs, 0.0).cpu().double().sum(dim=1)
            for number, total in zip(group, totals.tolist(), strict=True):
                results[number] = total / len(encoded[number].target)
        return results

    def _groups(self, pairs: Sequence["PairPieces"]) -> Iterator[list[int]]:
        """Batches of pairs of similar lengths, by number; pairs with an empty or too long a side are in none."""
        real = [
            number
            for number, pair in enumerate(pairs)
            if pair.source_words and pair.target_words and not self._is_too_long(pair)
        ]
        real.sort(key=lambda number: (len(pairs[number].target), len(pairs[number].source)))
        lengths = [max(len(pair.source), len(pair.target)) for pair in pairs]
        yield from cut(real, lengths=lengths, padded=self.batch_pieces)

    def _is_too_long(self, pair: "PairPieces") -> bool:
        return max(len(pair.source), len(pair.target)) > self.longest

    @torch.no_grad()
    def _align_batch(
        self, pairs: Sequence["PairPieces"], *, exact: bool, score: bool
    ) -> Iterator[PairAlignment]:
        batch = make_batch([pair.source for pair in pairs], [pair.target for pair in pairs])
        device = next(self.model.parameters()).device
        problem = self.model.problem(batch.to(device), with_posterior=self.has_posterior)
        tables, log_probs = (
            _chain_tables(problem) if self.model.remembers else _tables(problem, exact=exact, score=score)
        )
        if problem.posterior is not None:
            tables["posterior"] = problem.posterior.alignment_probs()
        tables = {name: table.cpu() for name, table in tables.items()}
        for number, pair in enumerate(pairs):
            shape = (len(pair.target_words), len(pair.source_words))
            words = {
                name: word_probs(table[number], pair.target_index, pair.source_index, shape=shape)
                for name, table in tables.items()
            }
            value = None if log_probs is None else float(log_probs[number]) / len(pair.target)
            yield PairAlignment(
                pair.source_words,
                pair.target_words,
                words["prior"],
                words.get("posterior"),
                words.get("exact"),
                words.get("filtered"),
                words.get("path"),
                score=value,
            )


@dataclass(frozen=True)
class PairPieces:
    """A pair as the model reads it: words, pieces, and the word of every piece (−1: none)."""

    source_words: list[str]
    target_words: list[str]
    source: list[int]
    source_index: list[int]
    target: list[int]
    target_index: list[int]


def _tables(
    problem: AlignmentProblem, *, exact: bool, score: bool
) -> tuple[dict[str, Tensor], Tensor | None]:
    """The prior and, where asked for, the exact posterior [B,T,S] and its likeliest path; and log p(y|x) [B]."""
    tables = {"prior": problem.prior.alignment_probs()}
    if not exact and not score:
        return tables, None
    if problem.prior.is_discrete:
        prior = problem.prior.discrete("by: exact", instead="use prior")
        marginal = exact_marginal(prior, problem.likelihood, prune=_PRUNE)
        if exact:
            tables |= {"exact": marginal.responsibilities, "path": _path(marginal)}
        value = marginal.value
    elif exact:
        raise UserError(
            f"by: the exact posterior needs a discrete alignment; this run's is {problem.prior.family}, use prior"
        )
    else:
        # a fixed seed: the same pair gets the same score every time
        generator = torch.Generator(problem.weights.device).manual_seed(0)
        value = Sampled(20).log_likelihood(problem.prior, problem.likelihood, generator=generator)
    return tables, (value * problem.weights).sum(dim=1) if score else None


def _chain_tables(problem: AlignmentProblem) -> tuple[dict[str, Tensor], Tensor | None]:
    """All that a chain says: before a word, with it, and with the whole target; and log p(y|x) [B].

    The prior of a step depends on f of the words before it, so f is evaluated everywhere.
    """
    prior = problem.prior.discrete("by", instead="use posterior")
    f = TableLikelihood(problem.likelihood.everywhere(prior.support))
    marginal, predictive = prior.marginalise(f.table), prior.predictive(f)
    tables = {
        "prior": predictive.probs,
        "filtered": (predictive.log_probs + f.table).softmax(-1),
        "exact": marginal.responsibilities,
        "path": _path(marginal),
    }
    return tables, (marginal.value * problem.weights).sum(dim=1)


def _path(marginal: Marginalised) -> Tensor:
    """The likeliest alignment of all steps together, as a table of zeros and ones [B,T,S]."""
    posterior = marginal.posterior
    return torch.zeros_like(posterior.mean()).scatter_(-1, posterior.mode()[..., None], 1.0)


def _empty(pair: PairPieces, *, too_long: bool) -> PairAlignment:
    """A pair with an empty side, or one that is too long, has no links and is as bad as pairs get."""
    # a table of a pair that is too long might be larger than the memory
    nothing = np.zeros((0, 0) if too_long else (len(pair.target_words), len(pair.source_words)))
    return PairAlignment(
        pair.source_words,
        pair.target_words,
        *(nothing,) * 5,
        score=-float("inf"),
        too_long=too_long,
    )
