"""Learning, aligning, saving, updating and merging, on corpora whose links are known."""

import os
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from latentalign.errors import UserError
from latentalign.wordalign.aligner import Aligner
from latentalign.wordalign.settings import Settings
from tests.wordalign.corpora import generated

PAIRS, GOLD = generated(150, seed=1)


@pytest.fixture(scope="module")
def aligner() -> Aligner:
    return Aligner.fit(PAIRS)


def error(aligner: Aligner, method: str = "mean") -> float:
    found = [set(pair.links(method)) for pair in aligner.align(PAIRS)]
    hits = sum(len(one & other) for one, other in zip(found, GOLD, strict=True))
    return 1 - 2 * hits / (sum(map(len, found)) + sum(map(len, GOLD)))


def same(one: Aligner, other: Aligner, pairs=PAIRS[:30], **tolerance: float) -> None:
    for left, right in zip(one.align(pairs), other.align(pairs), strict=True):
        np.testing.assert_allclose(left.probs, right.probs, **tolerance)
        np.testing.assert_allclose(left.score, right.score, **tolerance)


@pytest.mark.parametrize(
    "method", ["mean", "intersection", "union", "grow-diag-final-and", "forward", "backward"]
)
def test_links_of_a_generated_corpus_are_found(aligner, method):
    assert error(aligner, method) < 0.05


def test_likelihood_rises_while_learning(aligner):
    assert aligner.history[4] > aligner.history[0]
    assert aligner.history[-1] > aligner.history[5]


def test_a_pair_is_aligned_the_same_whatever_else_is_in_the_file(aligner):
    together = list(aligner.align(PAIRS))
    for number in (0, 7, 80):
        alone = next(aligner.align([PAIRS[number]]))
        assert (alone.probs == together[number].probs).all()
        assert alone.score == together[number].score


def test_the_order_of_pairs_does_not_matter(aligner):
    shuffled = random.Random(3).sample(PAIRS, len(PAIRS))
    same(aligner, Aligner.fit(shuffled), atol=1e-3)


def test_the_other_direction_has_the_same_links(aligner):
    swapped = Aligner.fit([(target, source) for source, target in PAIRS])
    for (source, target), found in zip(PAIRS, aligner.align(PAIRS), strict=True):
        other = next(swapped.align([(target, source)]))
        np.testing.assert_allclose(other.probs.T, found.probs, atol=1e-3)


def test_fewer_counts_than_pairs_of_words_still_find_the_links():
    kept = Aligner.fit(PAIRS, Settings(most_counts=100))
    assert len(kept.counts.links[0]) <= 100
    assert error(kept) < 0.1


def test_small_shards_learn_the_same(aligner):
    same(aligner, Aligner.fit(PAIRS, Settings(shard_cells=300)), atol=1e-3)


def test_two_processes_learn_the_same_as_one():
    settings = Settings(shard_cells=800, independent_rounds=2, chain_rounds=1)
    one, two = (Aligner.fit(PAIRS[:60], settings, processes=processes) for processes in (1, 2))
    assert one.history == two.history
    same(one, two, atol=0.0, rtol=0.0)


def test_shards_on_disk_learn_the_same_and_leave_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    settings = Settings(shard_cells=300, independent_rounds=1, chain_rounds=1)
    one = Aligner.fit(PAIRS, settings)
    monkeypatch.setattr("latentalign.wordalign.aligner._IN_MEMORY", 1000)
    same(one, Aligner.fit(PAIRS, settings), atol=0.0, rtol=0.0)
    assert list(tmp_path.iterdir()) == []


def test_a_saved_aligner_is_the_same(aligner, tmp_path):
    aligner.save(tmp_path / "saved")
    loaded = Aligner.load(tmp_path / "saved")
    same(aligner, loaded, atol=0.0, rtol=0.0)
    assert loaded.settings == aligner.settings
    assert loaded.calibration == aligner.calibration
    assert {path.name for path in (tmp_path / "saved").iterdir()} == {
        "config.yaml", "model.safetensors", "log.txt", "source.txt", "target.txt"
    }  # fmt: skip
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_an_empty_folder_may_be_written_to(aligner, tmp_path):
    aligner.save(tmp_path)
    assert tmp_path.stat().st_mode & 0o777 == 0o755
    same(aligner, Aligner.load(tmp_path), atol=0.0, rtol=0.0)


def test_saving_again_replaces_an_aligner_and_nothing_else(aligner, tmp_path):
    aligner.save(tmp_path / "saved")
    aligner.save(tmp_path / "saved")
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="is not an aligner; choose another name"):
        aligner.save(tmp_path / "other")
    assert (tmp_path / "other" / "thesis.tex").is_file()


