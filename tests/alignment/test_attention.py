"""`LatentAttention` is the composition of its parts, in training and in evaluation."""

import pytest
import torch
from torch import Tensor, nn

import latentalign
from latentalign.alignment import (
    AlignmentProblem,
    Categorical,
    ConfigError,
    ContextLikelihood,
    Dirichlet,
    KMax,
    LatentAttention,
    Marginal,
    NonFiniteError,
    ShapeError,
    build_objective,
    parse_inference,
)
from tests import oracles

POSTERIOR_NEEDED = ["variational", "wake", "rws", "vimco", {"name": "svi", "start": "posterior"}]
POSTERIOR_REFUSED = ["soft", "marginal", "hard", "svi", "em"]


class Example:
    """Queries, memory, a mask, targets and a head in double precision."""

    def __init__(self, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.queries = torch.randn(2, 3, 4, dtype=torch.float64)
        self.memory = torch.randn(2, 5, 4, dtype=torch.float64)
        self.mask = torch.tensor([[True] * 5, [True, True, False, True, False]])
        self.targets = torch.randint(6, (2, 3))
        self.posterior_scores = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
        self.output = nn.Linear(4, 6).double()

    def head(self, context: Tensor, query: Tensor) -> Tensor:
        return self.output(torch.tanh(context + query))

    def likelihood(self) -> ContextLikelihood:
        return ContextLikelihood(self.head, self.memory, self.queries, self.targets)

    def run(self, attend: LatentAttention, **options):
        arguments = {"mask": self.mask, "targets": self.targets} | options
        return attend(self.queries, self.memory, self.head, **arguments)


def attention(**options) -> LatentAttention:
    torch.manual_seed(3)
    return LatentAttention(4, 4, **options).double()


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def test_it_is_exported_by_the_package() -> None:
    assert latentalign.LatentAttention is LatentAttention


@pytest.mark.parametrize("objective", [*POSTERIOR_NEEDED, *POSTERIOR_REFUSED], ids=str)
def test_the_training_loss_is_minus_the_mean_surrogate(objective) -> None:
    example, attend = Example(), attention(objective=objective)
    needed = attend.objective.needs_posterior
    scores = example.posterior_scores if needed else None
    found = example.run(attend, posterior_scores=scores, generator=seeded())
    prior = Categorical.from_scores(attend.score(example.queries, example.memory), example.mask)
    posterior = Categorical.from_scores(scores, example.mask) if needed else None
    problem = AlignmentProblem(prior, example.likelihood(), posterior=posterior)
    expected = build_objective(objective)(problem, generator=seeded())
    torch.testing.assert_close(found.loss, -expected.surrogate.mean())
    torch.testing.assert_close(found.bound.value, expected.value)
    torch.testing.assert_close(found.attention, prior.probs)
    assert found.log_probs is None
    assert (found.posterior is not None) == needed
    found.loss.backward()
    assert all(parameter.grad is not None for parameter in attend.score.parameters())
    assert all(parameter.grad.abs().max() > 0 for parameter in example.output.parameters())
    if needed:
        assert example.posterior_scores.grad.abs().max() > 0


@pytest.mark.parametrize("inference", ["exact", "kmax:2", "sample:4", "soft"])
def test_evaluation_gives_the_predictive_distribution(inference: str) -> None:
    example, attend = Example(), attention(inference=inference).eval()
    found = example.run(attend, generator=seeded())
    prior = Categorical.from_scores(attend.score(example.queries, example.memory), example.mask)
    predictor = parse_inference(inference)
    expected = predictor.log_probs(prior, example.likelihood(), generator=seeded())
    torch.testing.assert_close(found.log_probs, expected)
    torch.testing.assert_close(found.log_probs.exp().sum(dim=-1), torch.ones(2, 3, dtype=torch.float64))
    blind = example.run(attend, targets=None, generator=seeded())
    torch.testing.assert_close(blind.log_probs, expected)
    assert blind.loss is None
    assert found.bound is None
    if inference != "sample:4":  # two draws of samples would differ
        observed = expected.gather(-1, example.targets[..., None])[..., 0]
        torch.testing.assert_close(found.loss, -observed.mean())


def test_exact_prediction_against_plain_loops() -> None:
    example, attend = Example(1), attention().eval()
    found = example.run(attend)
    scores = attend.score(example.queries, example.memory).tolist()
    for b in range(2):
        for t in range(3):
            prior = oracles.softmax(scores[b][t], example.mask[b].tolist())
            context = example.head(example.memory[b], example.queries[b, t].expand(5, 4)).tolist()
            for y in range(6):
                f = [oracles.softmax(logits)[y] for logits in context]
                total = sum(p * x for p, x in zip(prior, f, strict=True))
                assert found.log_probs[b, t, y].exp().item() == pytest.approx(total)
            assert found.attention[b, t].tolist() == pytest.approx(prior)


def test_outputs_of_weight_zero_do_not_count() -> None:
    example, attend = Example(), attention()
    whole = example.run(attend)
    weights = torch.tensor([[True, True, False], [True, False, False]])
    part = example.run(attend, weights=weights)
    expected = -whole.bound.value[weights].mean()
    torch.testing.assert_close(part.loss.detach(), expected)
    heavy = example.run(attend, weights=torch.tensor([[2.0, 0.0, 0.0], [1.0, 0.0, 0.0]]))
    value = whole.bound.value
    torch.testing.assert_close(heavy.loss.detach(), -(2 * value[0, 0] + value[1, 0]) / 3)
    evaluated = example.run(attend.eval(), weights=weights)
    torch.testing.assert_close(evaluated.loss.detach(), expected)  # marginal and exact inference agree


class Network(nn.Module):
    """Scores from the embedding of the observed output."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(6, 4)
        self.seen: list[tuple[Tensor, ...]] = []

    def forward(self, queries: Tensor, memory: Tensor, targets: Tensor) -> Tensor:
        self.seen.append((queries, memory, targets))
        return (queries + self.embed(targets)) @ memory.transpose(1, 2)


def test_the_inference_network_reads_the_targets_and_is_trained() -> None:
    example, network = Example(), Network()
    attend = attention(objective="variational", inference_network=network)
    found = example.run(attend)
    for given, expected in zip(
        network.seen[0], (example.queries, example.memory, example.targets), strict=True
    ):
        assert given is expected
    expected = Categorical.from_scores(network(*network.seen[0]), example.mask)
    torch.testing.assert_close(found.posterior.probs, expected.probs)
    found.loss.backward()
    assert network.embed.weight.grad.abs().max() > 0
    assert any(name.startswith("inference_network.") for name in attend.state_dict())


def test_given_scores_come_before_the_network() -> None:
    example, network = Example(), Network()
    attend = attention(objective="variational", inference_network=network)
    found = example.run(attend, posterior_scores=example.posterior_scores)
    assert network.seen == []
    expected = Categorical.from_scores(example.posterior_scores, example.mask)
    torch.testing.assert_close(found.posterior.probs, expected.probs)


def test_a_sparse_prior_leaves_the_posterior_dense() -> None:
    example = Example()
    attend = attention(
        objective="variational", distribution={"name": "categorical", "normalizer": "sparsemax"}
    )
    found = example.run(attend, posterior_scores=10 * example.posterior_scores)
    assert not found.prior.support[0].all()
    assert found.posterior.support[0].all()
    assert torch.isfinite(found.loss)


def test_relaxed_attention() -> None:
    example = Example()
    objective = {"name": "variational", "estimator": {"name": "pathwise", "samples": 2}}
    attend = attention(objective=objective, distribution="dirichlet", inference="sample:5")
    found = example.run(attend, posterior_scores=example.posterior_scores, generator=seeded())
    assert isinstance(found.prior, Dirichlet)
    found.loss.backward()
    assert example.posterior_scores.grad.abs().max() > 0
    evaluated = example.run(attend.eval(), generator=seeded())
    torch.testing.assert_close(evaluated.log_probs.exp().sum(dim=-1), torch.ones(2, 3, dtype=torch.float64))


def test_a_density_has_a_loss_but_no_log_probs() -> None:
    example, attend = Example(), attention()

    def head(context: Tensor, query: Tensor) -> torch.distributions.Distribution:
        return torch.distributions.Normal((context + query).sum(dim=-1), 1.0)

    arguments = {"mask": example.mask, "targets": example.targets.double()}
    trained = attend(example.queries, example.memory, head, **arguments)
    evaluated = attend.eval()(example.queries, example.memory, head, **arguments)
    assert evaluated.log_probs is None
    torch.testing.assert_close(evaluated.loss, trained.loss)


def test_the_state_of_a_baseline_is_saved_with_the_module() -> None:
    objective = {"name": "hard", "estimator": {"name": "reinforce", "baseline": "running-mean"}}
    example, first, second = Example(), attention(objective=objective), attention(objective=objective)
    example.run(first, generator=seeded())
    assert not torch.equal(first.objective_state[0].mean, second.objective_state[0].mean)
    second.load_state_dict(first.state_dict())
    assert torch.equal(first.objective_state[0].mean, second.objective_state[0].mean)
    assert second.objective.estimator.baseline is second.objective_state[0]


def test_parts_may_be_given_as_objects() -> None:
    attend = LatentAttention(4, 4, objective=Marginal(prune=0.1), inference=KMax(3), score="dot")
    assert attend.objective == Marginal(prune=0.1)
    assert attend.predictor == KMax(3)


@pytest.mark.parametrize(
    ("mistake", "error", "words"),
    [
        (lambda: attention(objective="margnal"), ConfigError, "objective: .*'margnal'.*'marginal'"),
        (lambda: attention(inference="best"), ConfigError, "inference: expected one of exact.*'best'"),
        (lambda: attention(score="cosine"), ConfigError, "score: .*'cosine'"),
        (lambda: attention(distribution="gaussian"), ConfigError, "distribution: .*'gaussian'"),
        (
            lambda: attention(objective="soft", inference_network=Network()),
            ConfigError,
            "inference_network: .*Soft takes none.*; drop it",
        ),
        (lambda: Example().run(attention(), targets=None), ConfigError, "targets: .*training.*none; .*eval"),
        (
            lambda: Example().run(attention(objective="rws")),
            ConfigError,
            "posterior: ReweightedWakeSleep expected.*received none; pass posterior",
        ),
        (
            lambda: Example().run(attention(), posterior_scores=torch.zeros(2, 3, 5)),
            ConfigError,
            "posterior_scores: objective Marginal takes none; drop them",
        ),
        (
            lambda: Example().run(attention(), weights=torch.ones(2, 4)),
            ShapeError,
            r"weights: expected shape \[B,T\] with T=3.*received \[2, 4\]",
        ),
        (
            lambda: Example().run(attention(), weights=torch.zeros(2, 3)),
            ConfigError,
            "weights: expected a positive sum.*received 0; drop a batch",
        ),
        (
            lambda: Example().run(attention(), mask=torch.ones(2, 4, dtype=torch.bool)),
            ShapeError,
            r"mask: expected shape \[B,S\] with S=5.*received \[2, 4\]",
        ),
        (
            lambda: Example().run(attention(), targets=torch.zeros(2, 4, dtype=torch.long)),
            ShapeError,
            r"targets: expected shape \[B,T\] with T=3.*received \[2, 4\]",
        ),
        (
            lambda: attention()(
                torch.full((1, 1, 4), torch.nan).double(), torch.zeros(1, 2, 4).double(), print
            ),
            NonFiniteError,
            "scores: expected finite numbers.*received nan",
        ),
    ],
)
def test_a_mistake_is_explained(mistake, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        mistake()
