"""What a user may hand to `LatentAttention`: impossible and ignored outputs, odd dtypes, empty batches, any head."""

import math

import pytest
import torch
from torch import Tensor, nn

from latentalign.alignment import (
    ConfigError,
    ContextLikelihood,
    Elbo,
    Pathwise,
    ShapeError,
    SoftmaxHead,
)
from latentalign.alignment.likelihoods.heads import ChunkedHead
from tests.alignment.layer import OBJECTIVES, PREDICTORS, Example, assert_same, attention

# ------------------------------------------------------------------------------------- outputs that do not count

WEIGHTS = torch.tensor([[True, False, True], [True, True, False]])


@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
def test_weight_zero_on_an_impossible_output_gives_no_nan(objective) -> None:
    example, attend = Example(), attention(objective=objective)
    example.targets = torch.where(WEIGHTS, example.targets % 5, 5)
    example.impossible[5] = -math.inf
    found = example.run(attend, weights=WEIGHTS.double())
    assert torch.isfinite(found.loss)
    assert all(torch.isfinite(slope).all() for slope in example.slopes(attend, found.loss))
    evaluated = example.run(attend.eval(), weights=WEIGHTS)
    assert torch.isfinite(evaluated.loss)


@pytest.mark.parametrize("objective", ["marginal", "soft", "variational", "hard"])
def test_an_ignored_target_is_left_out_of_the_mean_as_in_torch(objective: str) -> None:
    example, attend = Example(), attention(objective=objective)
    by_weight = example.run(attend, weights=WEIGHTS)
    expected = example.slopes(attend, by_weight.loss)
    evaluated = example.run(attend.eval(), weights=WEIGHTS).loss
    attend.train()
    example.targets = example.targets.masked_fill(~WEIGHTS, -100)
    ignored = example.run(attend)
    torch.testing.assert_close(ignored.loss, by_weight.loss)
    assert_same(example.slopes(attend, ignored.loss), expected)
    torch.testing.assert_close(example.run(attend.eval()).loss, evaluated)


def test_soft_attention_with_ignored_targets_is_torchs_cross_entropy() -> None:
    example, attend = Example(), attention(objective="soft")
    example.targets[0, 1] = -100
    found = example.run(attend)
    context = found.attention @ example.memory
    logits = example.head(context.flatten(0, 1), example.queries.flatten(0, 1))
    torch.testing.assert_close(
        found.loss, nn.functional.cross_entropy(logits, example.targets.flatten(), ignore_index=-100)
    )


def test_ignored_targets_and_weights_work_together() -> None:
    example, attend = Example(), attention()
    value = example.run(attend).bound.value
    example.targets[0, 0] = -100
    weights = torch.tensor([[4.0, 2.0, 0.0], [1.0, 0.0, 0.0]])
    found = example.run(attend, weights=weights)
    torch.testing.assert_close(found.loss.detach(), -(2 * value[0, 1] + value[1, 0]) / 3)


@pytest.mark.parametrize("blockwise", [True, False, None])
def test_outputs_that_do_not_count_are_not_evaluated(blockwise: bool | None) -> None:
    example = Example()
    asked = []

    def head(context: Tensor, query: Tensor) -> Tensor:
        asked.append(context.shape[0])
        return example.head(context, query)

    chosen = head if blockwise is None else SoftmaxHead(example.output, blockwise=blockwise)
    f = ContextLikelihood(chosen, example.memory, example.queries, example.targets, counted=WEIGHTS)
    whole = ContextLikelihood(chosen, example.memory, example.queries, example.targets)
    everywhere, z = torch.ones(2, 3, 5, dtype=torch.bool), torch.full((3, 2, 3, 5), 0.2, dtype=torch.float64)
    found = f.everywhere(everywhere), f.mixture(z), f.at(torch.zeros(2, 2, 3, dtype=torch.long))
    if blockwise is None:
        assert asked == [4 * 5, 3 * 4, 2 * 4]
    expected = (
        whole.everywhere(everywhere),
        whole.mixture(z),
        whole.at(torch.zeros(2, 2, 3, dtype=torch.long)),
    )
    for part, full in zip(found, expected, strict=True):
        counts = WEIGHTS[..., None] if part.shape == (2, 3, 5) else WEIGHTS
        torch.testing.assert_close(part, full * counts)
    bound = f.upper_bound(torch.zeros(2, 3, 2, dtype=torch.long))
    assert (bound[~WEIGHTS] == 0).all()


