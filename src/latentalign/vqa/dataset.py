"""Questions about images as batches; features are read from disk batch by batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from latentalign.batching import cut
from latentalign.errors import UserError
from latentalign.files import digest
from latentalign.vqa.features import RegionFeatures
from latentalign.vqa.files import VqaExample
from latentalign.vqa.vocabulary import PADDING, Answers, Words

NOT_KEPT = -1  # an answer outside the vocabulary


@dataclass(frozen=True)
class VqaBatch:
    """B questions; S regions and L words are padded to the longest."""

    words: Tensor  # [B,L] long
    lengths: Tensor  # [B] long, on the CPU as packing wants it
    regions: Tensor  # [B,S,D]
    region_mask: Tensor  # [B,S] bool
    targets: Tensor  # [B,1] long: the label
    answerable: Tensor  # [B,1] bool: at least one person gave an answer that was kept
    said: Tensor  # [B,P] long: what each person said, −1 if not kept, −2 for padding
    gold: Tensor  # [B,S] bool: regions that show the answer; all False where unknown
    question_types: tuple[str, ...]

    def to(self, device: torch.device | str) -> "VqaBatch":
        moved = {
            name: getattr(self, name).to(device)
            for name in ("words", "regions", "region_mask", "targets", "answerable", "said", "gold")
        }
        return replace(self, **moved)


class VqaDataset:
    """Examples with their labels.

    In training (`draw=True`) the label of a question is drawn at every visit from what people said, in
    proportion, with torch's global generator, which the trainer seeds by epoch and batch. Otherwise it is
    drawn once from `seed`.
    """

    def __init__(
        self,
        examples: Sequence[VqaExample],
        features: RegionFeatures,
        *,
        words: Words,
        answers: Answers,
        gold: Mapping[int, tuple[int, ...]],
        batch_size: int,
        max_words: int,
        normalise_features: bool,
        source: str,
        draw: bool,
        seed: int = 0,
    ) -> None:
        self.examples = tuple(examples)
        self.features = features
        self.batch_size = batch_size
        self.source = source
        self.draw = draw
        self._gold = gold
        self._normalise = normalise_features
        encoded = [words.encode(example.question, limit=max_words) for example in self.examples]
        self._lengths = torch.tensor([len(numbers) for numbers in encoded])
        self._words = torch.full((len(encoded), max(map(len, encoded), default=1)), PADDING)
        for row, numbers in enumerate(encoded):
            self._words[row, : len(numbers)] = torch.tensor(numbers)
        self._said = _said_table(self.examples, answers)  # [N,P]
        self._cumulative = _cumulative_kept(self._said)
        self._fixed = np.random.default_rng(seed).random(len(self.examples))
        self._check_images()

    def _check_images(self) -> None:
        for example in self.examples:
            if example.image_id not in self.features:
                raise UserError(
                    f"{self.source}: question {example.question_id} is about image {example.image_id}, which "
                    f"has no features in {self.features.folder}; prepare the features of every image"
                )

    def __len__(self) -> int:
        return len(self.examples)

    def plan(self, epoch: int, seed: int) -> list[list[int]]:
        """Shuffled by seed and epoch; in the order of the file for `epoch < 0`."""
        order = np.arange(len(self))
        if epoch >= 0:
            order = np.random.default_rng([seed, epoch]).permutation(order)
        return cut(order.tolist(), examples=self.batch_size)

    def describe(self, indices: list[int]) -> str:
        keys = ", ".join(str(self.examples[index].question_id) for index in indices)
        return f"questions {keys} of {self.source}"

    def fingerprint(self) -> str:
        """A checksum of all questions, answers and features."""
        images = np.array([example.image_id for example in self.examples])
        return digest(images, self._words.numpy(), self._said, self.features.fingerprint())

    def collate(self, indices: list[int]) -> VqaBatch:
        rows = np.asarray(indices)
        lengths = self._lengths[rows]
        words = self._words[rows, : int(lengths.max())]
        uniform = torch.rand(len(indices), dtype=torch.float64).numpy() if self.draw else self._fixed[rows]
        targets = draw_labels(self._said[rows], self._cumulative[rows], uniform)
        regions, mask, gold = self._collate_regions(indices)
        return VqaBatch(
            words=words,
            lengths=lengths,
            regions=regions,
            region_mask=mask,
            targets=torch.from_numpy(np.maximum(targets, 0))[:, None],
            answerable=torch.from_numpy(targets >= 0)[:, None],
            said=torch.from_numpy(self._said[rows]),
            gold=gold,
            question_types=tuple(self.examples[index].question_type for index in indices),
        )

    def _collate_regions(self, indices: list[int]) -> tuple[Tensor, Tensor, Tensor]:
        features, mask = self.features.gather([self.examples[index].image_id for index in indices])
        gold = np.zeros_like(mask)
        for row, index in enumerate(indices):
            gold[row, list(self._gold.get(self.examples[index].question_id, ()))] = True
        regions = torch.from_numpy(features)
        if self._normalise:
            regions = torch.nn.functional.normalize(regions, dim=-1)
        return regions, torch.from_numpy(mask), torch.from_numpy(gold)


def _said_table(examples: Sequence[VqaExample], answers: Answers) -> np.ndarray:
    """What each person said, [N,P]: −1 for an answer that was not kept, −2 where there are fewer people."""
    people = max((len(example.answers) for example in examples), default=1)
    table = np.full((len(examples), people), -2, dtype=np.int64)
    for row, example in enumerate(examples):
        table[row, : len(example.answers)] = [answers.number(answer) for answer in example.answers]
    return table


def _cumulative_kept(said: np.ndarray) -> np.ndarray:
    return (said >= 0).cumsum(axis=1)


def draw_labels(said: np.ndarray, cumulative: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """One kept answer of each row [N,P], every person equally likely; −1 where no answer was kept."""
    kept = cumulative[:, -1]
    chosen = np.minimum(np.floor(uniform * kept), kept - 1) + 1  # the how-manieth person with a kept answer
    place = (cumulative >= chosen[:, None]).argmax(axis=1)
    labels = said[np.arange(len(said)), place]
    return np.where(kept > 0, labels, NOT_KEPT)


def resolve(folder: str | Path, name: str) -> Path:
    """A file of the data folder, or elsewhere if its name is absolute."""
    return Path(folder) / name
