# mypy: disable-error-code="type-abstract"
"""Runs as the server holds them: loaded once at the start, found by name and never by a path."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from torch import nn

from latentalign.alignment.registry import fitting_predictors
from latentalign.errors import UserError
from latentalign.files import require_folder
from latentalign.inspector import aligner_results, translation_results
from latentalign.inspector.images import ServedImages, find_images
from latentalign.inspector.limits import UNPROCESSABLE, Refused
from latentalign.inspector.pair_results import LinksAsked
from latentalign.inspector.schemas import AlignResult, By, RunInfo, ScoreResult
from latentalign.task import Ability, CanAlign, CanAnswer, CanAnswerFromImages, CanTranslate
from latentalign.text.parallel import Pair
from latentalign.training.trained_aligner import TrainedAligner, load_one
from latentalign.training.trained_run import Run
from latentalign.translation.align import TranslationAligner
from latentalign.wordalign.aligner import Aligner

SERVED: tuple[type[Ability], ...] = (
    CanTranslate,
    CanAlign,
    CanAnswer,
)  # a run that has one of these can be served
Side = Literal["source", "target"]
CACHED_WORDS = 50_000  # a server reads whatever it is sent: its memory must not grow with it


class Served:
    """What there is to say about a run or an aligner."""

    info: RunInfo

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def task(self) -> str:
        return self.info.task


@dataclass(frozen=True)
class ServedRun(Served):
    """A run, its name here, and what there is to say about it."""

    run: Run
    info: RunInfo
    relaxed: bool = False
    images: ServedImages | None = None

    def can(self, ability: type[Ability]) -> bool:
        return isinstance(self.run.task, ability)

    @property
    def kind(self) -> str:
        return f"a run of task {self.task}"

    @property
    def module(self) -> nn.Module | None:
        """What computes: its layers are where a request that takes too long can be stopped."""
        module: nn.Module = self.run.model
        return module

    def choose_links(self, by: str | None) -> str:
        """The distribution that links come from."""
        return self.run.aligner().choose(by)

    def count_pieces(self, side: Side, text: str) -> int:
        """How long a sentence is to the model."""
        return len(self.run.assets.sides[side].encode(text))

    def align(self, pairs: Sequence[Pair], asked: LinksAsked) -> list[AlignResult]:
        return translation_results.align(self.run.aligner(), pairs, asked)

    def score(self, pairs: Sequence[Pair], **asked: Any) -> list[ScoreResult]:
        return translation_results.score(self.run.aligner(), pairs, **asked)


@dataclass(frozen=True)
class ServedAligner(Served):
    """An aligner, its name here, and what there is to say about it: it aligns and scores, and nothing else."""

    aligner: Aligner
    info: RunInfo
    relaxed: bool = False
    module: nn.Module | None = None
    kind: ClassVar[str] = "an aligner"

    def can(self, ability: type[Ability]) -> bool:
        return ability is CanAlign

    def choose_links(self, by: str | None) -> str:
        if by not in (None, "posterior"):
            raise UserError(f"by: {self.name} is an aligner and has a posterior alone, received {by}")
        return "posterior"

    def count_pieces(self, side: Side, text: str) -> int:
        return len(self.aligner.units(text))

    def align(self, pairs: Sequence[Pair], asked: LinksAsked) -> list[AlignResult]:
        return aligner_results.align(self.aligner, pairs, asked)

    def score(self, pairs: Sequence[Pair], **asked: Any) -> list[ScoreResult]:
        return aligner_results.score(self.aligner, pairs)


class ServedRuns:
    """The runs and aligners of a server by name, in the order in which they were given."""

    def __init__(self, served: Sequence[ServedRun | ServedAligner]) -> None:
        if not served:
            raise UserError("serve: expected at least one run folder, received none")
        self._by_name = {one.name: one for one in served}

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._by_name.values())

    def find(self, name: str | None, ability: type[Ability]) -> ServedRun:
        """The run of that name, or the first with this ability; a client's mistake is refused."""
        found: ServedRun = self._find(name, ability)
        return found

    def find_aligning(self, name: str | None) -> ServedRun | ServedAligner:
        """The run or aligner of that name, or the first that aligns."""
        found: ServedRun | ServedAligner = self._find(name, CanAlign)
        return found

    def _find(self, name: str | None, ability: type[Ability]) -> Any:
        fitting = [one for one in self if one.can(ability)]
        known = ", ".join(one.name for one in fitting) or f"none, as no run here can {ability.verb}"
        if name is None:
            if not fitting:
                raise Refused(UNPROCESSABLE, f"run: no run that can {ability.verb} is served here")
            return fitting[0]
        found = self._by_name.get(name)
        if found is None:
            raise Refused(
                UNPROCESSABLE, f"run: expected one of {known}, received {_shorten(name)}; see GET /api/runs"
            )
        if not found.can(ability):
            raise Refused(UNPROCESSABLE, f"run: {found.name} is {found.kind}; expected one of {known}")
        return found