def test_the_inference_network_never_sees_an_ignored_target() -> None:
    class Network(nn.Module):
        def forward(self, queries: Tensor, memory: Tensor, targets: Tensor) -> Tensor:
            assert targets.min() >= 0
            return queries @ memory.transpose(1, 2)

    example, attend = Example(), attention(objective="variational", inference_network=Network())
    example.targets[1, 2] = -100
    assert torch.isfinite(attend(example.queries, example.memory, example.head, targets=example.targets).loss)


# ------------------------------------------------------------------------------------- heads


@pytest.mark.parametrize("objective", ["marginal", {"name": "marginal", "prune": 0.05}, "soft"], ids=str)
def test_a_head_with_batch_norm_is_called_for_what_was_asked_only(objective) -> None:
    example, attend = Example(), attention(objective=objective)
    norm = nn.BatchNorm1d(4).double()
    seen = []

    def head(context: Tensor, query: Tensor) -> Tensor:
        seen.append(context.shape[0])
        return example.output(norm(context + query))

    example.run(attend, head=head)
    assert min(seen) > 1
    assert norm.num_batches_tracked == len(seen)
    if objective != "marginal":
        return
    assert seen == [3 * (5 + 3)]
    norm.eval()
    before = norm.running_mean.clone()
    assert example.run(attend.eval(), head=head, targets=None).log_probs.shape == (2, 3, 6)
    assert torch.equal(norm.running_mean, before)


def test_chunks_are_of_nearly_one_size_and_find_the_width_by_themselves() -> None:
    example, sizes = Example(), []

    def head(context: Tensor, query: Tensor) -> Tensor:
        sizes.append(context.shape[0])
        return example.head(context, query)

    def evaluate(elements: int, count: int) -> list[int]:
        sizes.clear()
        f = ContextLikelihood(head, example.memory, example.queries, example.targets, max_elements=elements)
        with torch.no_grad():
            f.at(torch.zeros(count, 2, 3, dtype=torch.long))
        return sizes

    # 64 pairs are safe for 2**16 values; after the first chunk the head is known to give 6
    assert evaluate(2**22, 64) == [64, 320]  # not 64, 64, …
    assert evaluate(2**16 * 10, 7) == [9, 33]  # not 10 and a rest that could be a single pair
    assert evaluate(60, 4) == [1, 8, 8, 7]
    assert list(ChunkedHead(head).chunks(0)) == [slice(0, 0)]


class Counts(nn.Module):
    """A head that gives a distribution over counts."""

    def __init__(self) -> None:
        super().__init__()
        self.rate = nn.Linear(4, 1).double()

    def forward(self, context: Tensor, query: Tensor) -> torch.distributions.Distribution:
        return torch.distributions.Poisson(self.rate(context + query).exp()[:, 0])


def test_a_distribution_over_counts_has_a_loss_but_no_log_probs() -> None:
    example, attend, head = Example(), attention(), Counts()
    trained = example.run(attend, head=head)
    evaluated = example.run(attend.eval(), head=head)
    assert evaluated.log_probs is None
    torch.testing.assert_close(evaluated.loss, trained.loss)
    blind = example.run(attend, head=head, targets=None)
    assert (blind.log_probs, blind.loss) == (None, None)


def test_a_density_may_be_a_vector() -> None:
    example, attend = Example(), attention()

    def head(context: Tensor, query: Tensor) -> torch.distributions.Distribution:
        return torch.distributions.Normal(context + query, 1.0)

    targets = torch.randn(2, 3, 4, dtype=torch.float64)
    weights = WEIGHTS.double()
    trained = example.run(attend, head=head, targets=targets, weights=weights)
    targets[~WEIGHTS] = math.nan  # padding of a density
    torch.testing.assert_close(
        example.run(attend, head=head, targets=targets, weights=weights).loss, trained.loss
    )