def test_saving_again_keeps_foreign_files_and_links(aligner, tmp_path):
    aligner.save(tmp_path / "saved")
    (tmp_path / "saved" / "notes").mkdir()
    (tmp_path / "saved" / "notes" / "thesis.tex").write_text("years of work")
    (tmp_path / "link").symlink_to("saved")
    aligner.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "saved" / "notes" / "thesis.tex").read_text() == "years of work"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "saved"]
    same(aligner, Aligner.load(tmp_path / "saved"), atol=0.0, rtol=0.0)


def test_a_folder_that_only_says_that_it_is_an_aligner_is_left_alone(aligner, tmp_path):
    (tmp_path / "config.yaml").write_text("kind: aligner\n")
    (tmp_path / "source.txt").write_text("mine")
    with pytest.raises(UserError, match="is not an aligner"):
        aligner.save(tmp_path)
    assert (tmp_path / "source.txt").read_text() == "mine"


@pytest.mark.parametrize("name", ["model.safetensors", "source.txt", "target.txt"])
def test_a_damaged_aligner_is_refused(aligner, tmp_path, name):
    folder = tmp_path / "saved"
    aligner.save(folder)
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[:-3])
    with pytest.raises(UserError, match=f"{name} is damaged"):
        Aligner.load(folder)
    (folder / name).unlink()
    with pytest.raises(UserError, match=f"{name} is missing"):
        Aligner.load(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("kind: aligner\nformat: 99\nchecksums: {}\n", "has format 99"),
        ("kind: aligner\n: [", "expected an aligner"),
        ("task: translation\n", "expected an aligner"),
    ],
)
def test_another_config_is_refused(aligner, tmp_path, content, message):
    folder = tmp_path / "saved"
    aligner.save(folder)
    (folder / "config.yaml").write_text(content)
    with pytest.raises(UserError, match=message):
        Aligner.load(folder)


def test_settings_of_another_version_are_refused(aligner, tmp_path):
    folder = tmp_path / "saved"
    aligner.save(folder)
    config = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(config.replace("settings:\n", "settings:\n  depth: 3\n"))
    with pytest.raises(UserError, match="not an aligner of this version"):
        Aligner.load(folder)


def test_no_folder_is_refused(tmp_path):
    with pytest.raises(UserError, match="no such aligner"):
        Aligner.load(tmp_path / "nowhere")


def test_merging_halves_is_as_good_as_learning_both():
    one, other = Aligner.fit(PAIRS[:75]), Aligner.fit(PAIRS[75:])
    merged = one.merge(other)
    assert merged.counts.pairs == len(PAIRS)
    assert error(merged) < 0.05
    for side in (0, 1):
        whole = Aligner.fit(PAIRS).vocabularies[side]
        assert merged.vocabularies[side].words == whole.words
        assert (merged.vocabularies[side].counts == whole.counts).all()


def test_merging_does_not_depend_on_the_order():
    one, other = Aligner.fit(PAIRS[:75]), Aligner.fit(PAIRS[75:])
    same(one.merge(other), other.merge(one), atol=1e-6)


def test_merging_keeps_the_jumps_of_frequent_words():
    one, other = Aligner.fit(PAIRS[:75]), Aligner.fit(PAIRS[75:])
    merged = one.merge(other)
    for side in (0, 1):
        total = one.counts.jumps[side].taken.sum() + other.counts.jumps[side].taken.sum()
        assert merged.counts.jumps[side].taken.sum() == pytest.approx(total)


def test_aligners_with_different_settings_are_not_merged(aligner):
    other = replace(aligner, settings=Settings(null=0.4, alpha=0.1))
    with pytest.raises(UserError, match="alpha, null differ"):
        aligner.merge(other)


def test_updating_learns_new_words_and_keeps_the_old():
    aligner = Aligner.fit(PAIRS)
    new = [("neu", "new"), ("neu neu", "new new"), ("alt neu", "old new"), ("alt", "old")] * 3
    updated = aligner.update(new)
    assert updated.counts.pairs == len(PAIRS) + len(new)
    assert error(updated) < 0.05
    found = next(updated.align([("neu alt", "old new")]))
    assert set(found.links()) == {(0, 1), (1, 0)}
    assert found.unknown == 0
    assert next(aligner.align([("neu alt", "old new")])).unknown == 4


