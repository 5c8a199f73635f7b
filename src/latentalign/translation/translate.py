"""Sentences in, translations out: batches by length inside, the order of the input outside."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch

from latentalign.alignment.prediction import Exact, Predictor
from latentalign.batching import cut
from latentalign.errors import UserError
from latentalign.text.links import Link
from latentalign.text.symmetrise import decode_links
from latentalign.translation.align import PairAlignment, PairPieces, TranslationAligner
from latentalign.translation.beam.decoding import PredictiveDecoder
from latentalign.translation.beam.search import Hypothesis, SearchOptions, beam_search
from latentalign.translation.data.assets import TranslationAssets
from latentalign.translation.data.dataset import pad
from latentalign.translation.data.tokenizer import END
from latentalign.translation.ensemble import EnsembleDecoder
from latentalign.translation.network.model import TranslationModel

LONGEST = 500  # pieces of a source: the time of a search grows with the square of its length


@dataclass(frozen=True)
class Translation:
    """One translation of a sentence."""

    text: str
    score: float  # what hypotheses are ranked by
    log_prob: float  # log p(y|x), end included
    pieces: tuple[int, ...] = ()
    alignment: PairAlignment | None = None

    def __str__(self) -> str:
        return self.text

    def links(self, by: str) -> dict[Link, float]:
        """Arg-max links of the output words to the source words."""
        return {} if self.alignment is None else decode_links(self.alignment.probs(by))


class Translator:
    """Translates with one trained model, or several together; every sentence independently of its neighbours.

    `others` are further models of the same vocabulary with their predictors. Links come from the first model.
    """

    def __init__(
        self,
        model: TranslationModel,
        assets: TranslationAssets,
        *,
        options: SearchOptions | None = None,
        predictor: Predictor | None = None,
        others: Sequence[tuple[TranslationModel, Predictor]] = (),
        batch_size: int = 64,
        batch_pieces: int = 4096,
        longest: int = LONGEST,
        seed: int = 0,
    ) -> None:
        self.model = model.eval()
        self.assets = assets
        self.options = options or SearchOptions()
        self.predictor = predictor or Exact()
        self.batch_size, self.batch_pieces, self.longest = batch_size, batch_pieces, longest
        self.device = next(model.parameters()).device
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.aligner = TranslationAligner(model, assets)
        self.decoder: PredictiveDecoder | EnsembleDecoder = PredictiveDecoder(
            self.model, self.predictor, self.generator
        )
        if others:
            members = [(self.model, self.predictor), *others]
            self.decoder = EnsembleDecoder(
                tuple(
                    PredictiveDecoder(member.eval(), predicts, self.generator, tolerance=0.0)
                    for member, predicts in members
                )
            )

    @property
    def links_by(self) -> str:
        """The distribution that links of outputs come from."""
        return self.aligner.choose()

    def translate(
        self,
        sentences: Sequence[str],
        *,
        alignments: bool = False,
        progress: Callable[[int], None] = lambda count: None,
    ) -> list[list[Translation]]:
        """The n best translations of every sentence; an empty sentence has the empty translation.

        Of a sentence of more than `longest` pieces only the beginning is translated, so that time is bounded.
        `progress` is called with the number of sentences of each batch.
        """
        pieces = [self.assets.source_pieces(sentence)[: self.longest] for sentence in sentences]
        results = [[Translation("", 0.0, 0.0)] for _ in sentences]
        lengths = [len(found) for found in pieces]
        order = sorted((number for number, length in enumerate(lengths) if length), key=lengths.__getitem__)
        for group in cut(order, examples=self.batch_size, lengths=lengths, padded=self.batch_pieces):
            sources = [[*pieces[n], END] if self.assets.source_end else pieces[n] for n in group]
            for number, hypotheses in zip(group, self._search(sources), strict=True):
                if not hypotheses:  # a line less would shift all that follow
                    raise UserError(
                        f"{sentences[number][:60]!r}: nothing was found, the model's numbers are not finite; "
                        "train once more"
                    )
                results[number] = self._spell(hypotheses)
            progress(len(group))
        return self._align(sentences, results) if alignments else results

    @torch.no_grad()
    def _search(self, sources: Sequence[Sequence[int]]) -> list[list[Hypothesis]]:
        tokens, mask = pad(sources)
        decoder: Any = self.decoder
        memory = decoder.encode(tokens.to(self.device), mask.to(self.device))
        lengths = mask.sum(1).to(self.device)
        return beam_search(decoder, memory, decoder.start(memory), lengths, options=self.options)

    def _spell(self, hypotheses: Sequence[Hypothesis]) -> list[Translation]:
        """Text of the n best; of several ways to spell the same text the best stays."""
        found: dict[str, Translation] = {}
        for hypothesis in hypotheses:
            text = self.assets.target.decode(hypothesis.tokens)
            if text not in found:
                found[text] = Translation(
                    text, hypothesis.score, hypothesis.log_prob, tuple(hypothesis.tokens)
                )
        return list(islice(found.values(), self.options.n_best))

    def _align(
        self, sentences: Sequence[str], results: Sequence[Sequence[Translation]]
    ) -> list[list[Translation]]:
        pairs = []
        for sentence, translations in zip(sentences, results, strict=True):
            source, source_index = self.assets.encode_source(sentence)
            for translation in translations:
                words, index = self.assets.target.decode_words(translation.pieces)
                target, target_index = [*translation.pieces, END], [*index, -1]
                pairs.append(
                    PairPieces(
                        self.assets.source.words(sentence), words, source, source_index, target, target_index
                    )
                )
        aligned = iter(self.aligner.align_pieces(pairs, exact=self.links_by == "exact"))
        return [
            [Translation(t.text, t.score, t.log_prob, t.pieces, next(aligned)) for t in translations]
            for translations in results
        ]


def windows(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    """Group lines for translation."""
    stream = iter(lines)
    while window := list(islice(stream, size)):
        yield window
