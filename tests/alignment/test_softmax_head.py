"""The blockwise softmax head against plain operations: values, gradients, second derivatives."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from latentalign.alignment import (
    AlignmentProblem,
    Categorical,
    ConfigError,
    ContextLikelihood,
    Elbo,
    Marginal,
    Soft,
    TableLikelihood,
    Wake,
    proposition1,
)
from latentalign.alignment.learning.objectives import Objective
from latentalign.alignment.likelihoods import softmax_head as module
from latentalign.alignment.likelihoods.softmax_head import SoftmaxHead
from tests import oracles
from tests.alignment import problems

DOUBLE = torch.float64
VOCABULARY, HIDDEN = 7, 3


class Setting:
    """The same likelihood three times: by blocks, by the head's own obvious way, and by a plain function."""

    def __init__(self, *, activation: str = "tanh", bias: bool = True, scale: float = 1.0) -> None:
        torch.manual_seed(0)
        self.output = nn.Linear(HIDDEN, VOCABULARY, bias=bias).double()
        with torch.no_grad():
            self.output.weight.mul_(scale)
        self.values = torch.randn(3, 5, HIDDEN, dtype=DOUBLE, requires_grad=True)
        self.queries = torch.randn(3, 4, HIDDEN, dtype=DOUBLE, requires_grad=True)
        self.targets = torch.randint(VOCABULARY, (3, 4))
        function = {"tanh": torch.tanh, "relu": torch.relu}[activation]
        self.fast = self.likelihood(SoftmaxHead(self.output, activation=activation))
        self.slow = self.likelihood(SoftmaxHead(self.output, activation=activation, blockwise=False))
        self.plain = self.likelihood(lambda context, query: self.output(function(context + query)))

    def likelihood(self, head) -> ContextLikelihood:
        return ContextLikelihood(head, self.values, self.queries, self.targets)

    def gradients(self, objective: Tensor) -> tuple[Tensor, ...]:
        leaves = (self.values, self.queries, *self.output.parameters())
        return torch.autograd.grad(objective, leaves, retain_graph=True)


REQUESTS = {
    "everywhere": lambda f: f.everywhere(torch.ones(3, 4, 5, dtype=torch.bool)),
    "some": lambda f: f.everywhere(torch.arange(60).reshape(3, 4, 5) % 3 != 1),
    "at": lambda f: f.at(torch.arange(24).reshape(2, 3, 4) % 5),
    "mixture": lambda f: f.mixture(torch.arange(60, dtype=DOUBLE).reshape(3, 4, 5).sin().softmax(dim=-1)),
    "samples": lambda f: f.mixture(torch.arange(240, dtype=DOUBLE).reshape(4, 3, 4, 5).sin().softmax(dim=-1)),
}


KEPT = {"kept": 10**9, "some": 40 * (VOCABULARY + HIDDEN), "recomputed": 0}  # some: one block of two


@pytest.fixture(params=KEPT)
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 32 pairs, so that a request needs several; their exponentials kept or computed again."""
    monkeypatch.setattr(module, "BLOCK_ELEMENTS", 1)
    monkeypatch.setattr(module, "KEPT_ELEMENTS", KEPT[request.param])


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("name", REQUESTS)
def test_values_and_gradients_are_those_of_plain_operations(name: str, activation: str, bias: bool) -> None:
    setting = Setting(activation=activation, bias=bias)
    expected = REQUESTS[name](setting.plain)
    slopes = torch.randn(expected.shape, dtype=DOUBLE)
    for f in (setting.fast, setting.slow):
        found = REQUESTS[name](f)
        torch.testing.assert_close(found, expected)
        for _ in range(2):  # a second backward pass finds nothing spoilt by the first
            for a, b in zip(
                setting.gradients((found * slopes).sum()),
                setting.gradients((expected * slopes).sum()),
                strict=True,
            ):
                torch.testing.assert_close(a, b)


def test_the_obvious_way_keeps_no_tricks() -> None:
    """Without blocks every pair costs its gradient, and nothing is known of a pair before it is evaluated."""
    setting = Setting()
    assert (setting.fast.is_lazy, setting.slow.is_lazy) == (True, False)
    everywhere = torch.zeros(3, 4, 1, dtype=torch.long)
    assert bool((setting.slow.upper_bound(everywhere) == 0).all())  # f ≤ 1 is all that is known
    assert bool((setting.fast.upper_bound(everywhere) < 0).all())


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("name", REQUESTS)
def test_pairs_without_an_upstream_gradient_may_be_left_out(name: str) -> None:
    setting = Setting()
    found, expected = (REQUESTS[name](f) for f in (setting.fast, setting.plain))
    slopes = torch.randn(found.shape, dtype=DOUBLE)
    slopes = torch.where(torch.arange(slopes.numel()).view(slopes.shape) % 3 == 0, slopes, 0.0)
    for a, b in zip(
        setting.gradients((found * slopes).sum()), setting.gradients((expected * slopes).sum()), strict=True
    ):
        torch.testing.assert_close(a, b)
    assert all((part == 0).all() for part in setting.gradients((found * 0.0).sum()))


class Products(TorchDispatchMode):
    """Counts rows that are multiplied with a matrix of V rows or columns."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func.overloadpacket is torch.ops.aten.addmm and args[2].shape == (HIDDEN, VOCABULARY):
            self.rows += args[1].shape[0]
        elif func.overloadpacket is torch.ops.aten.mm and args[1].shape == (VOCABULARY, HIDDEN):
            self.rows += args[0].shape[0]
        return func(*args, **(kwargs or {}))


