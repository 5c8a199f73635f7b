"""What a user may set of the aligner. Defaults live here and nowhere else."""

from typing import Annotated

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)

Probability = Annotated[float, Field(gt=0.0, lt=1.0)]


class Settings(BaseModel):
    """Unknown keys are refused, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # words
    tokenise: bool = False  # by the built-in tokeniser; else by white space
    # pairs with more words on a side are aligned, but nothing is learnt from them
    longest_learnt: PositiveInt = 100
    longest: PositiveInt = 1000  # pairs with more words on a side are left without links, and counted

    # lexicon
    alpha: PositiveFloat = 0.001  # pseudo-count of every pair of words
    # pseudo-counts that each kind of affix spreads over a word's translations
    affix_weight: NonNegativeFloat = 3.0
    affix_alpha: PositiveFloat = 0.01
    prefixes: tuple[PositiveInt, ...] = (4, 6)
    suffixes: tuple[PositiveInt, ...] = (5,)
    likeness_weight: NonNegativeFloat = 1.0  # pseudo-counts of two words that are spelt the same
    least_likeness: Probability = 0.5

    band_weight: NonNegativeFloat = 0.01  # share of a word's translations that only its frequency tells

    # chain
    null: Probability = 0.2  # how readily a word stays without a link
    jump_classes: PositiveInt = 50  # the most frequent words have jumps of their own
    jump_prior: PositiveFloat = 1.0  # pseudo-counts by which jumps are short
    jump_weight: PositiveFloat = 30.0  # pseudo-counts by which a class follows the jumps of all
    widest_jump: PositiveInt = 64  # longer jumps count as this one

    # learning
    agree: bool = True  # the two directions learn from what they agree on
    independent_rounds: NonNegativeInt = 5  # without jumps (IBM model 1)
    chain_rounds: NonNegativeInt = 4  # with jumps (hidden Markov model)
    least_count: NonNegativeFloat = 1e-3  # expected counts below this are dropped
    most_counts: PositiveInt = 20_000_000  # pairs of words whose counts are kept; the smallest go first
    shard_cells: PositiveInt = 4_000_000  # cells (pairs of positions) that are worked on at a time
