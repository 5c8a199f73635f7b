"""Position and temporal encoding against plain loops."""

import pytest
import torch

from latentalign.memory.dataset import StoryDataset
from latentalign.memory.encoding import SentenceEncoder, TemporalEncoding, split_batch
from latentalign.memory.stories import parse_stories
from latentalign.memory.vocabulary import UNKNOWN, Vocabulary

LINES = """\
1 Mary went to the kitchen.
2 John left.
3 Where is Mary?\tkitchen\t1
4 Mary took the milk.
5 What has Mary?\tmilk\t4
1 Anna slept.
2 Who slept?\tAnna\t1
""".splitlines()


@pytest.fixture
def dataset() -> StoryDataset:
    stories = list(parse_stories(LINES, "a.txt"))
    return StoryDataset(stories, Vocabulary.collect(stories), memory=10, batch_size=3)


def test_position_encoding_is_the_published_formula() -> None:
    torch.manual_seed(0)
    encoder = SentenceEncoder(9, 5, tables=2).double()
    sentence = [4, 7, 2]
    padded = torch.tensor([[*sentence, 0, 0]])
    table = encoder.table.detach().view(9, 2, 5)
    expected = torch.zeros(2, 5, dtype=torch.float64)
    for j, word in enumerate(sentence, start=1):
        for k in range(1, 6):
            weight = (1 - j / 3) - (k / 5) * (1 - 2 * j / 3)
            expected[:, k - 1] += weight * table[word, :, k - 1]
    torch.testing.assert_close(encoder(padded)[0].detach(), expected, atol=1e-7, rtol=1e-6)


def test_a_bag_of_words_is_a_sum_and_padding_adds_nothing() -> None:
    encoder = SentenceEncoder(9, 4, position_encoding=False)
    bag = encoder(torch.tensor([[4, 7, 2, 0]]))[0, 0]
    torch.testing.assert_close(bag, encoder.table[[4, 7, 2]].sum(dim=0))
    ordered = SentenceEncoder(9, 4)
    torch.testing.assert_close(ordered(torch.tensor([[4, 7]])), ordered(torch.tensor([[4, 7, 0, 0]])))


def test_an_unknown_word_says_nothing() -> None:
    encoder = SentenceEncoder(9, 4)
    assert encoder(torch.tensor([[UNKNOWN, UNKNOWN]])).abs().sum() == 0


def test_sentences_find_their_slots(dataset: StoryDataset) -> None:
    batch = dataset.collate([0, 1, 2])
    encoder = SentenceEncoder(40, 4)
    facts, questions = split_batch(encoder(batch.sentences), batch)
    assert facts.shape == (3, 3, 1, 4)
    for row, example in enumerate(dataset.examples):
        for slot, number in enumerate(example.facts):
            torch.testing.assert_close(facts[row, slot], encoder(dataset.table[[number]])[0])
        torch.testing.assert_close(questions[row], encoder(dataset.table[[example.question]])[0])
        assert facts[row, len(example.facts) :].abs().sum() == 0


def test_noise_makes_facts_older_only_while_training() -> None:
    torch.manual_seed(0)
    temporal = TemporalEncoding(6, 3, random_noise=0.5)
    age = torch.tensor([[3, 2, 1, 0]]).expand(50, 4)
    noisy = temporal.ages(age)
    assert bool((noisy >= age).all())
    assert bool((noisy > age).any())
    assert int(noisy.max()) <= 5
    assert bool((noisy[:, :-1] > noisy[:, 1:]).logical_or(noisy[:, :-1] == 5).all())  # the order stays
    temporal.eval()
    assert torch.equal(temporal.ages(age), age)
    # older than the table: its oldest row
    assert torch.equal(temporal.ages(age + 10), torch.full_like(age, 5))
