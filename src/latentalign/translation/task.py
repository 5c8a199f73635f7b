"""Translation as a task: what the trainer asks for, with two files of parallel text behind it."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latentalign.alignment.prediction import Predictor
from latentalign.errors import UserError
from latentalign.files import read_json, require_file, sha256_of, write_atomic
from latentalign.task import CanAlign, CanConvert, CanTranslate, EvaluationOptions, Log, Task
from latentalign.text.parallel import Pair
from latentalign.translation import config
from latentalign.translation.align import TranslationAligner
from latentalign.translation.beam.search import SearchOptions
from latentalign.translation.config import PairFiles
from latentalign.translation.data.assets import VOCABULARY, TranslationAssets
from latentalign.translation.data.corpus import (
    Corpus,
    PairFilter,
    build_corpus,
    name_of,
    read_pairs,
    with_links,
)
from latentalign.translation.data.dataset import TranslationDataset
from latentalign.translation.data.learn_tokenizers import count_words, learn_tokenizers
from latentalign.translation.data.shards import prepared_files, read_shard, write_shard
from latentalign.translation.network.model import TranslationModel
from latentalign.translation.translate import Translator

_PREPARED, _SUMS = "prepared.json", "checksums"


@dataclass(frozen=True)
class PreparedCorpus:
    """Tokenizers and data of a run."""

    assets: TranslationAssets
    train: TranslationDataset
    valid: TranslationDataset


class PairsToEvaluate(EvaluationOptions):
    """Two files of parallel text, line for line, or the first two columns of a table without a header line."""

    source: Path | None = None
    target: Path | None = None
    table: Path | None = None
    tag: str | None = None  # every source begins with it, for a model of several languages
    batch_size: int = 64

    @property
    def files(self) -> PairFiles:
        """Where the pairs are."""
        tags = None if self.tag is None else [self.tag]
        if self.table is not None:
            return PairFiles(table=str(self.table), source_column=1, target_column=2, tags=tags)
        return PairFiles(source=str(self.source), target=str(self.target), tags=tags)


class TranslationTask(Task, CanTranslate, CanAlign, CanConvert):
    """Sentences of one language into another, with an alignment behind every word."""

    name = "translation"
    DataConfig, ModelConfig = config.SECTIONS
    EvaluationConfig = PairsToEvaluate

    def prepare(
        self, data: config.DataConfig, model: config.ModelConfig, *, folder: Path, seed: int, log: Log
    ) -> PreparedCorpus:
        """Learn the tokenizers (or find them in `folder`), keep them there, and tokenise the corpora."""
        _check_links(data, model)
        if data.prepared is not None:
            return self._from_prepared(data, folder, log)
        known = (folder / VOCABULARY).exists()  # the run was begun before, or by another process
        assets = TranslationAssets.load(folder) if known else _learn_assets(data, folder, log)
        datasets = {}
        for split, files in data.splits.items():
            corpus = build_corpus(_pairs(data, files), assets, keep=_filter(data, split), name=name_of(files))
            log(str(corpus.report))
            datasets[split] = _dataset(with_links(corpus, files, data, assets), data)
        return PreparedCorpus(assets, datasets["train"], datasets["valid"])

    def _from_prepared(self, data: config.DataConfig, folder: Path, log: Log) -> PreparedCorpus:
        assert data.prepared is not None
        shards = Path(data.prepared)
        _check_settings(data, shards)
        assets = TranslationAssets.load(shards)
        assets.save(folder)
        corpora = {split: read_shard(shards, split) for split in data.splits}
        for corpus in corpora.values():
            log(f"{corpus.report} (prepared in {shards})")
        return PreparedCorpus(assets, *(_dataset(corpora[split], data) for split in data.splits))

    def prepared_marker(self, data: config.DataConfig) -> str:
        """The first file that is written into a prepared folder: by it the folder is recognised."""
        return _PREPARED

    def prepare_files(
        self, data: config.DataConfig, model: config.ModelConfig, *, to: Path, seed: int, log: Log
    ) -> None:
        """Tokenise the corpora once into a folder for `data.prepared`."""
        if model.external_posterior is not None:
            raise UserError(
                "model.external_posterior: its links cannot be prepared; train from the text files"
            )
        to.mkdir(parents=True, exist_ok=True)
        write_atomic(to / _PREPARED, "{}\n")  # ours, but not whole yet: training refuses it
        assets = _learn_assets(data, to, log)
        for split, files in data.splits.items():
            keep = _filter(data, split)
            report = write_shard(
                to, split, pairs=_pairs(data, files), assets=assets, keep=keep, name=name_of(files)
            )
            log(str(report))
        sums = {path.name: sha256_of(path) for path in (*assets.files(to), *prepared_files(to, data.splits))}
        # last: the folder is whole
        write_atomic(to / _PREPARED, json.dumps({**_settings(data), _SUMS: sums}, indent=2) + "\n")

    def load_assets(self, folder: Path) -> TranslationAssets:
        """The tokenizers of a run folder."""
        return TranslationAssets.load(folder)

    def build_model(
        self, model: config.ModelConfig, assets: TranslationAssets, *, needs_posterior: bool
    ) -> TranslationModel:
        """A fresh model for these tokenizers."""
        return TranslationModel(
            model,
            source_size=len(assets.source),
            target_size=len(assets.target),
            needs_posterior=needs_posterior,
        )

    def dataset(self, assets: TranslationAssets, chosen: PairsToEvaluate) -> TranslationDataset:
        """Pairs to evaluate on: all of them but those with an empty side."""
        _check_tag(chosen.tag, assets.tags)
        corpus = build_corpus(read_pairs(chosen.files), assets, keep=PairFilter(), name=name_of(chosen.files))
        return TranslationDataset(corpus, batch_size=chosen.batch_size)

    def remarks(self, dataset: TranslationDataset) -> dict[str, int]:
        """Pieces that were never seen in training, by side, and pairs that were left out; only if there are any."""
        report = dataset.corpus.report
        unknown = {f"unknown_{side}_pieces": count for side, count in report.unknown.items()}
        left_out = {"pairs_left_out": sum(report.dropped.values())} if report.dropped else {}
        return {**unknown, **left_out}

    def choose_data(self, **options: Any) -> EvaluationOptions:
        """As every task does; besides, two files or one table are needed."""
        if "table" in options and not options.keys().isdisjoint({"source", "target"}):
            raise UserError("evaluate: expected either --source and --target or --table, received both")
        missing = [f"--{name}" for name in ("source", "target") if name not in options]
        if missing and "table" not in options and options.keys() <= set(PairsToEvaluate.model_fields):
            raise UserError(
                f"evaluate: the task {self.name!r} needs {', '.join(missing)} (or --table, with both in it)"
            )
        return super().choose_data(**options)

    def pairs(self, chosen: PairsToEvaluate) -> Iterator[Pair]:
        """The same pairs as text, also those with an empty side."""
        return read_pairs(chosen.files)

    def translator(
        self,
        model: TranslationModel,
        assets: TranslationAssets,
        *,
        predictor: Predictor,
        batch_size: int,
        seed: int,
        others: Sequence[tuple[TranslationModel, Predictor]] = (),
        **search: Any,
    ) -> Translator:
        """Beam search with this model, and others of its vocabulary; `search` has the fields of `SearchOptions`."""
        return Translator(
            model,
            assets,
            options=SearchOptions(**search),
            predictor=predictor,
            others=others,
            batch_size=batch_size,
            seed=seed,
        )

    def aligner(self, model: TranslationModel, assets: TranslationAssets) -> TranslationAligner:
        """Word links by the model's own distributions."""
        return TranslationAligner(model, assets)


