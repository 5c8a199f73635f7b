"""Links of words as the posterior over pieces, and training with it."""

from pathlib import Path

import numpy as np
import pytest
import torch

from latentalign.alignment.learning.objectives import Elbo, Marginal
from latentalign.errors import UserError
from latentalign.text.links import Links, parse_links
from latentalign.translation.config import DataConfig, ModelConfig
from latentalign.translation.data.piece_links import spread_links
from latentalign.translation.task import TranslationTask

SIZES = {"embedding_size": 4, "memory_size": 4, "decoder_size": 4, "attention_size": 4}
SMOOTHING = 0.1
EXTERNAL = {**SIZES, "external_posterior": {"smoothing": SMOOTHING}}
LINKS = ["0-0 1-1:0.5 2-2:0.25", "", "0-0:0.75 1-1 3-2", "1-0:0.5"] * 3


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    source = ["Der Hund bellt", "", "Die Katze schläft weil es regnet", "Hunde bellen"] * 3
    target = ["The dog barks", "nothing", "The cat sleeps", "Dogs bark"] * 3
    for split, count in (("train", 12), ("valid", 4)):
        for ending, lines in (("de", source), ("en", target), ("links", LINKS)):
            (tmp_path / f"{split}.{ending}").write_text("\n".join(lines[:count]) + "\n", encoding="utf-8")
    return tmp_path


def data_config(folder: Path, *, links=("train", "valid"), **changes) -> DataConfig:
    files = {
        split: {"source": f"{split}.de", "target": f"{split}.en"}
        | ({"links": f"{split}.links"} if split in links else {})
        for split in ("train", "valid")
    }
    return DataConfig.model_validate(
        {"folder": str(folder), **files, "tokenizer": {"size": 60}, "batch_size": 2, **changes}
    )


def prepare(data: DataConfig, folder: Path, model=EXTERNAL):
    (folder / "run").mkdir(exist_ok=True)
    config = ModelConfig(**model)
    task = TranslationTask()
    prepared = task.prepare(data, config, folder=folder / "run", seed=1, log=lambda line: None)
    torch.manual_seed(1)
    return prepared, task.build_model(config, prepared.assets, needs_posterior=True)


def by_loops(links: Links, source_index: list[int], target_index: list[int]) -> np.ndarray:
    """The same rows, cell by cell."""
    table = np.zeros((len(target_index), len(source_index)))
    for t, j in enumerate(target_index):
        of_word = {i: (links.probs or {}).get((i, j), 1.0) for i, k in links.all if k == j}
        nowhere = max(0.0, 1.0 - sum(of_word.values()))
        for s, i in enumerate(source_index):
            share = nowhere if i < 0 else of_word.get(i, 0.0)
            table[t, s] = share / sum(other == i for other in source_index)
    return table


@pytest.mark.parametrize("source_end", [True, False])
def test_links_are_spread_over_the_pieces_of_words(source_end: bool) -> None:
    links = parse_links("0-0:0.6 1-0:0.3 2-1 0-2:0.9 2-2:0.9", place="here")
    source, target = [0, 0, 1, 2, 2, 2, *([-1] if source_end else [])], [0, 1, 1, 2, 3, -1]
    found = spread_links(links, source, target)
    np.testing.assert_allclose(found, by_loops(links, source, target))
    if source_end:
        assert found[0].sum() == pytest.approx(1.0)
        assert found[-1].tolist() == [0, 0, 0, 0, 0, 0, 1]  # the end of one belongs to the end of the other


def test_a_batch_brings_its_posterior(corpus: Path) -> None:
    prepared, model = prepare(data_config(corpus), corpus)
    indices = prepared.train.plan(0, 1)[0]
    problem = model.eval().problem(prepared.train.collate(indices), with_posterior=True)
    for row, index in enumerate(indices):
        line = int(prepared.train.corpus.lines[index]) - 1
        texts = [(corpus / f"train.{side}").read_text().splitlines()[line] for side in ("de", "en")]
        source, target = (
            prepared.assets.encode_source(texts[0])[1],
            prepared.assets.encode_target(texts[1])[1],
        )
        rows = by_loops(parse_links(LINKS[line], place=""), source, target)
        rows /= rows.sum(axis=1, keepdims=True)
        expected = (1 - SMOOTHING) * rows + SMOOTHING / len(source)
        found = problem.posterior.probs[row, : len(target), : len(source)]
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)


def test_the_bound_with_links_is_below_the_marginal_and_teaches_the_prior(corpus: Path) -> None:
    prepared, model = prepare(data_config(corpus), corpus)
    batch = prepared.train.collate(prepared.train.plan(0, 1)[0])
    assert not model.phi()
    problem = model.problem(batch, with_posterior=True)
    bound = Elbo()(problem)
    exact = Marginal()(model.problem(batch))
    assert bool((bound.value <= exact.value + 1e-5)[batch.target_mask].all())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    first = float(bound.kl[batch.target_mask].mean())
    for _ in range(40):
        bound = Elbo()(model.problem(batch, with_posterior=True))
        optimizer.zero_grad()
        (-bound.surrogate[batch.target_mask].mean()).backward()
        optimizer.step()
    assert float(bound.kl[batch.target_mask].mean()) < 0.7 * first


def test_pairs_without_links_have_no_posterior(corpus: Path) -> None:
    prepared, model = prepare(data_config(corpus, links=("train",)), corpus)
    assert model.problem(prepared.valid.collate([0]), with_posterior=True).posterior is None


def test_other_links_are_other_data(corpus: Path) -> None:
    before = prepare(data_config(corpus), corpus)[0].train.fingerprint()
    text = (corpus / "train.links").read_text()
    (corpus / "train.links").write_text(text.replace("0.75", "0.7", 1))
    assert prepare(data_config(corpus), corpus)[0].train.fingerprint() != before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0-0\n", "fewer lines than there are pairs"),
        ("0-0\n" * 13, "more lines than there are pairs"),
        ("9-0\n" * 12, r"train\.links, line 1: link 9-0 does not fit"),
        ("zero\n" * 12, "expected links such as"),
    ],
)
def test_a_file_of_other_links_is_refused(corpus: Path, text: str, message: str) -> None:
    (corpus / "train.links").write_text(text)
    with pytest.raises(UserError, match=message):
        prepare(data_config(corpus), corpus)


def test_links_and_their_use_belong_together(corpus: Path) -> None:
    with pytest.raises(UserError, match=r"expected data\.train\.links"):
        prepare(data_config(corpus, links=()), corpus)
    with pytest.raises(UserError, match=r"data\.train\.links: nothing uses them"):
        prepare(data_config(corpus), corpus, model=SIZES)
    with pytest.raises(UserError, match="prepared files have no links"):
        prepare(data_config(corpus, prepared="somewhere"), corpus)
    with pytest.raises(UserError, match="cannot be prepared"):
        TranslationTask().prepare_files(
            data_config(corpus), ModelConfig(**EXTERNAL), to=corpus / "shards", seed=1, log=lambda line: None
        )
