"""Small corpora for tests: words translated one by one, with swaps, words without a link, and noise."""

import random

Pair = tuple[str, str]


def generated(
    pairs: int, *, seed: int = 0, words: int = 12, longest: int = 7
) -> tuple[list[Pair], list[set[tuple[int, int]]]]:
    """Pairs of sentences and their true links (source word, target word)."""
    chance = random.Random(seed)
    found, gold = [], []
    for _ in range(pairs):
        source = [chance.randrange(words) for _ in range(chance.randint(2, longest))]
        order = list(range(len(source)))
        if chance.random() < 0.5:
            place = chance.randrange(len(order) - 1)
            order[place], order[place + 1] = order[place + 1], order[place]
        target, links = [], set()
        for position in order:
            if chance.random() < 0.15:
                target.append("ja")
            links.add((position, len(target)))
            target.append(f"e{source[position]}{'abcdefgh'[source[position] % 8] * 3}")
        found.append((" ".join(f"f{word}{'stuvwxyz'[word % 8] * 3}" for word in source), " ".join(target)))
        gold.append(links)
    return found, gold