@pytest.mark.usefixtures("blocks")
def test_pairs_that_rounding_loses_are_left_out_of_the_backward_pass() -> None:
    setting = Setting()
    found, expected = (REQUESTS["everywhere"](f) for f in (setting.fast, setting.plain))
    number = torch.arange(60).view(found.shape)
    # 10 pairs matter, 10 hardly, 40 together less than eps of the largest
    slopes = torch.where(number % 6 == 0, 1.0, torch.where(number % 6 == 1, 1e-16, 1e-18)).to(DOUBLE)
    with Products() as products:
        gradients = setting.gradients((found * slopes).sum())
    again = {KEPT["kept"]: 0, KEPT["some"]: 8, KEPT["recomputed"]: 20}[module.KEPT_ELEMENTS]
    assert products.rows == 20 + again
    for a, b in zip(gradients, setting.gradients((expected * slopes).sum()), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("wrong", [math.inf, -math.inf, math.nan])
def test_a_gradient_that_is_not_finite_is_never_left_out(wrong: float) -> None:
    setting = Setting()
    found = REQUESTS["everywhere"](setting.fast)
    slopes = torch.ones_like(found)
    slopes[1, 2, 3] = wrong
    (of_values, *_) = torch.autograd.grad(found, setting.values, slopes)
    assert not of_values.isfinite().all()


@pytest.mark.usefixtures("blocks")
def test_the_backward_pass_costs_what_has_a_gradient() -> None:
    setting = Setting()
    found = REQUESTS["everywhere"](setting.fast)
    slopes = (torch.arange(60).view(found.shape) % 6 == 0).to(DOUBLE)  # 10 of 60 pairs
    with Products() as products:
        setting.gradients((found * slopes).sum())
    again = {KEPT["kept"]: 0, KEPT["some"]: 4, KEPT["recomputed"]: 10}[module.KEPT_ELEMENTS]
    assert products.rows == 10 + again  # to the hidden layer; and logits once more


def test_an_ignored_target_has_likelihood_one_and_no_gradient() -> None:
    setting = Setting()
    targets = setting.targets.clone()
    targets[1, 2] = -100
    f = ContextLikelihood(setting.fast.head, setting.values, setting.queries, targets)
    found, before = REQUESTS["everywhere"](f), REQUESTS["everywhere"](setting.fast)
    assert (found[1, 2] == 0).all()
    torch.testing.assert_close(found[0], before[0])
    (slope,) = torch.autograd.grad(found.sum(), setting.queries)
    assert (slope[1, 2] == 0).all()
    assert (slope[1, 1] != 0).any()


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("objective", [Marginal(prune=0.05), Wake(prune=0.05)])
def test_pruned_sums_are_those_of_a_head_that_has_to_look_twice(
    objective: Objective, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = Setting(scale=3.0)
    assert setting.fast.is_lazy
    assert not setting.plain.is_lazy
    monkeypatch.setattr(setting.plain, "upper_bound", setting.fast.upper_bound)
    scores = torch.randn(2, 3, 4, 5, dtype=DOUBLE, requires_grad=True)
    bounds, slopes = [], []
    for f in (setting.fast, setting.plain):
        prior, posterior = (Categorical.from_scores(3 * part) for part in scores)
        bounds.append(
            objective(AlignmentProblem(prior, f, posterior=posterior if objective.needs_posterior else None))
        )
        surrogate = bounds[-1].surrogate.sum()
        slopes.append(
            (*torch.autograd.grad(surrogate, scores, retain_graph=True), *setting.gradients(surrogate))
        )
    assert bounds[0].diagnostics["dropped_mass"].max() > 1e-3  # something is pruned
    torch.testing.assert_close(bounds[0].value, bounds[1].value)
    torch.testing.assert_close(bounds[0].diagnostics, bounds[1].diagnostics)
    for a, b in zip(*slopes, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("elements", [1, 2**21], ids=["a pair a block", "one block"])
@pytest.mark.parametrize("bias", [True, False])
def test_the_upper_bound_is_a_softmax_over_the_words_of_the_same_example(
    elements: int, bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK_ELEMENTS", elements)
    setting = Setting(bias=bias, scale=3.0)
    setting.targets[0] = torch.tensor([2, 2, 5, -100])  # a word twice, and one that does not count
    positions = torch.arange(3 * 4 * 2).reshape(3, 4, 2) * 3 % 5
    fast = setting.likelihood(setting.fast.head)
    found = fast.upper_bound(positions)
    assert not found.requires_grad
    exact = fast.at(positions.movedim(-1, 0)).movedim(0, -1)
    assert (found >= exact - 1e-12).all()
    for example, step, place in torch.ones(3, 4, 2).nonzero().tolist():
        word = int(setting.targets[example, step])
        if word == -100:
            assert found[example, step, place] == 0
            continue
        context = setting.values[example, positions[example, step, place]]
        logits = setting.output(torch.tanh(context + setting.queries[example, step])).tolist()
        words = {int(other) if other >= 0 else 0 for other in setting.targets[example]}
        total = math.log(sum(math.exp(logits[other]) for other in words))
        assert found[example, step, place].item() == pytest.approx(logits[word] - total)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("bias", [True, False])
def test_a_softmax_among_a_few_words(activation: str, bias: bool) -> None:
    setting = Setting(bias=bias)
    positions = torch.tensor([[0, 2, 4, 4, 1, 0, 0], [1, 1, 3, 0, 2, 4, 1], [4, 3, 0, 0, 2, 3, 4]])
    steps = torch.tensor([[0, 1, 2, 3, 3, 3, 0], [2, 1, 0, 1, 2, 3, 0], [0, 0, 1, 1, 2, 2, 3]])
    words = torch.tensor([[0, 3], [6, 6], [2, 5]])
    head = SoftmaxHead(setting.output, activation=activation)
    found = head.among(setting.values, setting.queries, (positions, steps), words)
    assert found.shape == (3, 7, 2)
    assert not found.requires_grad
    for example, pair in torch.ones(3, 7).nonzero().tolist():
        context = setting.values[example, positions[example, pair]]
        query = setting.queries[example, steps[example, pair]]
        logits = setting.output(getattr(torch, activation)(context + query)).tolist()
        one, other = words[example].tolist()
        total = math.log(sum(math.exp(logits[word]) for word in {one, other}))
        whole = math.log(sum(math.exp(logit) for logit in logits))
        expected = [logits[one] - total, logits[other] - total if other != one else -math.inf]
        assert found[example, pair].tolist() == pytest.approx(expected)
        assert expected[0] >= logits[one] - whole


def test_nothing_is_known_of_a_density() -> None:
    positions = torch.zeros(1, 2, 1, dtype=torch.long)
    values, queries = torch.randn(1, 3, 2), torch.randn(1, 2, 2)
    density = ContextLikelihood(
        lambda context, query: torch.distributions.Normal(context + query, 0.1), values, queries, queries
    )
    assert (density.upper_bound(positions) == torch.inf).all()
    assert (TableLikelihood(-torch.ones(1, 2, 3)).upper_bound(positions) == 0).all()


@pytest.mark.usefixtures("blocks")
def test_values_against_plain_loops() -> None:
    problem = problems.make(1, lengths=(3, 2), steps=3, features=2)
    output = nn.Linear(2, 3, bias=False).double()
    output.weight = nn.Parameter(problem.weight.detach())
    f = ContextLikelihood(SoftmaxHead(output), problem.values, problem.queries, problem.targets)
    for objective, oracle in (
        (Soft(), lambda o: o.soft),
        (Marginal(), lambda o: oracles.marginal(o.prior, o.log_f)),
        (Elbo(), lambda o: oracles.elbo(o.posterior, o.prior, o.log_f)),
    ):
        posterior = problem.posterior() if objective.needs_posterior else None
        bound = objective(AlignmentProblem(problem.prior(), f, posterior=posterior))
        torch.testing.assert_close(bound.value.tolist(), problem.plain().each(oracle))
        (slope,) = torch.autograd.grad(bound.surrogate.sum(), output.weight, retain_graph=True)
        torch.testing.assert_close(slope, problem.plain().gradients(oracle)["weight"])


@pytest.mark.usefixtures("blocks")
def test_first_and_second_derivatives() -> None:
    setting = Setting()
    rows = torch.tensor([0, 1, 1, 4]), torch.tensor([3, 0, 3, 2])
    targets = torch.tensor([0, 6, 2, 2])
    values, queries = setting.values[0], setting.queries[0]

    def log_prob(values: Tensor, queries: Tensor) -> Tensor:
        return SoftmaxHead(setting.output).log_prob(values, queries, rows, targets)

    inputs = (values.detach().requires_grad_(), queries.detach().requires_grad_())
    assert torch.autograd.gradcheck(log_prob, inputs)
    assert torch.autograd.gradgradcheck(log_prob, inputs)


def test_the_curvature_diagnostic_sees_through_it() -> None:
    problem = problems.make(0, lengths=(3,), steps=2, features=2)
    output = nn.Linear(2, 3, bias=False).double()
    output.weight = nn.Parameter(problem.weight.detach())
    f = ContextLikelihood(SoftmaxHead(output), problem.values, problem.queries, problem.targets)
    fast, plain = (
        proposition1(problem.prior(), f, grid=3),
        proposition1(problem.prior(), problem.likelihood(), grid=3),
    )
    torch.testing.assert_close(fast.curvature, plain.curvature)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sure_outputs_stay_finite_and_keep_the_dtype(dtype: torch.dtype) -> None:
    setting = Setting(scale=1e5)
    setting.output.to(dtype)
    values, queries = (leaf.detach().to(dtype).requires_grad_() for leaf in (setting.values, setting.queries))
    f = ContextLikelihood(SoftmaxHead(setting.output), values, queries, setting.targets)
    found = REQUESTS["everywhere"](f)
    assert found.dtype == dtype
    assert found.min() < -1e3
    for part in (found, *torch.autograd.grad(found.sum(), (values, queries, *setting.output.parameters()))):
        assert torch.isfinite(part).all()


def test_no_pairs_and_no_gradients() -> None:
    setting = Setting()
    assert (setting.fast.everywhere(torch.zeros(3, 4, 5, dtype=torch.bool)) == 0).all()
    with torch.no_grad():
        assert not REQUESTS["mixture"](setting.fast).requires_grad
    with torch.inference_mode():
        inside = REQUESTS["everywhere"](setting.fast)
    torch.testing.assert_close(inside.clone(), REQUESTS["everywhere"](setting.plain).detach())


def test_frozen_parameters_get_no_gradient() -> None:
    setting = Setting()
    setting.output.requires_grad_(False)
    found = REQUESTS["everywhere"](setting.fast).sum()
    expected = REQUESTS["everywhere"](setting.plain).sum()
    leaves = (setting.values, setting.queries)
    with Products() as products:
        slopes = torch.autograd.grad(found, leaves)
    assert products.rows == 60  # to the hidden layer; probabilities were kept
    for a, b in zip(slopes, torch.autograd.grad(expected, leaves), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.usefixtures("blocks")
def test_under_autocast_products_are_in_half_precision_and_all_else_is_not() -> None:
    setting = Setting()
    setting.output.float()
    values, queries = (leaf.detach().float().requires_grad_() for leaf in (setting.values, setting.queries))
    leaves = (values, queries, *setting.output.parameters())
    f = ContextLikelihood(SoftmaxHead(setting.output), values, queries, setting.targets)
    slopes = torch.randn(3, 4, 5)

    def found() -> tuple[Tensor, ...]:
        value = REQUESTS["everywhere"](f)
        return value, *torch.autograd.grad((value * slopes).sum(), leaves)

    exact = found()
    with torch.autocast("cpu", torch.bfloat16):
        rounded = found()
    for a, b in zip(rounded, exact, strict=True):
        assert a.dtype == torch.float32
        assert 1e-5 < (a - b).norm() / b.norm() < 0.02  # a number of 8 bits is off by 0.4 % at most


def test_predictions_use_the_same_logits() -> None:
    setting = Setting()
    z = torch.full((3, 4, 5), 0.2, dtype=DOUBLE)
    torch.testing.assert_close(setting.fast.log_probs_mixture(z), setting.plain.log_probs_mixture(z))
    assert setting.fast.width == VOCABULARY


def test_an_unknown_activation_is_explained() -> None:
    with pytest.raises(ConfigError, match="activation: expected one of tanh, relu, received 'gelu'; "):
        SoftmaxHead(nn.Linear(2, 2), activation="gelu")