TASK: Task = TranslationTask()


def _learn_assets(data: config.DataConfig, folder: Path, log: Log) -> TranslationAssets:
    tags = tuple(dict.fromkeys(data.train.tags or ()))
    source, target = count_words(_pairs(data, data.train), config=data.tokenizer, tags=tags)
    if not source or not target:
        raise UserError(f"{name_of(data.train)}: no words on one side; nothing is left to work with")
    tokenizers = learn_tokenizers(source, target, config=data.tokenizer, tags=tags)
    assets = TranslationAssets(*tokenizers, source_end=data.source_end, tags=tags)
    assets.save(folder)
    kinds = " and ".join(dict.fromkeys(side.kind for side in data.tokenizer.sides))
    log(
        f"tokenizer: {kinds}, {len(assets.source)} source and {len(assets.target)} target pieces "
        f"from {len(source)} and {len(target)} different words"
    )
    return assets


def _check_tag(tag: str | None, known: tuple[str, ...]) -> None:
    """A tag that training has not seen would be read as letters, or as an unknown word."""
    if tag is not None and tag not in known:
        expected = (
            f"choose from {', '.join(known)}" if known else "the run was trained without tags; leave it out"
        )
        raise UserError(f"--tag {tag}: no such tag; {expected}")


def _pairs(data: config.DataConfig, files: PairFiles) -> Iterator[Pair]:
    return read_pairs(files, data.path)


