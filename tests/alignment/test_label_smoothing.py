"""Label smoothing of soft attention against torch's own cross entropy, with heads of both kinds; refused elsewhere."""

import pytest
import torch
from torch import Tensor, nn

from latentalign.alignment import AlignmentProblem, Categorical, ContextLikelihood, Soft
from latentalign.alignment.errors import ConfigError
from latentalign.alignment.likelihoods.softmax_head import SoftmaxHead
from latentalign.alignment.registry import build_objective


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("known", [True, False], ids=["softmax head", "any head"])
def test_it_is_torch_s_cross_entropy(known: bool, bias: bool, activation: str) -> None:
    torch.manual_seed(2)
    output = nn.Linear(4, 7, bias=bias).double()
    values, queries = torch.randn(2, 5, 4).double(), torch.randn(2, 3, 4).double()
    scores = torch.randn(2, 3, 5).double()
    targets = torch.tensor([[1, 6, 0], [3, -100, 2]])
    leaves = [tensor.requires_grad_() for tensor in (values, queries, scores)]
    act = getattr(torch, activation)

    def plain(context: Tensor, query: Tensor) -> Tensor:
        return output(act(context + query))

    head = SoftmaxHead(output, activation=activation) if known else plain
    problem = AlignmentProblem(
        Categorical.from_scores(scores), ContextLikelihood(head, values, queries, targets)
    )
    bound = Soft(label_smoothing=0.2)(problem)
    logits = plain(scores.softmax(-1) @ values, queries).flatten(0, 1)
    expected = -nn.functional.cross_entropy(
        logits, targets.flatten(), label_smoothing=0.2, ignore_index=-100, reduction="none"
    ).view(2, 3)
    torch.testing.assert_close(bound.surrogate, expected)
    unsmoothed = -nn.functional.cross_entropy(logits, targets.flatten(), reduction="none").view(2, 3)
    torch.testing.assert_close(bound.value, unsmoothed.detach())
    weights = torch.randn(2, 3).double()
    parameters = [*leaves, *output.parameters()]
    found = torch.autograd.grad((bound.surrogate * weights).sum(), parameters, retain_graph=True)
    torch.testing.assert_close(found, torch.autograd.grad((expected * weights).sum(), parameters))


@pytest.mark.parametrize(
    "config",
    [
        {"name": "marginal", "label_smoothing": 0.1},
        {"name": "marginal", "prune": 0.01, "label_smoothing": 0.1},
        {"name": "variational", "estimator": {"name": "enumerate", "prune": 0.01}, "label_smoothing": 0.1},
    ],
)
def test_other_objectives_say_what_to_use(config: dict) -> None:
    with pytest.raises(
        ConfigError, match=f"objective {config['name']}: takes no label_smoothing: .* phase of soft"
    ):
        build_objective(config)
    assert build_objective({"name": "soft", "label_smoothing": 0.1}) == Soft(label_smoothing=0.1)


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_share_is_a_share(share: float) -> None:
    with pytest.raises(ConfigError, match="label_smoothing"):
        Soft(label_smoothing=share)
