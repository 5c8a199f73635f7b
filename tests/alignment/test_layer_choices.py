"""What `LatentAttention` chooses by itself, its modes and copies, and what it says of mistakes."""

import copy
import inspect
import math

import pytest
import torch

import latentalign.alignment as library
from latentalign.alignment import (
    ConfigError,
    Dirichlet,
    Elbo,
    Exact,
    Hard,
    LatentAttention,
    LogisticNormal,
    Marginal,
    Pathwise,
    Sampled,
    ShapeError,
    SoftmaxHead,
)
from tests.alignment.layer import OBJECTIVES, Example, attention

# ------------------------------------------------------------------------------------- choices by themselves


@pytest.mark.parametrize("name", ["dirichlet", "logistic-normal"])
def test_a_continuous_distribution_chooses_pathwise_and_sampling(name: str) -> None:
    attend = attention(objective="variational", distribution=name)
    assert attend.objective == Elbo(Pathwise())
    assert attend.predictor == Sampled()
    assert attention(objective="hard", distribution=name).objective == Hard(Pathwise())
    own = {"name": "variational", "estimator": {"name": "pathwise", "samples": 3}}
    assert attention(objective=own, distribution=name, inference="soft").objective == Elbo(Pathwise(3))
    example = Example()
    found = example.run(attend)
    assert isinstance(found.prior, {"dirichlet": Dirichlet, "logistic-normal": LogisticNormal}[name])
    found.loss.backward()
    assert torch.isfinite(example.run(attend.eval()).loss)


def test_a_discrete_distribution_keeps_its_own_choices() -> None:
    assert attention(objective="variational").objective == Elbo()
    assert attention().predictor == Exact()
    assert attention(objective="marginal", distribution="categorical").objective == Marginal()


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("objective", ["soft", "marginal", "hard", "svi", "em"])
def test_posterior_scores_are_refused_by_one_rule(objective: str, training: bool) -> None:
    example, attend = Example(), attention(objective=objective).train(training)
    with pytest.raises(ConfigError, match=r"posterior_scores: objective .* takes none; drop them"):
        example.run(attend, posterior_scores=example.posterior_scores)


@pytest.mark.parametrize("training", [True, False])
def test_posterior_scores_are_taken_by_one_rule(training: bool) -> None:
    example, attend = Example(), attention(objective="variational").train(training)
    expected = example.posterior_scores.masked_fill(~example.mask[:, None], -math.inf).softmax(-1)
    torch.testing.assert_close(example.run(attend).posterior.probs, expected)


@pytest.mark.parametrize("distribution", ["categorical", "dirichlet"])
def test_evaluation_draws_once(distribution: str, monkeypatch: pytest.MonkeyPatch) -> None:
    example = Example()
    attend = attention(objective="hard", distribution=distribution, inference="sample:3").eval()
    drawn = []
    for family, method in ((library.Categorical, "sample"), (Dirichlet, "rsample")):
        original = getattr(family, method)

        def counting(self, *arguments, original=original, **options):
            drawn.append(type(self).__name__)
            return original(self, *arguments, **options)

        monkeypatch.setattr(family, method, counting)
    found = example.run(attend, generator=None)
    assert drawn == [{"categorical": "Categorical", "dirichlet": "Dirichlet"}[distribution]]
    picked = found.log_probs.gather(-1, example.targets[..., None])[..., 0]
    torch.testing.assert_close(found.loss, -picked.mean())


# ------------------------------------------------------------------------------------- modes and copies


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
def test_without_gradients(objective, mode) -> None:
    example, attend = Example(), attention(objective=objective)
    expected = example.run(attend).loss, example.run(attend.eval()).loss
    attend.train()
    with mode():
        found = example.run(attend).loss, example.run(attend.eval()).loss
    for a, b in zip(found, expected, strict=True):
        assert not a.requires_grad
        torch.testing.assert_close(a.clone(), b.detach())


@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
def test_a_copy_and_a_saved_state_give_the_same(objective, tmp_path) -> None:
    example, attend = Example(), attention(objective=objective)
    expected = example.run(attend).loss
    torch.testing.assert_close(example.run(copy.deepcopy(attend)).loss, expected)
    torch.save(attend.state_dict(), tmp_path / "state.pt")
    torch.manual_seed(9)
    other = LatentAttention(4, 4, objective=objective).double()
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    torch.testing.assert_close(example.run(other).loss, expected)


# ------------------------------------------------------------------------------------- mistakes

