"""Transformers in the translator: plain loops, causality by brute force, cached steps, positions of any length."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from latentalign.alignment import Exact, Marginal
from latentalign.alignment.metrics import exact_posterior
from latentalign.errors import UserError
from latentalign.training.recipe.recipes import build_recipe
from latentalign.translation.config import ModelConfig, TransformerConfig
from latentalign.translation.data.dataset import make_batch
from latentalign.translation.data.tokenizer import END
from latentalign.translation.network.model import TranslationModel
from latentalign.translation.network.transformer import Attention, TransformerEncoder, positions

SIZES: dict[str, Any] = {"name": "transformer", "layers": 2, "heads": 2, "width": 8, "feed_forward": 12}
SOURCES = [[5, 6, 7, 8, END], [9, END], [4, 10, 11, END]]
TARGETS = [[6, 5, END], [7, 8, 9, 10, 4, END], [11, END]]


def transformer(**changes: Any) -> TranslationModel:
    """A small one in double precision, with weights that make a difference."""
    torch.manual_seed(3)
    settings = {
        "embedding_size": 6,
        "encoder": SIZES,
        "decoder": SIZES,
        "attention_size": 5,
        "dropout": 0.0,
        "uniform_init": 0.6,
        "inference_network": {"encoder": SIZES},
    }
    config = ModelConfig.model_validate({**settings, **changes})
    return TranslationModel(config, source_size=12, target_size=12, needs_posterior=True).double().eval()


@torch.no_grad()
def attend_by_hand(attention: Attention, inputs: Tensor, memory: Tensor, allowed: list[list[int]]) -> Tensor:
    """Attention of one sentence [T,W] over [S,M] in loops over heads and positions; allowed[t] are positions of S."""
    width = inputs.shape[1]
    size = width // attention.heads
    query = inputs @ attention.query.weight.T + attention.query.bias
    both = memory @ attention.memory.weight.T + attention.memory.bias
    found = torch.zeros_like(inputs)
    for step in range(len(inputs)):
        for head in range(attention.heads):
            part = slice(head * size, (head + 1) * size)
            scores = [
                float(query[step, part] @ both[i, :width][part]) / math.sqrt(size) for i in allowed[step]
            ]
            weights = [math.exp(score - max(scores)) for score in scores]
            for weight, i in zip(weights, allowed[step], strict=True):
                found[step, part] += weight / sum(weights) * both[i, width:][part]
    return found @ attention.output.weight.T + attention.output.bias


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_what_plain_loops_give(causal: bool) -> None:
    torch.manual_seed(1)
    attention = Attention(8, 2, memory_size=8).double()
    inputs = torch.randn(1, 5, 8, dtype=torch.float64)
    mask = torch.tensor([[True, True, True, False, False]])
    found = attention(inputs, attention.keys_and_values(inputs), mask=None if causal else mask, causal=causal)
    allowed = [list(range(t + 1)) if causal else [0, 1, 2] for t in range(5)]
    torch.testing.assert_close(found[0].detach(), attend_by_hand(attention, inputs[0], inputs[0], allowed))


def test_attention_over_a_memory_of_another_size() -> None:
    torch.manual_seed(1)
    attention = Attention(8, 4, memory_size=6).double()
    inputs, memory = torch.randn(1, 3, 8, dtype=torch.float64), torch.randn(1, 4, 6, dtype=torch.float64)
    found = attention(inputs, attention.keys_and_values(memory))
    everywhere = [list(range(4))] * 3
    torch.testing.assert_close(found[0].detach(), attend_by_hand(attention, inputs[0], memory[0], everywhere))


def queries(model: TranslationModel, source: list[int], words: list[int]) -> Tensor:
    """Decoder outputs [T,D] after reading words."""
    batch = make_batch([source], [words])
    memory = model.encode(batch.source, batch.source_mask)
    return model._read_targets(memory, batch.target)[0][0]


@pytest.mark.parametrize("cross", [0, 1, 2])
def test_no_later_word_changes_an_earlier_query(cross: int) -> None:
    """Every word is changed in turn: queries before it stay bit for bit, its own and later ones move."""
    model = transformer(decoder={**SIZES, "cross_layers": cross})
    words = [4, 5, 6, 7, 8]
    before = queries(model, SOURCES[0], words)
    for place in range(len(words)):
        changed = [*words[:place], 11, *words[place + 1 :]]
        after = queries(model, SOURCES[0], changed)
        torch.testing.assert_close(after[:place], before[:place], rtol=0, atol=0)
        assert ((after[place:] - before[place:]).abs().amax(-1) > 1e-6).all()


@pytest.mark.parametrize("cross", [0, 1, 2])
def test_the_source_reaches_the_decoder_through_the_alignment_alone_unless_asked_otherwise(
    cross: int,
) -> None:
    model = transformer(decoder={**SIZES, "cross_layers": cross})
    here, there = (queries(model, source, [4, 5, 6]) for source in (SOURCES[0], SOURCES[2]))
    assert torch.equal(here, there) == (cross == 0)
    # the first query attends to no other word: what differs there comes from the source
    assert torch.equal(here[0], there[0]) == (cross == 0)


@pytest.mark.parametrize("cross", [0, 1, 2])
def test_cached_steps_of_chosen_rows_are_those_of_whole_targets(cross: int) -> None:
    """Hypotheses that share a source, change places and die on the way: queries as if each were read from its start."""
    model = transformer(decoder={**SIZES, "cross_layers": cross})
    batch = make_batch(SOURCES, TARGETS)
    memory = model.encode(batch.source, batch.source_mask)
    histories = [[[word] for word in row] for row in ([4, 5], [6, 7], [8, 9])]
    state = memory.start.select(torch.tensor([0, 0, 1, 1, 2, 2]))
    for step in range(4):
        tokens = torch.tensor([[history[-1] for history in row] for row in histories])
        _, found, state = model.step(memory, state, tokens)
        for sentence, row in enumerate(histories):
            for number, history in enumerate(row):
                expected = model.query(queries(model, SOURCES[sentence], history)[-1])
                torch.testing.assert_close(found[sentence, number], expected)
        # the second hypothesis of each sentence survives twice
        state = state.select(torch.tensor([1, 1, 3, 3, 5, 5]))
        histories = [[[*row[1], 4 + step], [*row[1], 9 - step]] for row in histories]


def test_positions_are_a_formula_of_any_length() -> None:
    like = torch.zeros(1, dtype=torch.float64)
    table = positions(3000, 8, like=like)
    for place in (0, 1, 17, 2999):
        for wave in range(4):
            angle = place / 10_000 ** (wave / 4)
            assert float(table[place, wave]) == pytest.approx(math.sin(angle))
            assert float(table[place, 4 + wave]) == pytest.approx(math.cos(angle))
    torch.testing.assert_close(positions(5, 8, like=like, first=1000), table[1000:1005])
    assert positions(4, 7, like=like).shape == (4, 7)
    assert len(torch.unique(table.round(decimals=9), dim=0)) == 3000


def test_sentences_far_longer_than_any_in_training_are_read_and_scored() -> None:
    model = transformer()
    batch = make_batch([[4 + n % 8 for n in range(700)]], [[4 + n % 7 for n in range(600)]])
    problem = model.problem(batch)
    assert torch.isfinite(Exact().log_likelihood(problem.prior, problem.likelihood)).all()


def test_embeddings_of_another_size_are_projected_and_shared_ones_are_one_matrix() -> None:
    model = transformer(embedding_size=6, hidden_size=6, shared_embeddings=True)
    assert model.output.weight is model.target_embedding.weight
    assert len({id(p) for p in model.theta()}) == len(model.theta())
    batch = make_batch(SOURCES, TARGETS)
    problem = model.problem(batch)
    Exact().log_likelihood(problem.prior, problem.likelihood).sum().backward()
    assert model.output.weight.grad is not None


def test_an_lstm_may_read_what_a_transformer_writes_and_the_other_way_round() -> None:
    for changes in ({"decoder": "lstm", "decoder_size": 10}, {"encoder": "lstm", "memory_size": 10}):
        model = transformer(**changes)
        together = model.problem(make_batch(SOURCES, TARGETS))
        score = Exact().log_likelihood(together.prior, together.likelihood)
        for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
            alone = model.problem(make_batch([source], [target]))
            expected = Exact().log_likelihood(alone.prior, alone.likelihood)[0]
            torch.testing.assert_close(score[row, : len(target)], expected)


def test_defaults_by_name_alone() -> None:
    config = ModelConfig.model_validate({"encoder": "transformer", "decoder": "transformer"})
    assert config.encoder == TransformerConfig()
    assert (config.state_size, config.query_size) == (256, 256)
    assert ModelConfig().encoder.name == "lstm", "old recipes and run folders say nothing of it"


def test_dropout_inside_the_blocks_may_be_another() -> None:
    for given, expected in ((None, 0.3), (0.1, 0.1)):
        encoder = TransformerEncoder(
            6, TransformerConfig.model_validate({**SIZES, "dropout": given}), dropout=0.3
        )
        assert {block.dropout.rate for block in encoder.blocks} == {expected}


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (
            {"encoder": {"name": "transformer", "width": 250, "heads": 4}},
            r"model\.encoder.*heads can share, received width 250 and heads 4; try width 248",
        ),
        (
            {"decoder": {"name": "transformer", "layers": 2, "cross_layers": 3}},
            r"model\.decoder.*cross_layers up to the 2 layers there are, received 3",
        ),
        ({"encoder": {"name": "transformer", "cross_layers": 1}}, r"cross_layers: unknown key"),
        ({"decoder": {"name": "transformer", "head": 2}}, r"head: unknown key; did you mean 'heads'"),
        ({"encoder": "gru"}, r"model\.encoder.*lstm.*transformer"),
        ({"decoder": "transformer", "input_feeding": True}, r"input_feeding .* expected decoder: lstm"),
        (
            {"decoder": "transformer", "hidden_size": 100, "shared_embeddings": True},
            r"hidden_size = embedding_size",
        ),
        (
            {"inference_network": {"encoder": {"name": "transformer", "heads": 3}}},
            r"inference_network\.encoder.*heads 3",
        ),
    ],
)
def test_mistakes_are_one_line(model: dict[str, Any], told: str) -> None:
    data = {"train": {"source": "a", "target": "b"}, "valid": {"source": "a", "target": "b"}}
    with pytest.raises(UserError, match=told) as caught:
        build_recipe({"task": "translation", "data": data, "model": model})
    assert "\n" not in str(caught.value)


def test_it_learns_where_words_come_from() -> None:
    """Words are copied, the second half first: links of unseen sentences are right, though nobody showed any."""
    generator = torch.Generator().manual_seed(5)

    def pairs(count: int) -> tuple[list[list[int]], list[list[int]]]:
        sources = torch.randint(4, 12, (count, 4), generator=generator).tolist()
        return [[*s, END] for s in sources], [[*s[2:], *s[:2], END] for s in sources]

    torch.manual_seed(7)
    sizes = {**SIZES, "width": 16, "feed_forward": 32}
    config = ModelConfig.model_validate(
        {"embedding_size": 16, "encoder": sizes, "decoder": sizes, "attention_size": 16, "dropout": 0.0}
    )
    model = TranslationModel(config, source_size=12, target_size=12, needs_posterior=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(250):
        problem = model.problem(make_batch(*pairs(32)))
        (-Marginal()(problem).surrogate.mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        problem = model.problem(make_batch(*pairs(50)))
        links = exact_posterior(problem.prior, problem.likelihood).probs.argmax(-1)  # [50,5]
        nll = -Exact().log_likelihood(problem.prior, problem.likelihood).mean()
    assert float(nll) < 0.2  # log 8 = 2.1 before training
    assert float((links[:, :4] == torch.tensor([2, 3, 0, 1])).float().mean()) > 0.9
