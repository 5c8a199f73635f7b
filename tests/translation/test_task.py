"""The task: from files to datasets, in memory and from disk, and back from a run folder alone."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from latentalign.errors import UserError
from latentalign.translation.config import DataConfig, ModelConfig
from latentalign.translation.task import PreparedCorpus, TranslationTask

MODEL = ModelConfig(embedding_size=4, memory_size=4, decoder_size=4, attention_size=4)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    source = ["Der Hund bellt", "", "Die Katze schläft , weil es regnet", "Hunde bellen"] * 3
    target = ["The dog barks", "nothing", "The cat sleeps because it rains", "Dogs bark"] * 3
    for split, count in (("train", 12), ("valid", 4)):
        (folder / f"{split}.de").write_text("\n".join(source[:count]) + "\n", encoding="utf-8")
        (folder / f"{split}.en").write_text("\n".join(target[:count]) + "\n", encoding="utf-8")
    return folder


def data_config(folder: Path, **changes: object) -> DataConfig:
    files = {split: {"source": f"{split}.de", "target": f"{split}.en"} for split in ("train", "valid")}
    settings = {"folder": str(folder), **files, "tokenizer": {"size": 60}, "batch_size": 2, **changes}
    return DataConfig.model_validate(settings)


def prepare(data: DataConfig, folder: Path) -> tuple[PreparedCorpus, list[str]]:
    messages: list[str] = []
    folder.mkdir(exist_ok=True)
    return TranslationTask().prepare(data, MODEL, folder=folder, seed=1, log=messages.append), messages


def same_batches(one: PreparedCorpus, other: PreparedCorpus) -> bool:
    for left, right in ((one.train, other.train), (one.valid, other.valid)):
        assert left.plan(3, 1) == right.plan(3, 1)
        for batch in left.plan(3, 1):
            pair = left.collate(batch), right.collate(batch)
            fields = [[value for value in vars(one).values() if value is not None] for one in pair]
            assert all(torch.equal(*both) for both in zip(*fields, strict=True))
            assert left.describe(batch) == right.describe(batch)
    return True


def test_preparing_reads_filters_and_tells(corpus: Path, tmp_path: Path) -> None:
    prepared, messages = prepare(data_config(corpus), tmp_path / "run")
    assert len(prepared.train) == 9
    assert len(prepared.valid) == 3
    assert messages[0].startswith("tokenizer: bpe, ")
    assert messages[1] == "train.de and train.en: read 12 pairs, kept 9, dropped 3 (3 with an empty side)"
    assert (tmp_path / "run" / "tokenizer.model").is_file()


def test_a_run_folder_is_enough_without_the_training_files(corpus: Path, tmp_path: Path) -> None:
    prepared, _ = prepare(data_config(corpus), tmp_path / "run")
    valid = [shutil.copy(corpus / f"valid.{side}", tmp_path / f"test.{side}") for side in ("de", "en")]
    shutil.rmtree(corpus)
    shutil.move(tmp_path / "run", tmp_path / "moved")
    task = TranslationTask()
    assets = task.load_assets(tmp_path / "moved")
    dataset = task.dataset(assets, task.choose_data(source=valid[0], target=valid[1]))
    assert len(dataset) == 3
    model = task.build_model(MODEL, assets, needs_posterior=True)
    assert model.output.out_features == len(prepared.assets.target)
    problem = model.problem(dataset.collate([0, 1, 2]), with_posterior=True)
    assert problem.posterior is not None
    assert problem.weights.sum() == dataset.corpus.target.lengths.sum()


def test_preparing_again_in_the_same_folder_keeps_its_tokenizer(corpus: Path, tmp_path: Path) -> None:
    first, _ = prepare(data_config(corpus), tmp_path / "run")
    before = (tmp_path / "run" / "vocabulary.json").read_bytes()
    second, messages = prepare(data_config(corpus), tmp_path / "run")
    assert (tmp_path / "run" / "vocabulary.json").read_bytes() == before
    assert not any("tokenizer" in message for message in messages)
    assert same_batches(first, second)


def test_shards_give_the_same_batches_as_text(corpus: Path, tmp_path: Path) -> None:
    data = data_config(corpus, max_length=7)
    from_text, _ = prepare(data, tmp_path / "run")
    shards = tmp_path / "shards"
    TranslationTask().prepare_files(data, MODEL, to=shards, seed=1, log=lambda _: None)
    moved = data_config(tmp_path / "elsewhere", max_length=7, prepared=str(shards))
    from_shards, messages = prepare(moved, tmp_path / "other")
    assert same_batches(from_text, from_shards)
    assert "prepared in" in messages[0]
    for name in ("tokenizer.model", "vocabulary.json"):
        assert (tmp_path / "other" / name).read_bytes() == (tmp_path / "run" / name).read_bytes()


def test_shards_that_do_not_fit_the_recipe_are_refused(corpus: Path, tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    with pytest.raises(UserError, match=r"prepared.json: missing"):
        prepare(data_config(corpus, prepared=str(shards)), tmp_path / "run")
    TranslationTask().prepare_files(data_config(corpus), MODEL, to=shards, seed=1, log=lambda _: None)
    with pytest.raises(UserError, match=r"prepared with data.max_length = 100, but the recipe says 9"):
        prepare(data_config(corpus, max_length=9, prepared=str(shards)), tmp_path / "run")
    described = json.loads((shards / "train.json").read_text())
    (shards / "train.json").write_text(json.dumps({**described, "kept": 8}))
    with pytest.raises(UserError, match=r"train\.json: damaged \(its checksum differs\)"):
        prepare(data_config(corpus, prepared=str(shards)), tmp_path / "run")
    # folders of earlier versions have no checksums
    settings = json.loads((shards / "prepared.json").read_text())
    del settings["checksums"]
    (shards / "prepared.json").write_text(json.dumps(settings))
    with pytest.raises(UserError, match=r"the arrays beside it do not fit"):
        prepare(data_config(corpus, prepared=str(shards)), tmp_path / "run")
    (shards / "train.source.offsets").unlink()
    with pytest.raises(UserError, match=r"train.source.offsets: no such file"):
        prepare(data_config(corpus, prepared=str(shards)), tmp_path / "run")


def test_settings_that_a_prepared_folder_is_too_old_to_know_have_their_defaults(
    corpus: Path, tmp_path: Path
) -> None:
    shards = tmp_path / "shards"
    tagged = {
        split: {"source": f"{split}.de", "target": f"{split}.en", "tags": ["deu"]}
        for split in ("train", "valid")
    }
    TranslationTask().prepare_files(data_config(corpus), MODEL, to=shards, seed=1, log=lambda _: None)
    settings = json.loads((shards / "prepared.json").read_text())
    for split in tagged:
        assert settings[split].pop("tags") is None
    del settings["tokenizer"]["combine"]
    (shards / "prepared.json").write_text(json.dumps(settings))
    prepare(data_config(corpus, prepared=str(shards)), tmp_path / "run")
    with pytest.raises(UserError, match=r"prepared with data.train"):
        prepare(data_config(corpus, **tagged, prepared=str(shards)), tmp_path / "tagged")


def test_preparing_files_again_learns_the_tokenizer_again(corpus: Path, tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    for number, changes in enumerate([{"joint": False}, {}, {"kind": "whitespace"}]):
        data = data_config(corpus, tokenizer={"size": 60, **changes}, prepared=str(shards))
        TranslationTask().prepare_files(data, MODEL, to=shards, seed=1, log=lambda _: None)
        prepared, _ = prepare(data, tmp_path / str(number))
        fresh, _ = prepare(data.model_copy(update={"prepared": None}), tmp_path / f"fresh{number}")
        assert same_batches(prepared, fresh)
    assert "Hunde" in prepared.assets.source.pieces


def test_an_interrupted_preparation_leaves_no_shard(corpus: Path, tmp_path: Path) -> None:
    (corpus / "valid.en").write_bytes(b"\xff\n" * 4)
    shards = tmp_path / "shards"
    with pytest.raises(UserError, match=r"valid.en, line 1"):
        TranslationTask().prepare_files(data_config(corpus), MODEL, to=shards, seed=1, log=lambda _: None)
    with pytest.raises(UserError, match="prepared with"):  # it is marked as ours, but not as whole
        prepare(data_config(corpus, prepared=str(shards)), tmp_path / "run")
    assert not list(shards.glob("valid*"))
    assert not list(shards.glob(".*"))


def test_wrong_sizes_are_explained() -> None:
    with pytest.raises(ValueError, match="expected an even number"):
        ModelConfig(memory_size=7)
    with pytest.raises(ValueError, match="score dot needs decoder_size = memory_size, received 4 and 8"):
        ModelConfig(score="dot", decoder_size=4, memory_size=8)