MISTAKES = {
    "NaN weights": (
        lambda e: e.run(attention(), weights=torch.full((2, 3), math.nan)),
        "weights: expected finite numbers of at least 0, received nan; ",
    ),
    "infinite weights": (
        lambda e: e.run(attention(), weights=torch.full((2, 3), math.inf)),
        "weights: expected finite numbers of at least 0, received inf; ",
    ),
    "negative weights": (
        lambda e: e.run(attention(), weights=torch.tensor([[0.5, -2.0, 1.0]] * 2)),
        "weights: expected finite numbers of at least 0, received -2; ",
    ),
    "negative whole numbers as weights": (
        lambda e: e.run(attention(), weights=torch.tensor([[1, -2, 1]] * 2)),
        "weights: expected finite numbers of at least 0, received -2; ",
    ),
    "all ignored": (
        lambda e: e.run(attention(), targets=torch.full((2, 3), -100)),
        "weights: expected a positive sum over .*received 0; drop",
    ),
    "a target too large": (
        lambda e: e.run(attention(), targets=torch.full((2, 3), 6)),
        "targets: expected whole numbers from 0 to 5 as the head gives 6 logits, received 6; use -100",
    ),
    "a target too large, blockwise": (
        lambda e: e.run(attention(), targets=torch.full((2, 3), 6), head=SoftmaxHead(e.output)),
        "targets: expected whole numbers from 0 to 5 .*received 6; ",
    ),
    "a target too large, evaluated": (
        lambda e: e.run(attention().eval(), targets=torch.full((2, 3), 6)),
        "targets: expected whole numbers from 0 to 5 .*received 6; ",
    ),
    "a negative target": (
        lambda e: e.run(attention(), targets=torch.full((2, 3), -1)),
        "targets: expected whole numbers from 0 to 5 .*received -1; ",
    ),
    "fractions for logits": (
        lambda e: e.run(attention(), targets=torch.zeros(2, 3)),
        "targets: expected whole numbers .* logits, received torch.float32.*; use targets.long",
    ),
    "whole numbers for a density": (
        lambda e: e.run(attention(), head=lambda c, q: torch.distributions.Normal((c + q).sum(-1), 1.0)),
        r"targets: expected floating-point numbers for a density \(Normal\), received torch.int64; ",
    ),
    "a head that drops an axis": (
        lambda e: e.run(attention(), head=lambda c, q: e.head(c, q).sum(0)),
        r"likelihood: expected logits \[N,V\] for N=24 pairs, received \[6\]; ",
    ),
    "queries of another size": (
        lambda e: attention()(torch.zeros(2, 3, 7), e.memory, e.head, targets=e.targets),
        r"queries: expected shape \[B,T,Q\] with Q=4.*received \[2, 3, 7\]; ",
    ),
    "queries of another precision": (
        lambda e: attention()(e.queries.float(), e.memory, e.head, targets=e.targets),
        "queries: expected torch.float64 as the layer's, received torch.float32; use ",
    ),
    "whole numbers as memory": (
        lambda e: attention()(e.queries, e.memory.long(), e.head, targets=e.targets),
        "memory: expected torch.float64 as the layer's, received torch.int64; use ",
    ),
    "a mask of numbers": (
        lambda e: e.run(attention(), mask=e.mask.long()),
        "mask: expected dtype bool .*received torch.int64; ",
    ),
    "a row without a position": (
        lambda e: e.run(attention(), mask=torch.zeros(2, 5, dtype=torch.bool)),
        "mask: expected at least one real position in every row.*; ",
    ),
    "exact prediction of a Dirichlet": (
        lambda e: e.run(attention(objective="hard", distribution="dirichlet", inference="exact").eval()),
        "inference: exact expected .*Dirichlet; use sample:N",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line(name: str) -> None:
    mistake, words = MISTAKES[name]
    with pytest.raises(ValueError, match=words) as caught:
        mistake(Example())
    assert isinstance(caught.value, (ConfigError, ShapeError))
    assert "\n" not in str(caught.value)


def callables_with_a_mask() -> dict[str, object]:
    """Everything public that takes a mask, under its dotted name."""
    found = {}
    for name in library.__all__:
        thing = getattr(library, name)
        methods = inspect.getmembers(thing, callable) if inspect.isclass(thing) else []
        for label, function in [(name, thing), *((f"{name}.{part}", each) for part, each in methods)]:
            is_private = label.rpartition(".")[2].startswith("_")
            if is_private or not (inspect.isfunction(function) or inspect.ismethod(function)):
                continue
            if "mask" in inspect.signature(function).parameters:
                found[label] = function
    return found


@pytest.mark.parametrize("name", callables_with_a_mask())
def test_every_docstring_says_what_a_mask_means(name: str) -> None:
    assert "True = " in (inspect.getdoc(callables_with_a_mask()[name]) or "")


def test_the_layers_docstring_warns_of_torchs_opposite() -> None:
    assert "opposite of torch's `key_padding_mask`" in inspect.getdoc(LatentAttention.forward)
