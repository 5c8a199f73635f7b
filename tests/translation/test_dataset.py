"""Batches: complete, deterministic, well filled, and the same from disk as from memory."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from latentalign.translation.data.corpus import Corpus, CorpusReport, Sequences
from latentalign.translation.data.dataset import TranslationDataset, make_batch
from latentalign.translation.data.tokenizer import END, PAD, START


def corpus_of(lengths: list[tuple[int, int]]) -> Corpus:
    """Pairs of the given lengths, filled with numbers that tell them apart."""
    sides = []
    for side in (0, 1):
        sizes = [pair[side] for pair in lengths]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        sides.append(Sequences(np.arange(4, 4 + sum(sizes), dtype=np.int32), offsets))
    lines = np.arange(10, 10 + len(lengths), dtype=np.int64)
    return Corpus(sides[0], sides[1], lines, CorpusReport("train.de"))


LENGTHS = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=60)


@given(LENGTHS, st.sampled_from(["sentences", "tokens"]), st.integers(1, 80), st.integers(-1, 3))
def test_every_pair_is_in_exactly_one_batch(
    lengths: list[tuple[int, int]], batch_by: str, size: int, epoch: int
) -> None:
    dataset = TranslationDataset(corpus_of(lengths), batch_by=batch_by, batch_size=size)
    plan = dataset.plan(epoch, 5)
    assert sorted(index for batch in plan for index in batch) == list(range(len(lengths)))
    assert plan == TranslationDataset(corpus_of(lengths), batch_by=batch_by, batch_size=size).plan(epoch, 5)
    for batch in plan:
        assert batch
        cost = (
            len(batch) if batch_by == "sentences" else len(batch) * max(lengths[index][1] for index in batch)
        )
        assert cost <= size or len(batch) == 1


def test_epochs_and_seeds_differ_and_evaluation_does_not() -> None:
    random = np.random.default_rng(1)
    dataset = TranslationDataset(
        corpus_of([tuple(pair) for pair in random.integers(1, 9, (300, 2)).tolist()])
    )
    assert dataset.plan(0, 1) != dataset.plan(1, 1)
    assert dataset.plan(0, 1) != dataset.plan(0, 2)
    assert {frozenset(batch) for batch in dataset.plan(0, 1)} != {frozenset(b) for b in dataset.plan(1, 1)}
    assert dataset.plan(-1, 1) == dataset.plan(-2, 2)


def test_batches_hold_little_padding() -> None:
    random = np.random.default_rng(1)
    target = random.poisson(13, 5000) + 1
    source = np.maximum(1, target + random.integers(-3, 4, 5000))
    dataset = TranslationDataset(corpus_of(list(zip(source.tolist(), target.tolist(), strict=True))))
    batches = [dataset.collate(batch) for batch in dataset.plan(0, 1)]
    for name in ("source_mask", "target_mask"):
        masks = [getattr(batch, name) for batch in batches]
        assert sum(mask.sum().item() for mask in masks) / sum(mask.numel() for mask in masks) > 0.9


def test_collate_pads_marks_and_shifts() -> None:
    batch = make_batch([[5, 6, END], [7, END]], [[8, END], [9, 10, END]])
    assert batch.source.tolist() == [[5, 6, END], [7, END, PAD]]
    assert batch.source_mask.tolist() == [[True, True, True], [True, True, False]]
    assert batch.target.tolist() == [[8, END, PAD], [9, 10, END]]
    assert batch.target_input.tolist() == [[START, 8, END], [START, 9, 10]]
    assert len(batch) == 2
    assert batch.to(torch.device("cpu")).target.tolist() == batch.target.tolist()


def test_pairs_are_described_by_their_lines() -> None:
    dataset = TranslationDataset(corpus_of([(1, 1)] * 9))
    assert dataset.describe([7, 0]) == "lines 10, 17 of train.de"
    dataset = TranslationDataset(corpus_of([(2, 3), (1, 2)]))
    assert dataset.collate([1]).source.tolist() == [[6]]


def test_a_pair_larger_than_a_batch_of_tokens_stands_alone() -> None:
    dataset = TranslationDataset(corpus_of([(2, 3), (2, 50), (2, 3)]), batch_by="tokens", batch_size=10)
    assert sorted(map(sorted, dataset.plan(0, 1))) == [[0, 2], [1]]


@pytest.mark.parametrize("epoch", [0, -1])
def test_plans_are_plain_lists(epoch: int) -> None:
    plan = TranslationDataset(corpus_of([(2, 3)] * 3), batch_size=2).plan(epoch, 1)
    assert all(type(index) is int for batch in plan for index in batch)
