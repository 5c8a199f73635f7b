"""The layer with transitions: the page's example where order matters, and what belongs to whom."""

import contextlib
import io
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from latentalign import LatentAttention
from latentalign.alignment import Chain, ConfigError

PAGE = Path(__file__).parents[2] / "docs" / "chains.md"
LINE = re.compile(r"(\w+)\s+NLL ([\d.]+)  true item on the best path (\d+)%")


def test_the_page_prints_what_it_says_and_the_chain_wins() -> None:
    found = re.search(r"```python\n(.*?)```\s*```\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert found
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        exec(compile(found[1], "chains.md", "exec"), {})
    ran, printed = (
        {name: (float(nll), float(share)) for name, nll, share in LINE.findall(text)}
        for text in (stream.getvalue(), found[2])
    )
    assert ran.keys() == printed.keys() == {"None", "jump"}
    for name, numbers in ran.items():
        assert numbers == pytest.approx(printed[name], rel=0.05)
    assert ran["jump"][0] < 0.7 * ran["None"][0]
    assert ran["jump"][1] > 2 * ran["None"][1]


def example(objective: object, transitions: str = "jump", **options: object) -> tuple[LatentAttention, tuple]:
    torch.manual_seed(0)
    attend = LatentAttention(3, 3, objective=objective, transitions=transitions, **options)
    read = nn.Linear(3, 5)

    def head(context: Tensor, query: Tensor) -> Tensor:
        return read(context + query)

    return attend, (torch.randn(2, 4, 3), torch.randn(2, 5, 3), head)


@pytest.mark.parametrize(
    "objective", ["soft", "marginal", "hard", "variational", "wake", "rws", "vimco", "svi", "em"]
)
@pytest.mark.parametrize("transitions", ["jump", "monotone"])
def test_every_objective_trains_a_chain(objective: str, transitions: str) -> None:
    attend, (queries, memory, head) = example(objective, transitions)
    needed = attend.objective.needs_posterior
    scores = torch.randn(2, 4, 5, requires_grad=True) if needed else None
    weights = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]).bool()
    found = attend(
        queries, memory, head, targets=torch.ones(2, 4).long(), weights=weights, posterior_scores=scores
    )
    found.loss.backward()
    assert torch.isfinite(found.loss)
    assert isinstance(found.prior, Chain)
    if needed:
        assert scores.grad.abs().max() > 0
        assert (scores.grad[1, 2:] == 0).all()
    if transitions == "jump":
        assert attend.distribution.transitions.scores.grad.abs().max() > 0
        if needed:  # q's jumps are its own
            assert attend.posterior_distribution.transitions.scores.grad.abs().max() > 0


@pytest.mark.parametrize("inference", ["exact", "kmax:2", "sample:3", "soft"])
def test_a_chain_predicts_what_follows_what_was_seen(inference: str) -> None:
    attend, (queries, memory, head) = example("marginal", inference=inference)
    targets = torch.randint(5, (2, 4), generator=torch.Generator().manual_seed(0))
    found = attend.eval()(queries, memory, head, targets=targets, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(found.log_probs.exp().sum(dim=-1), torch.ones(2, 4))
    observed = found.log_probs.gather(-1, targets[..., None])
    torch.testing.assert_close(found.loss, -observed.mean())


def test_transitions_go_with_a_categorical_only() -> None:
    with pytest.raises(ConfigError, match=r"transitions: expected .* received 'dirichlet'; .*chain"):
        LatentAttention(3, 3, distribution="dirichlet", transitions="jump")