def _filter(data: config.DataConfig, split: str) -> PairFilter:
    return PairFilter.of(data) if split == "train" else PairFilter()  # validation data are taken as they are


def _dataset(corpus: Corpus, data: config.DataConfig) -> TranslationDataset:
    return TranslationDataset(corpus, batch_by=data.batch_by, batch_size=data.batch_size)


def _settings(data: config.DataConfig) -> dict[str, Any]:
    """What a prepared folder depends on."""
    names = {"train", "valid", "tokenizer", "source_end", "max_length", "max_ratio"}
    links = {split: {"links"} for split in data.splits}  # none: see `_check_links`
    return data.model_dump(mode="json", include=names, exclude=links)


def _check_links(data: config.DataConfig, model: config.ModelConfig) -> None:
    """Links and an external posterior belong together; a folder of `prepare` has none."""
    if model.external_posterior is not None and data.prepared is not None:
        raise UserError(
            "data.prepared: prepared files have no links, which model.external_posterior needs; leave it out"
        )
    if model.external_posterior is not None and data.train.links is None:
        raise UserError(
            "model.external_posterior: expected data.train.links, a file of word links; "
            "write one by latentalign align --scores"
        )
    for split, files in data.splits.items():
        if model.external_posterior is None and files.links is not None:
            raise UserError(
                f"data.{split}.links: nothing uses them; add model.external_posterior: {{}}, or leave them out"
            )


def _check_settings(data: config.DataConfig, shards: Path) -> None:
    path = shards / _PREPARED
    if not path.is_file():
        raise UserError(f"{path}: missing; expected a folder written by `latentalign prepare`")
    found, wanted = read_json(path, "what `latentalign prepare` wrote"), _settings(data)
    if not isinstance(found, dict) or not isinstance(found.get(_SUMS, {}), dict):
        raise UserError(f"{path}: damaged; run `latentalign prepare` again")
    for name, expected in found.get(_SUMS, {}).items():  # folders of earlier versions have none
        if sha256_of(require_file(shards / name, "a file that `latentalign prepare` wrote")) != expected:
            raise UserError(
                f"{shards / name}: damaged (its checksum differs); run `latentalign prepare` again"
            )
    if isinstance(found.get("tokenizer"), dict):  # settings that are new since then have their defaults
        found["tokenizer"] = {**config.TokenizerConfig().model_dump(mode="json"), **found["tokenizer"]}
    for split in data.splits:
        if isinstance(found.get(split), dict):
            found[split] = {"tags": None, **found[split]}
    for key, value in wanted.items():
        if found.get(key) != value:
            raise UserError(
                f"{shards}: prepared with data.{key} = {json.dumps(found.get(key))}, but the recipe says "
                f"{json.dumps(value)}; run `latentalign prepare` again"
            )
