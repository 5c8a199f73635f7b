"""Answers as the VQA evaluation sees them: normalised words and two scores against ten people."""

import re

_ARTICLES = frozenset({"a", "an", "the"})
_NUMBERS = {
    word: str(number)
    for number, word in enumerate(
        ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    )
} | {"none": "0"}
_PUNCTUATION = ';/[]"{}()=+\\_-><@`,?!'
_COMMA_IN_NUMBER = re.compile(r"\d,\d")
# the official pattern means "not between digits" but tests only what follows; kept as it is evaluated
_PERIOD = re.compile(r"\.(?!\d)")
_MAX_PERIODS = 32  # the official code passes a flag where the count of replacements goes

_CONTRACTED = {
    "'t": "ain aren can couldn didn doesn don hadn hasn haven isn mightn mustn needn oughtn shan shouldn "
    "wasn weren won wouldn",
    "'t've": "couldn hadn mightn shouldn wouldn",
    "'ve": "could might must not should they we what where who would you",
    "'d": "he how it someone something there they where who you",
    "'d've": "he it she somebody someone something there they we who you y'all",
    "'ll": "how it somebody someone something they what who why you y'all",
    "'s": "he how somebody someone that there what when where who why",
    "'re": "there they what why you",
    "": "ma'am o'clock 'ow's'at 'twas y'all",
}


def _contractions() -> dict[str, str]:
    """Every contraction spelt with exactly one of its apostrophes missing -> its full spelling."""
    table = {"somebody'd": "somebodyd"}  # the official table has this one the wrong way round
    for ending, stems in _CONTRACTED.items():
        for stem in stems.split():
            full = stem + ending
            for place, letter in enumerate(full):
                if letter == "'":
                    table[full[:place] + full[place + 1 :]] = full
    return table


_CONTRACTIONS = _contractions()


def normalise_answer(text: str) -> str:
    """The official normalisation: punctuation, lower case, number words, articles, contractions."""
    text = text.replace("\n", " ").replace("\t", " ").strip()
    words = _strip_punctuation(text).lower().split()
    words = [_NUMBERS.get(word, word) for word in words]
    return " ".join(_CONTRACTIONS.get(word, word) for word in words if word not in _ARTICLES)


def _strip_punctuation(text: str) -> str:
    """A sign beside a space (or any sign beside a number such as 1,000) vanishes, others become a space."""
    number = _COMMA_IN_NUMBER.search(text) is not None
    result = text
    for sign in _PUNCTUATION:
        vanishes = number or f"{sign} " in text or f" {sign}" in text
        result = result.replace(sign, "" if vanishes else " ")
    return _PERIOD.sub("", result, count=_MAX_PERIODS)


def simple_score(matches: int) -> float:
    """The paper's score: three people who said it make an answer fully right."""
    return min(matches / 3, 1.0)


def official_score(matches: int, people: int) -> float:
    """Mean of the simple score over the subsets that leave one of the people out.

    `matches` of the subsets leave out a person who agreed, the others one who did not.
    """
    if people < 2:
        return simple_score(matches)
    agreed = matches * simple_score(matches - 1)
    differed = (people - matches) * simple_score(matches)
    return (agreed + differed) / people