@pytest.mark.parametrize(
    "pairs",
    [
        [("Haus", "house")],
        [("ein Haus am See", "a house at the lake")],
        [("a", "b"), ("a", "b"), ("c", "d")],
        [("", ""), ("a", ""), ("a", "b")],
        [(text, text) for text in ("a b c", "b c d", "d a")],
        [("a " * 90, "b")] * 5,
        [(f"f{n} g{n}", f"e{n} d{n}") for n in range(200)],
        [("x" * 50_000 + " y", "z" * 50_000 + " w")],
        [("הבית גדול", "the house"), ("الكتاب", "book"), ("👩‍👩‍👧 ́", "family")],
    ],
    ids=[
        "one word",
        "one pair",
        "one word a side",
        "empty lines",
        "identical languages",
        "one long side",
        "words seen once",
        "very long words",
        "other scripts",
    ],
)
def test_small_corpora_can_be_learnt(pairs):
    aligner = Aligner.fit(pairs)
    for (source, target), found in zip(pairs, aligner.align(pairs), strict=True):
        assert np.isfinite(found.probs).all()
        assert found.probs.shape == (len(target.split()), len(source.split()))
        if not source or not target:
            assert found.links() == {}
            assert found.score == -float("inf")


def test_identical_languages_are_linked_word_by_word():
    texts = [" ".join(random.Random(n).sample("abcdefgh", 5)) for n in range(40)]
    aligner = Aligner.fit([(text, text) for text in texts])
    for found in aligner.align([(text, text) for text in texts]):
        assert set(found.links()) == {(n, n) for n in range(5)}


def test_nothing_to_learn_from_is_refused():
    with pytest.raises(UserError, match="there is no pair to learn from"):
        Aligner.fit([("", "a"), ("b", "")])


def test_very_long_pairs_are_skipped_and_counted(aligner):
    long, short = next(aligner.align([("f1ttt " * 10_000, "e1bbb " * 10_000)])), PAIRS[0]
    assert long.skipped
    assert long.links() == {}
    assert not next(aligner.align([short])).skipped
    middle = next(aligner.align([("f1ttt " * 400, "e1bbb " * 300)]))
    assert not middle.skipped
    assert np.isfinite(middle.probs).all()


def test_bad_pairs_have_low_scores(aligner):
    shuffled = [(PAIRS[n][0], PAIRS[n - 17][1]) for n in range(100)]
    right = sorted(found.score for found in aligner.align(PAIRS[:100]))
    wrong = sorted(found.score for found in aligner.align(shuffled))
    beaten = np.mean([[one > other for other in wrong] for one in right])
    assert beaten > 0.95


def test_probabilities_of_a_direction_sum_to_at_most_one(aligner):
    for found in aligner.align(PAIRS[:20]):
        assert found.forward.sum(axis=1).max() < 1 + 1e-4
        assert found.backward.sum(axis=0).max() < 1 + 1e-4
        assert ((found.probs >= 0) & (found.probs <= 1)).all()


def test_a_threshold_of_its_own_and_one_that_is_given(aligner):
    found = next(aligner.align([PAIRS[0]]))
    assert set(found.links(threshold=1.0)) <= set(found.links()) <= set(found.links(threshold=0.0))
    assert len(found.links(threshold=0.0)) == found.probs.size
    with pytest.raises(UserError, match=r"threshold: expected a probability between 0 and 1, got 1.5"):
        found.links(threshold=1.5)
    with pytest.raises(UserError, match="symmetrise: expected one of mean, intersection"):
        found.links("best")


def test_links_refer_to_words_of_the_input_when_units_are_smaller():
    pairs = [("Haus.", "house ."), ("Baum.", "tree ."), ("Haus, Baum.", "house , tree .")] * 5
    aligner = Aligner.fit(pairs, Settings(tokenise=True))
    found = next(aligner.align([("Baum, Haus.", "tree, house .")]))
    assert found.source_words == ["Baum,", "Haus."]
    assert found.probs.shape == (3, 2)
    assert {(0, 0), (1, 1), (1, 2)} <= set(found.links())


def test_case_is_ignored(aligner):
    pair = PAIRS[3]
    upper = next(aligner.align([(pair[0].upper(), pair[1].upper())]))
    assert (upper.probs == next(aligner.align([pair])).probs).all()


def test_saving_is_whole_or_not_at_all(aligner, tmp_path, monkeypatch):
    folder = tmp_path / "saved"
    aligner.save(folder)
    before = (folder / "config.yaml").read_bytes()

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        aligner.save(folder)
    assert (folder / "config.yaml").read_bytes() == before
    assert [path.name for path in Path(tmp_path).iterdir()] == ["saved"]


def test_an_aligner_that_cannot_be_replaced_stays(aligner, tmp_path, monkeypatch):
    folder = tmp_path / "saved"
    aligner.save(folder)
    before = (folder / "config.yaml").read_bytes()
    move, moved = os.replace, []

    def fail_once(source: object, destination: object) -> None:
        moved.append(destination)
        if moved.count(folder) == 1 and destination == folder:
            raise OSError("disk full")
        move(source, destination)

    monkeypatch.setattr("latentalign.wordalign.folder.os.replace", fail_once)
    with pytest.raises(OSError, match="disk full"):
        aligner.save(folder)
    assert (folder / "config.yaml").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]
