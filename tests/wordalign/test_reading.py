"""What the aligner reads of a corpus, how it is divided, and what happens to pairs without links."""

import pickle
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from operator import attrgetter
from time import sleep

import numpy as np
import pytest

from latentalign.wordalign import aligner as module
from latentalign.wordalign.aligner import Aligner, _by_words, _Corpus
from latentalign.wordalign.estimation.expectation import Shard, expected_counts, schedule
from latentalign.wordalign.estimation.expectation_maximisation import InOneProcess
from latentalign.wordalign.estimation.model import Model
from latentalign.wordalign.estimation.processes import InProcesses, _expect, _loaded
from latentalign.wordalign.folder import is_aligner
from latentalign.wordalign.settings import Settings
from latentalign.wordalign.text.likeness import trigrams
from latentalign.wordalign.text.shards import ShardsOnDisk
from latentalign.wordalign.text.words import read_line
from tests.wordalign.small_models import SETTINGS, corpus, random_counts, vocabularies

PAIRS = [("das Haus", "the house"), ("das Buch", "the book"), ("ein Buch", "a book")]


@pytest.fixture(scope="module")
def aligner() -> Aligner:
    return Aligner.fit(PAIRS)


def test_pairs_may_come_from_an_iterator(aligner):
    assert Aligner.fit(iter(PAIRS)).history == aligner.history


def test_known_words_are_those_of_their_sides(aligner):
    source, target = aligner.known_words
    assert list(source) == ["buch", "das", "ein", "haus"]
    assert list(target) == ["book", "the", "a", "house"]
    assert aligner.units("Das Haus.") == ["das", "haus."]


def test_an_update_learns_with_jumps_alone(aligner):
    updated = aligner.update([("ein Haus", "a house")])
    assert updated.history[: len(aligner.history)] == aligner.history
    assert len(updated.history) == len(aligner.history) + aligner.settings.chain_rounds
    assert updated.counts.pairs == 4


def test_an_update_calibrates_by_old_and_new_pairs(aligner):
    new = [("ein Haus", "a house"), ("das Haus das Haus", "the house the house")]
    updated = aligner.update(new)
    lines = [tuple(read_line(text, tokenise=False) for text in pair) for pair in new]
    fitted = updated.calibrated(lines).calibration
    for of in ("forward.shift", "forward.slope", "backward.shift", "backward.slope", "threshold"):
        old, alone, found = (
            attrgetter(of)(part) for part in (aligner.calibration, fitted, updated.calibration)
        )
        assert old != alone
        assert found == pytest.approx((3 * old + 2 * alone) / 5)


def test_the_sample_has_the_smallest_checksums(monkeypatch):
    monkeypatch.setattr(module, "_SAMPLE", 5)
    pairs = [(f"f{n} g", f"e{n}") for n in range(40)]
    read = _Corpus(pairs, Settings())
    read.vocabularies()
    found = {(" ".join(source.units), " ".join(target.units)) for source, target in read.sample}
    ordered = sorted(pairs, key=lambda pair: zlib.crc32("\t".join([*pair[0].split(), "", pair[1]]).encode()))
    assert found == set(ordered[:5])


@pytest.mark.parametrize("in_memory", [1, 100])
def test_every_pair_is_in_one_shard(in_memory, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "_IN_MEMORY", in_memory)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    read = _Corpus([*PAIRS, ("", "x"), ("x", ""), ("a " * 5, "b")], Settings(shard_cells=8, longest_learnt=4))
    known = read.vocabularies()
    with ExitStack() as stack:
        work = read.work(known, 1, stack)
        assert isinstance(work, InOneProcess)
        assert [len(work.shards[number]) for number in range(len(work))] == [2, 1]
    assert list(tmp_path.iterdir()) == []


def test_two_words_are_linked_as_surely_as_their_surest_units():
    pair = read_line("Haus, ja", tokenise=True), read_line("house!", tokenise=True)
    units = np.array([[0.7, 0.1, 0.2], [0.05, 0.6, 0.3]], dtype=np.float32)  # [house !][haus , ja]
    assert _by_words(units, pair).tolist() == np.float32([[0.7, 0.3]]).tolist()
    plain = read_line("a b c", tokenise=False), read_line("d e", tokenise=False)
    assert _by_words(units, plain) is units
    assert _by_words(units, (plain[0], pair[1])).tolist() == np.float32([[0.7, 0.6, 0.3]]).tolist()
    assert _by_words(units, (pair[0], plain[1])).tolist() == np.float32([[0.7, 0.2], [0.6, 0.3]]).tolist()


def test_a_pair_with_an_empty_side_keeps_its_words(aligner):
    (found,) = aligner.align([("das Haus", "")])
    assert (found.source_words, found.target_words) == (["das", "Haus"], [])
    assert found.probs.shape == (0, 2)
    assert not found.skipped


@pytest.mark.parametrize("pair", [("das", "a b c"), ("a b c", "das")])
def test_a_pair_with_one_long_side_is_skipped(aligner, pair):
    limited = replace(aligner, settings=aligner.settings.model_copy(update={"longest": 2}))
    long, short = limited.align([pair, PAIRS[0]])
    assert (long.skipped, short.skipped) == (True, False)
    assert not long.probs.any()


def test_an_aligner_is_known_by_its_folder(aligner, tmp_path):
    assert not is_aligner(tmp_path)
    aligner.save(tmp_path / "saved")
    assert is_aligner(tmp_path / "saved")
    (tmp_path / "config.yaml").write_text("kind: run\n")
    assert not is_aligner(tmp_path)


def test_a_process_takes_the_model_of_the_round(tmp_path):
    pairs = corpus(4)
    known = vocabularies(pairs)
    step = schedule(SETTINGS)[-1]
    shards = ShardsOnDisk()
    try:
        shards.append(Shard.of(pairs, known, SETTINGS))
        for seed in (1, 2, 1):
            model = Model.of(random_counts(known, seed=seed), known, SETTINGS)
            path = tmp_path / f"model-{seed}"
            path.write_bytes(pickle.dumps((model, step)))
            expected = expected_counts(shards[0], model, step)
            assert _expect(path, shards, 0).log_likelihood == expected.log_likelihood
            assert list(_loaded) == [path]  # memory holds one model
        workers = InProcesses(shards, 1)
        assert len(workers) == 1
        workers.close()
        with pytest.raises(RuntimeError, match="after shutdown"):
            workers.pool.submit(int)
    finally:
        shards.close()
    assert not shards.folder.exists()
    shards.close()  # once more: there is nothing left to remove


def test_processes_share_the_threads(monkeypatch):
    made: list[tuple[int, tuple[int]]] = []
    monkeypatch.setattr(
        "latentalign.wordalign.estimation.processes.ProcessPoolExecutor",
        lambda processes, **options: made.append((processes, options["initargs"])),
    )
    monkeypatch.setattr("torch.get_num_threads", lambda: 7)
    for processes in (1, 3, 8):
        InProcesses(None, processes)
    assert made == [(1, (7,)), (3, (2,)), (8, (1,))]


def test_closing_waits_for_the_shard_that_is_worked_on_alone():
    workers = InProcesses(ShardsOnDisk(), 1)
    workers.shards.close()
    workers.pool = ThreadPoolExecutor(1)
    tasks = [workers.pool.submit(sleep, 0.1) for _ in range(3)]
    workers.close()
    assert tasks[-1].cancelled()


def test_a_word_of_nothing_but_marks_has_a_trigram():
    assert trigrams("\u0301") == {"<>"}
    assert trigrams("é") == {"<e>"}
    assert trigrams("kz") == {"<cc", "cc>"}
