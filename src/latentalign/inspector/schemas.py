"""What the API takes and gives. Limits that depend on the server are in `limits.py`."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from latentalign.inspector.limits import INFERENCE_PATTERN
from latentalign.translation.beam.search import LARGEST_EOS_PENALTY, LARGEST_LENGTH_PENALTY


def _is_text(value: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("expected text, received half of a surrogate pair") from None
    return value


Text = Annotated[str, AfterValidator(_is_text)]
Inference = Annotated[
    Annotated[str, Field(pattern=INFERENCE_PATTERN)] | None,
    Field(description="`exact`, `kmax:K`, `sample:N` or `soft`; as the run was trained unless given."),
]
RunName = Annotated[
    Text | None, Field(description="A name from `GET /api/runs`; the first run unless given.")
]
Seed = Annotated[int, Field(ge=0, le=2**31 - 1, description="Of sampled inference.")]
By = Literal["posterior", "prior", "exact"]
MatrixName = Literal["posterior", "prior", "exact", "filtered"]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    run: RunName = None


class Pair(BaseModel):
    """A sentence and its translation."""

    model_config = ConfigDict(extra="forbid", strict=True)

    source: Text
    target: Text


class TranslateRequest(_Request):
    """Sentences to translate; the options mean what they mean to `latentalign translate`."""

    sentences: Annotated[list[Text], Field(min_length=1, examples=[["Ein Hund bellt ."]])]
    beam: Annotated[int, Field(ge=1)] = 10
    n_best: Annotated[int, Field(ge=1, description="At most the beam size.")] = 1
    inference: Inference = None
    alignments: Annotated[bool, Field(description="Also links of the output words.")] = True
    length_penalty: Annotated[float, Field(ge=0, le=LARGEST_LENGTH_PENALTY, allow_inf_nan=False)] = 1.0
    eos_penalty: Annotated[float, Field(ge=0, le=LARGEST_EOS_PENALTY, allow_inf_nan=False)] = 0.5
    max_length_factor: Annotated[float, Field(gt=0, le=4, allow_inf_nan=False)] = 2.0
    seed: Seed = 0


class AlignRequest(_Request):
    """Pairs to align; the options mean what they mean to `latentalign align`."""

    pairs: Annotated[list[Pair], Field(min_length=1)]
    by: Annotated[
        By | None, Field(description="The posterior unless given, the prior where a run has none.")
    ] = None
    scores: Annotated[bool, Field(description="Probabilities in `pharaoh`, and the score of every pair.")] = (
        False
    )
    threshold: Annotated[
        Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None,
        Field(description="Every link of at least this probability, instead of each word's best."),
    ] = None
    matrices: Annotated[
        bool, Field(description="All that the run knows of every pair of words, not only the links.")
    ] = False


class ScoreRequest(_Request):
    """Pairs to score."""

    pairs: Annotated[list[Pair], Field(min_length=1)]
    inference: Annotated[
        Annotated[str, Field(pattern=INFERENCE_PATTERN)] | None,
        Field(description="As `latentalign align --scores` unless given; else as `evaluate --inference`."),
    ] = None
    seed: Seed = 0


class NextRequest(_Request):
    """What comes after the beginning of a translation."""

    source: Text
    prefix: Annotated[Text, Field(description="The translation so far, whole words.")] = ""
    inferences: Annotated[
        list[Annotated[str, Field(pattern=INFERENCE_PATTERN)]],
        Field(
            min_length=1, max_length=8, description="Ways to predict; the others are compared to the first."
        ),
    ] = ["exact"]
    top: Annotated[int, Field(ge=1, description="Words listed for every way.")] = 10
    seed: Seed = 0


class AnswerRequest(_Request):
    """A question to a run that answers questions."""

    question: Text
    story: Annotated[list[Text] | None, Field(description="Memory runs: the facts, in their order.")] = None
    image: Annotated[
        Annotated[int, Field(ge=0, le=2**53)] | None, Field(description="VQA runs: the number of an image.")
    ] = None
    answer: Annotated[Text | None, Field(description="A known answer: shows where the posterior looks.")] = (
        None
    )
    inference: Inference = None
    top: Annotated[int, Field(ge=1, description="Answers listed.")] = 5
    seed: Seed = 0


class Link(BaseModel):
    """A source word, a target word (both counted from 0) and how likely it is that they belong together."""

    source: int
    target: int
    probability: float


class TranslationResult(BaseModel):
    """One translation."""

    text: str
    words: list[str]
    score: Annotated[float, Field(description="What translations are ranked by.")]
    log_prob: Annotated[float, Field(description="log p(y|x), the end of the sentence included.")]
    links: list[Link] | None
    pharaoh: str | None


class SentenceResult(BaseModel):
    """The best translations of one sentence."""

    source_words: list[str]
    translations: list[TranslationResult]


class TranslateResponse(BaseModel):
    run: str
    inference: str
    links_by: Annotated[By, Field(description="Which distribution the links come from.")]
    results: list[SentenceResult]


class Disagreement(BaseModel):
    """Total variation distance between two distributions, for every target word: 0 the same, 1 apart."""

    between: tuple[By, By]
    distance: list[float]


class Matrices(BaseModel):
    """Probabilities [target word][source word]. The rest of a row is on the null word."""

    prior: Annotated[list[list[float]] | None, Field(description="Null for an aligner.")] = None
    posterior: list[list[float]] | None = None
    exact: list[list[float]] | None = None
    filtered: Annotated[
        list[list[float]] | None,
        Field(description="Of a chain: given the words so far and this one; `exact` is given all of them."),
    ] = None
    entropy: Annotated[dict[MatrixName, list[float]], Field(description="Of every target word, in nats.")]
    disagreement: Disagreement | None = None


class AlignResult(BaseModel):
    """The links of one pair."""

    source_words: list[str]
    target_words: list[str]
    links: list[Link]
    pharaoh: str
    score: Annotated[
        float | None,
        Field(
            description="Mean log p(y|x) per target piece; by an aligner, how well the sides explain each other, per "
            "word; null for an empty side."
        ),
    ] = None
    matrices: Matrices | None = None


class AlignResponse(BaseModel):
    run: str
    by: By
    results: list[AlignResult]


class ScoreResult(BaseModel):
    """How likely a translation is given its source; null for a pair with an empty side."""

    score: Annotated[float | None, Field(description="As `score` of `/api/align`.")]
    log_prob: Annotated[float | None, Field(description="Null for an aligner.")]
    pieces: Annotated[
        int, Field(description="Target pieces, the end of the sentence included; words for an aligner.")
    ]


class ScoreResponse(BaseModel):
    run: str
    inference: str | None
    results: list[ScoreResult]


class NextWord(BaseModel):
    """A piece that may come next."""

    text: str
    starts_word: bool
    is_end: bool


class Distribution(BaseModel):
    """Probabilities of the listed words by one way to predict."""

    inference: str
    probabilities: list[float]
    entropy: Annotated[float, Field(description="Of the whole distribution, in nats.")]
    distance: Annotated[float, Field(description="Total variation distance to the first way.")]


class NextResponse(BaseModel):
    run: str
    source_words: list[str]
    prior: Annotated[list[float], Field(description="Where the step looks: a probability per source word.")]
    positions: Annotated[int, Field(description="Source pieces: K-max with this K is exact.")]
    words: list[NextWord]
    distributions: list[Distribution]


class Answer(BaseModel):
    answer: str
    probability: float


class Evidence(BaseModel):
    """A region or a fact, and how much it counted."""

    text: str
    prior: float
    posterior: float | None = None
    hops: list[float] | None = None
    box: tuple[float, float, float, float] | None = None


class AnswerResponse(BaseModel):
    run: str
    inference: str
    answers: list[Answer]
    evidence: list[Evidence]
    unknown_words: list[str] = []
    posterior_by: str | None = None
    size: Annotated[tuple[int, int] | None, Field(description="VQA runs: of the image, in pixels.")] = None
    picture: Annotated[bool, Field(description="VQA runs: whether the image itself is here.")] = False


class RunInfo(BaseModel):
    """A run or an aligner that is served."""

    name: str
    task: Annotated[str, Field(description="`aligner` for an aligner.")]
    objective: str
    inference: Annotated[str, Field(description="What it predicts with unless told otherwise.")]
    inferences: Annotated[list[str], Field(description="Ways to predict that fit this run.")]
    by: Annotated[list[By], Field(description="Distributions of links that this run has.")]
    parameters: Annotated[
        int,
        Field(description="Weights, those of the inference network not counted; an aligner's word pairs."),
    ]
    images: Annotated[list[int], Field(description="VQA runs: some images to ask about.")] = []


class RunsResponse(BaseModel):
    version: str
    runs: list[RunInfo]
    limits: dict[str, int | float]


class Health(BaseModel):
    status: Literal["ok"]
    computing: Annotated[int, Field(description="Sentences that the model works on.")]
    waiting: Annotated[int, Field(description="Sentences in the queue.")]


class ErrorLimit(BaseModel):
    name: str
    value: float


class ErrorBody(BaseModel):
    status: int
    message: str
    limit: ErrorLimit | None = None


class ErrorResponse(BaseModel):
    """Why a request was not done."""

    error: ErrorBody
