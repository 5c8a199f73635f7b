"""Questions as examples: what fits into memory, what is unknown, in which order they come."""

import pytest
import torch

from latentalign.memory.dataset import StoryDataset
from latentalign.memory.stories import parse_stories
from latentalign.memory.vocabulary import UNKNOWN_ANSWER, Vocabulary
from latentalign.memory.worlds import WorldsConfig, tell_stories

LINES = """\
1 Mary went to the kitchen.
2 John went to the hall.
3 Mary went to the garden.
4 Where is Mary?\tgarden\t3
5 Where was Mary before the garden?\tkitchen\t3 1
""".splitlines()
STORIES = list(parse_stories(LINES, "a.txt"))
VOCABULARY = Vocabulary.collect(STORIES)


def build(memory: int = 10, **options: bool) -> StoryDataset:
    return StoryDataset(STORIES, VOCABULARY, memory=memory, batch_size=2, **options)


def test_a_batch_holds_facts_ages_and_support() -> None:
    batch = build().collate([0, 1])
    assert batch.mask.tolist() == [[True] * 3] * 2
    assert batch.age.tolist() == [[2, 1, 0]] * 2
    assert batch.support.tolist() == [[2, -1], [2, 0]]
    assert batch.supporting.tolist() == [[False, False, True], [True, False, True]]
    assert [VOCABULARY.answers[number] for number in batch.answers[:, 0]] == ["garden", "kitchen"]
    assert len(batch.sentences) == 3 + 3 + 2
    assert batch.to("cpu").groups == {}
    assert build(detailed=True).collate([1]).groups == {
        "pattern": ("where was … before the …",),
        "source": ("a.txt",),
    }


def test_a_long_story_keeps_its_newest_facts_and_says_so_once() -> None:
    dataset = build(memory=2)
    batch = dataset.collate([0, 1])
    words = [VOCABULARY.words[number] for number in batch.sentences[0]]
    assert words[:2] == ["john", "went"]
    assert batch.support[0].tolist() == [1]  # the third fact is now in the second slot
    assert not bool(batch.supporting[1].any())  # a supporting fact has been forgotten: none is known
    said = dataset.remarks()
    assert len(said) == 1
    assert "2 of 2 questions" in said[0]
    assert "newest facts are kept" in said[0]
    assert build().remarks() == []


def test_unknown_words_and_answers_are_counted() -> None:
    lines = ["1 Mary went to the moon.", "2 Where is Mary Ann?\tmoon\t1"]
    dataset = StoryDataset(list(parse_stories(lines, "b.txt")), VOCABULARY, memory=10, batch_size=1)
    batch = dataset.collate([0])
    assert dataset.unknown_words == {"moon": 1, "ann": 1}
    assert (batch.unknown, batch.words) == ((2,), (9,))
    assert batch.answers.item() == UNKNOWN_ANSWER
    assert not bool(batch.known_answers.any())
    told = " ".join(dataset.remarks())
    assert "2 words are not in the vocabulary" in told
    assert "1 answers were never seen" in told


def test_answers_of_several_words_are_one_answer() -> None:
    lines = ["1 The hall is north of the den.", "2 How do you go?\tn,e\t1", "3 Which?\told hall\t1"]
    vocabulary = Vocabulary.collect(parse_stories(lines, "c.txt"))
    assert vocabulary.answers == ("<unknown>", "n,e", "old hall")
    assert [[vocabulary.words[n] for n in words] for words in vocabulary.answer_words] == [
        [],
        ["n", "e"],
        ["old", "hall"],
    ]


@pytest.mark.parametrize("bucket", [True, False])
def test_plans_hold_every_question_once_and_repeat(bucket: bool) -> None:
    stories = tell_stories(WorldsConfig(stories=300), seed=1)
    vocabulary = Vocabulary.collect(stories)
    dataset = StoryDataset(stories, vocabulary, memory=50, batch_size=16, bucket=bucket)
    for epoch in (-1, 0, 1):
        plan = dataset.plan(epoch, 5)
        assert sorted(number for batch in plan for number in batch) == list(range(len(dataset)))
        assert plan == dataset.plan(epoch, 5)
        assert max(map(len, plan)) == 16
    assert dataset.plan(0, 5) != dataset.plan(1, 5)
    assert dataset.plan(0, 5) != dataset.plan(0, 6)
    assert dataset.plan(-1, 5) == dataset.plan(-1, 6)


def test_buckets_save_padding() -> None:
    stories = tell_stories(WorldsConfig(stories=300), seed=1)
    vocabulary = Vocabulary.collect(stories)

    def slots(bucket: bool) -> int:
        dataset = StoryDataset(stories, vocabulary, memory=50, batch_size=16, bucket=bucket)
        return sum(dataset.collate(batch).mask.numel() for batch in dataset.plan(0, 1))

    assert slots(True) < 0.8 * slots(False)


def test_describe_names_the_lines() -> None:
    assert build().describe([1]) == "questions at a.txt, line 5"


def test_padding_changes_nothing_but_the_mask() -> None:
    lines = [*LINES, "1 Anna slept.", "2 Who slept?\tAnna\t1"]
    stories = list(parse_stories(lines, "a.txt"))
    dataset = StoryDataset(stories, Vocabulary.collect(stories), memory=10, batch_size=2)
    alone, together = dataset.collate([2]), dataset.collate([2, 0])
    assert together.mask[0].tolist() == [True, False, False]
    assert torch.equal(together.age[0, :1], alone.age[0])
