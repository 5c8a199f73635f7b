"""Scores of memory positions against plain loops, whole or in recomputed chunks."""

import math

import pytest
import torch
from torch import Tensor, nn

from latentalign.alignment import Additive, Dot, General, build_score, scores


def inputs(query_dim: int = 3, memory_dim: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(2, 5, query_dim, generator=generator, dtype=torch.float64)
    memory = torch.randn(2, 4, memory_dim, generator=generator, dtype=torch.float64)
    return queries.requires_grad_(), memory.requires_grad_()


def dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def each_pair(queries: Tensor, memory: Tensor, function) -> list[list[list[float]]]:
    return [
        [[function(query, item) for item in items] for query in asked]
        for asked, items in zip(queries.tolist(), memory.tolist(), strict=True)
    ]


def test_additive() -> None:
    torch.manual_seed(0)
    score = Additive(3, 2, 6).double()
    parameters = {name: value.tolist() for name, value in score.named_parameters()}
    queries, memory = inputs(3, 2)

    def energy(query: list[float], item: list[float]) -> float:
        hidden = [
            math.tanh(dot(row, query) + bias + dot(other, item))
            for row, bias, other in zip(
                parameters["query.weight"], parameters["query.bias"], parameters["memory.weight"], strict=True
            )
        ]
        return dot(parameters["energy.weight"][0], hidden)

    torch.testing.assert_close(score(queries, memory).tolist(), each_pair(queries, memory, energy))


def test_dot() -> None:
    queries, memory = inputs()
    torch.testing.assert_close(Dot(3, 3)(queries, memory).tolist(), each_pair(queries, memory, dot))


def test_general() -> None:
    torch.manual_seed(0)
    score = General(3, 2).double()
    (weight,) = [value.tolist() for value in score.parameters()]
    queries, memory = inputs(3, 2)

    def bilinear(query: list[float], item: list[float]) -> float:
        return dot(query, [dot(row, item) for row in weight])

    torch.testing.assert_close(score(queries, memory).tolist(), each_pair(queries, memory, bilinear))


@pytest.mark.parametrize("name", ["additive", "dot", "general"])
def test_keys_projected_once_give_the_same_scores(name: str) -> None:
    torch.manual_seed(0)
    score = build_score(name, 3, 3, 7).double()
    queries, memory = inputs()
    keys = score.project_memory(memory)
    steps = [score.from_keys(queries[:, t : t + 1], keys) for t in range(5)]
    torch.testing.assert_close(torch.cat(steps, dim=1), score(queries, memory))


@pytest.mark.parametrize("elements", [1, 2 * 4 * 6 * 2, 2**20])  # one step, two steps, all steps at a time
def test_blocks_of_steps_change_neither_scores_nor_gradients(
    elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scores, "BLOCK_ELEMENTS", elements)
    torch.manual_seed(0)
    whole, chunked = Additive(3, 2, 6).double(), Additive(3, 2, 6, max_elements=1).double()
    chunked.load_state_dict(whole.state_dict())
    queries, memory = inputs(3, 2)
    found, expected = chunked(queries, memory), whole(queries, memory)
    torch.testing.assert_close(found, expected)
    slopes = torch.randn(found.shape, dtype=torch.float64)
    for a, b in zip(
        torch.autograd.grad((found * slopes).sum(), [queries, memory, *chunked.parameters()]),
        torch.autograd.grad((expected * slopes).sum(), [queries, memory, *whole.parameters()]),
        strict=True,
    ):
        torch.testing.assert_close(a, b)
    with torch.no_grad():
        torch.testing.assert_close(chunked(queries, memory), expected)


def test_additive_projects_once_per_step_and_once_per_position() -> None:
    score = Additive(3, 2, 6).double()
    rows: list[tuple[str, int]] = []
    for name, part in (("query", score.query), ("memory", score.memory)):
        part.register_forward_hook(
            lambda _, given, __, name=name: rows.append((name, given[0].numel() // given[0].shape[-1]))
        )
    score(*inputs(3, 2))
    assert sorted(rows) == [("memory", 2 * 4), ("query", 2 * 5)]


def test_every_score_is_a_module_that_keeps_its_dtype() -> None:
    for name in ("additive", "dot", "general"):
        score = build_score(name, 3, 3, 4)
        assert isinstance(score, nn.Module)
        assert score(torch.zeros(1, 2, 3), torch.zeros(1, 5, 3)).dtype == torch.float32


def test_scores_are_added_to_the_priors_without_teaching_it() -> None:
    prior, own = (
        torch.tensor([[[1.0, 2.0]]], requires_grad=True),
        torch.tensor([[[0.5, -3.0]]], requires_grad=True),
    )
    found = scores.from_prior(prior, own)
    assert found.tolist() == [[[1.5, -1.0]]]
    found.sum().backward()
    assert prior.grad is None
    assert own.grad.tolist() == [[[1.0, 1.0]]]