# ------------------------------------------------------------------------------------- dtypes and layouts


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.uint8])
@pytest.mark.parametrize("blockwise", [True, None])
def test_targets_may_be_any_whole_numbers(dtype: torch.dtype, blockwise: bool | None) -> None:
    example, attend = Example(), attention()
    head = example.head if blockwise is None else SoftmaxHead(example.output)
    expected = example.run(attend, head=head).loss
    torch.testing.assert_close(
        example.run(attend, head=head, targets=example.targets.to(dtype)).loss, expected
    )
    evaluated = example.run(attend.eval(), head=head, targets=example.targets.to(dtype)).loss
    torch.testing.assert_close(evaluated, expected)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
def test_tensors_need_not_be_contiguous(objective) -> None:
    example, attend = Example(), attention(objective=objective)
    expected = example.run(attend)

    def strided(tensor: Tensor) -> Tensor:
        apart = tensor.transpose(0, 1).contiguous().transpose(0, 1)
        assert not apart.is_contiguous()
        return apart

    example.queries, example.memory, example.mask, example.targets = map(
        strided, (example.queries, example.memory, example.mask, example.targets)
    )
    found = (
        example.run(attend, posterior_scores=strided(example.posterior_scores))
        if (attend.objective.needs_posterior)
        else example.run(attend)
    )
    torch.testing.assert_close(found.loss, expected.loss)
    torch.testing.assert_close(example.run(attend.eval()).log_probs.exp().sum(-1), torch.ones(2, 3).double())


@pytest.mark.parametrize("distribution", ["categorical", "dirichlet", "logistic-normal"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype, distribution: str) -> None:
    """The same as in float32 but for the digits, in training and in evaluation, and the input's dtype comes back."""
    losses = {}
    for precision in (torch.float32, dtype):
        example = Example(dtype=precision)
        attend = attention(precision, objective="variational", distribution=distribution)
        attend.objective = Elbo() if distribution == "categorical" else Elbo(Pathwise(samples=500))
        trained = example.run(attend)
        evaluated = example.run(attend.eval())
        for part in (trained.loss, trained.attention, evaluated.log_probs, evaluated.loss):
            assert part.dtype == precision
            assert torch.isfinite(part).all()
        slopes = example.slopes(attend, trained.loss)
        assert all(torch.isfinite(slope).all() for slope in slopes)
        losses[precision] = [trained.loss.float(), slopes[-1].float(), evaluated.loss.float()]
    for found, expected in zip(losses[dtype], losses[torch.float32], strict=True):
        torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("distribution", ["categorical", "dirichlet", "logistic-normal"])
def test_autocast(distribution: str) -> None:
    losses = []
    for enabled in (False, True):
        example = Example(dtype=torch.float32)
        attend = attention(torch.float32, objective="variational", distribution=distribution)
        attend.objective = Elbo() if distribution == "categorical" else Elbo(Pathwise(samples=500))
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            loss = example.run(attend).loss
            evaluated = example.run(attend.eval(), generator=None).loss
        assert loss.dtype == torch.float32
        assert all(torch.isfinite(slope).all() for slope in example.slopes(attend, loss))
        losses.append(torch.stack([loss, evaluated]))
    torch.testing.assert_close(*losses, rtol=0.05, atol=0.05)


# ------------------------------------------------------------------------------------- empty batches


@pytest.mark.parametrize(("batch", "steps"), [(0, 3), (2, 0), (0, 0)])
@pytest.mark.parametrize("inference", PREDICTORS)
def test_an_empty_batch_has_an_empty_prediction(inference: str, batch: int, steps: int) -> None:
    example, attend = Example(batch=batch, steps=steps), attention(inference=inference).eval()
    found = example.run(attend, targets=None)
    assert found.log_probs.shape == (batch, steps, 6)
    assert found.attention.shape == (batch, steps, 5)


@pytest.mark.parametrize(("batch", "steps"), [(0, 3), (2, 0)])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
def test_an_empty_batch_has_no_mean(objective, training: bool, batch: int, steps: int) -> None:
    example, attend = Example(batch=batch, steps=steps), attention(objective=objective).train(training)
    with pytest.raises(
        ConfigError, match=r"weights: expected a positive sum over .* outputs, received 0; drop"
    ):
        example.run(attend)


def test_an_empty_memory_is_refused() -> None:
    example, attend = Example(), attention()
    with pytest.raises(ShapeError, match=r"memory: expected at least one position, received \[2, 0, 4\]; "):
        attend(example.queries, example.memory[:, :0], example.head, targets=example.targets)
