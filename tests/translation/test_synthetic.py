"""The generated corpus: deterministic, with links that mean what they say."""

from collections import Counter, defaultdict
from pathlib import Path

from latentalign.translation.generated.corpus import generate, write_corpus
from latentalign.translation.generated.lexicon import CONJUNCTIONS, NAMES, PEOPLE, TRANSITIVE

EXAMPLES = generate(1500, 7)


def test_the_same_seed_gives_the_same_corpus() -> None:
    assert generate(50, 7) == EXAMPLES[:50]
    assert generate(50, 8) != EXAMPLES[:50]
    assert len({example.source for example in EXAMPLES}) == len(EXAMPLES)


def test_links_are_in_range_and_cover_the_target() -> None:
    for source, target, links in EXAMPLES:
        sizes = len(source.split()), len(target.split())
        assert len(set(links)) == len(links)
        assert all(0 <= i < sizes[0] and 0 <= j < sizes[1] for i, j in links)
        assert {j for _, j in links} == set(range(sizes[1]))  # everything in English comes from somewhere
        assert {source.split()[i] for i in set(range(sizes[0])) - {i for i, _ in links}} <= {","}


def test_links_join_words_and_their_translations() -> None:
    partners: dict[str, Counter[str]] = defaultdict(Counter)
    for source, target, links in EXAMPLES:
        left, right = source.split(), target.split()
        for i, j in links:
            partners[left[i]][right[j].lower()] += 1
    for name in NAMES:
        assert set(partners[name]) == {name.lower()}
    for noun in PEOPLE:
        assert set(partners[noun.singular]) <= {noun.english, noun.english_plural}
    for german, english in CONJUNCTIONS:
        assert set(partners[german]) == {english}
    assert partners["im"].keys() == {"in", "the"}


def test_subordinate_clauses_end_with_their_verb() -> None:
    finite = {verb.particle + form for verb in TRANSITIVE for form in (verb.present, verb.infinitive)}
    seen = 0
    for source, _, links in EXAMPLES:
        words = source.split()
        if words[0] == "Weil" and "," in words:
            last = words[words.index(",") - 1]
            seen += last in finite
            assert any(i == words.index(",") - 1 for i, _ in links)
    assert seen > 5


def test_phenomena_occur() -> None:
    fertility: Counter[str] = Counter()
    crossing = 0
    for source, _, links in EXAMPLES:
        per_source = Counter(i for i, _ in links)
        per_target = Counter(j for _, j in links)
        fertility["one to many"] += max(per_source.values()) > 1
        fertility["many to one"] += max(per_target.values()) > 1
        fertility["compound"] += any(
            word.startswith(("Garten", "Winter")) and len(word) > 8 for word in source.split()
        )
        crossing += sorted(links) != sorted(links, key=lambda link: (link[1], link[0]))
    assert min(fertility.values()) > 100
    assert crossing > 1000


def test_the_next_source_word_is_not_told_by_the_prefix() -> None:
    """The same adjuncts come in every order: how often do links to neighbours jump?"""
    jumps = Counter()
    for _, _, links in EXAMPLES:
        first_source = {j: min(i for i, k in links if k == j) for j in {j for _, j in links}}
        for j in range(1, len(first_source)):
            jumps[first_source[j] - first_source[j - 1]] += 1
    total = sum(jumps.values())
    assert jumps[1] / total < 0.7
    assert len(jumps) > 20


def test_splits_are_written_without_overlap(tmp_path: Path) -> None:
    splits = write_corpus(tmp_path, sizes={"train": 30, "valid": 10, "test": 10}, seed=3)
    sources = [(tmp_path / f"{name}.de").read_text(encoding="utf-8").splitlines() for name in splits]
    assert [len(lines) for lines in sources] == [30, 10, 10]
    assert len({line for lines in sources for line in lines}) == 50
    gold = (tmp_path / "test.gold").read_text().splitlines()
    links = [tuple(tuple(map(int, link.split("-"))) for link in line.split()) for line in gold]
    assert links == [example.links for example in splits["test"]]
