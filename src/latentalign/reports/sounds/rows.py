"""What is compared: recipes, languages, and the published system beside them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from latentalign.download import G2P_LANGUAGES
from latentalign.errors import UserError

# row -> recipe; in the order of the table
ROWS = {
    "soft": "g2p-soft",
    "marginal": "g2p-marginal",
    "hard": "g2p-hard",
    "hard-sample": "g2p-hard-sample",
    "variational": "g2p-variational",
    "variational-sample": "g2p-variational-sample",
    "variational-from-prior": "g2p-variational-from-prior",
    "variational-sample-from-prior": "g2p-variational-sample-from-prior",
    "em": "g2p-em",
    "rws": "g2p-rws",
    "vimco": "g2p-vimco",
    "chain": "g2p-chain",
    "chain-monotone": "g2p-chain-monotone",
    "chain-long": "g2p-chain-long",
    "chain-deep": "g2p-chain-deep",
    "multilingual": "g2p-multilingual",
}
OF_FEW_WORDS = {"chain-long": "g2p-few-words"}  # rows with a recipe of their own for languages of 800 words
PRINCIPAL = ("soft", "marginal", "variational-sample", "chain-monotone")  # with every seed
FIRST = (*PRINCIPAL, "em", "hard", "variational", "chain")  # what is trained before the other rows
MULTILINGUAL = "multilingual"  # one run for the ten languages of 800 words, measured on each
MANY = "many"  # what stands in place of the language of such a run
TOGETHER = G2P_LANGUAGES["low"]
# Rows that train nothing: runs of these rows together. A row that is named again is there with its next seed.
ENSEMBLES = {
    "ensemble": ("chain-long", "chain", "chain-monotone", "chain-monotone", "chain-monotone"),
    "multilingual-ensemble": (MULTILINGUAL,) * 5,
}

# Word error rates (development, test) of the task's baseline, an ensemble of neural transducers
PUBLISHED = {
    "arm_e": (4.5, 7.0), "bul": (8.3, 18.3), "dut": (10.8, 14.7), "fre": (7.4, 8.5), "geo": (0.0, 0.0),
    "hbs_latn": (34.7, 32.1), "hun": (1.5, 1.8), "jpn_hira": (6.2, 5.2), "kor": (18.4, 16.3), "vie_hanoi": (1.3, 2.5),
    "ady": (22.0, 22.0), "gre": (5.0, 21.0), "ice": (11.0, 12.0), "ita": (22.0, 19.0), "khm": (34.0, 34.0),
    "lav": (41.0, 55.0), "mlt_latn": (20.0, 19.0), "rum": (10.0, 10.0), "slv": (43.0, 49.0), "wel_sw": (16.0, 10.0),
    "eng_us": (45.13, 41.94),
}  # fmt: skip


@dataclass(frozen=True)
class SoundCell:
    """One training run: a language, a row and a seed."""

    language: str
    row: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.language}-{self.row}-s{self.seed}"

    @property
    def recipe(self) -> str:
        """The name of what it is trained by."""
        own = OF_FEW_WORDS if size_of(self.language) == "low" else {}
        return own.get(self.row, ROWS[self.row])

    @property
    def tag(self) -> str | None:
        """What its words begin with."""
        return self.language if MULTILINGUAL in (self.row, *ENSEMBLES.get(self.row, ())) else None

    @property
    def members(self) -> "tuple[SoundCell, ...]":
        """The cells that an ensemble is made of, its own seed the first of theirs; none for other cells."""
        rows = ENSEMBLES.get(self.row, ())
        seeds = [self.seed + rows[:place].count(row) for place, row in enumerate(rows)]
        return tuple(SoundCell(self.language, row, seed) for row, seed in zip(rows, seeds, strict=True))

    @property
    def trained(self) -> "SoundCell":
        """The cell whose run this one is measured with: itself, unless one run is for many languages."""
        return SoundCell(MANY, self.row, self.seed) if self.row == MULTILINGUAL else self

    @property
    def needs(self) -> "tuple[SoundCell, ...]":
        """The cells whose runs have to be there first."""
        return tuple(one.trained for one in self.members or (self,) if one.trained != self)


def parse_languages(text: str) -> list[str]:
    """`all` are the ten of 8,000 words and the ten of 800; `medium`, `low` and `high` are groups, too."""
    groups = {**G2P_LANGUAGES, "all": (*G2P_LANGUAGES["medium"], *G2P_LANGUAGES["low"])}
    chosen: dict[str, None] = {}
    for part in text.replace(",", " ").split():
        languages = groups.get(part, (part,))
        if unknown := [language for language in languages if language not in PUBLISHED]:
            known = ", ".join([*groups, *PUBLISHED])
            raise UserError(f"--languages {text}: no language {unknown[0]!r}; choose from {known}")
        chosen |= dict.fromkeys(languages)
    if not chosen:
        raise UserError("--languages: expected at least one, for example dut,fre or all")
    return list(chosen)


def size_of(language: str) -> str:
    """The group that a language is in."""
    if language == MANY:
        return MANY
    return next(size for size, languages in G2P_LANGUAGES.items() if language in languages)


def plan_cells(languages: Sequence[str], rows: Sequence[str], seeds: Sequence[int]) -> list[SoundCell]:
    """All cells, the most telling ones first: larger languages, principal rows, the first seed."""
    cells = dict.fromkeys(_in_turn(languages, rows, seeds))
    return [cell for cell in cells if cell.tag is None or cell.language in TOGETHER]


def _in_turn(languages: Sequence[str], rows: Sequence[str], seeds: Sequence[int]) -> Iterator[SoundCell]:
    first, *others = seeds
    for size in ("medium", "low", "high"):
        group = [language for language in languages if size_of(language) == size]
        principal = [row for row in PRINCIPAL if row in rows]
        # language by language: what is done of a grid can be compared whenever one looks
        yield from (SoundCell(language, row, first) for language in group for row in principal)
        later = [row for row in FIRST if row in rows]
        yield from (SoundCell(language, row, first) for row in later for language in group)
        yield from (
            SoundCell(language, row, seed) for seed in others for language in group for row in principal
        )
        together = [SoundCell(language, row, first) for row in ENSEMBLES if row in rows for language in group]
        yield from (cell for ensemble in together for cell in (*ensemble.members, ensemble))
        yield from (SoundCell(language, row, first) for row in rows for language in group)