def load_runs(
    folders: Sequence[Path],
    *,
    features: Path | None = None,
    images: Path | None = None,
    device: str = "auto",
) -> ServedRuns:
    """Load run folders; names are those of the folders, with their parents' where they would be the same.

    VQA runs look for region features and pictures where they were trained, unless other folders are given.
    """
    for given, option in ((features, "--features"), (images, "--images")):
        if given is not None:
            require_folder(given, f"a folder for {option}")
    loaded = [load_one(folder, device=device) for folder in folders]
    has_images = [isinstance(run, Run) and isinstance(run.task, CanAnswerFromImages) for run in loaded]
    if not any(has_images) and (features is not None or images is not None):
        raise UserError("--features and --images: only VQA runs have pictures, and none of these is one")
    served: list[ServedRun | ServedAligner] = []
    for run, name, has in zip(loaded, names_of(folders), has_images, strict=True):
        if isinstance(run, TrainedAligner):
            served.append(_serve_aligner(run.aligner, name))
            continue
        served.append(_serve(run, name, find_images(run, features, images) if has else None))
    return ServedRuns(served)


def names_of(folders: Sequence[Path]) -> list[str]:
    """A short name for every folder, no two the same."""
    parts = [folder.resolve().parts for folder in folders]
    names = [part[-1] for part in parts]
    depth = 1
    while len(set(names)) < len(names) and depth < max(map(len, parts)):
        depth += 1
        doubled = {name for name in names if names.count(name) > 1}
        names = [
            "-".join(part[-depth:]).replace("/", "") if name in doubled else name
            for part, name in zip(parts, names, strict=True)
        ]
    seen: dict[str, int] = {}
    for number, name in enumerate(names):  # the same folder twice
        seen[name] = seen.get(name, 0) + 1
        names[number] = name if seen[name] == 1 else f"{name}-{seen[name]}"
    return names


def _serve(run: Run, name: str, images: ServedImages | None) -> ServedRun:
    if not isinstance(run.task, SERVED):
        verbs = ", ".join(ability.verb for ability in SERVED)
        raise UserError(f"{run} has nothing to inspect; expected one that can do one of these: {verbs}")
    relaxed = not run.model.example_prior().is_discrete
    by: list[By] = []
    if isinstance(run.task, CanAlign):
        for tokenizer in (run.assets.source, run.assets.target):
            tokenizer.cache_limit = CACHED_WORDS
        aligner = run.aligner()
        by = link_kinds(aligner, relaxed=relaxed)
    info = RunInfo(
        name=name,
        task=run.task.name,
        objective=run.schedule.last.name,
        inference=run.natural_inference,
        inferences=fitting_predictors(is_discrete=not relaxed),
        by=by,
        parameters=sum(parameter.numel() for parameter in run.model.theta()),
        images=[] if images is None else images.shown,
    )
    return ServedRun(run, info, relaxed, images)


def _serve_aligner(aligner: Aligner, name: str) -> ServedAligner:
    info = RunInfo(
        name=name,
        task="aligner",
        objective="expectation-maximisation",
        inference="",
        inferences=[],
        by=["posterior"],
        parameters=len(aligner.counts.links[0]),
    )
    return ServedAligner(aligner, info)


def link_kinds(aligner: TranslationAligner, *, relaxed: bool) -> list[By]:
    """The distributions of links that a run has."""
    kinds: list[By] = ["posterior"] if aligner.has_posterior else []
    return [*kinds, "prior"] if relaxed else [*kinds, "prior", "exact"]


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:39] + "…")
