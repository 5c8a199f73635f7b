"""Names in a recipe become objects; a wrong name is answered with the nearest right one."""

import pytest
import torch

from latentalign.alignment import (
    Additive,
    Categorical,
    ConfigError,
    Dirichlet,
    Dot,
    Elbo,
    Enumerate,
    Exact,
    General,
    GumbelSoftmax,
    Hard,
    KMax,
    LeaveOneOut,
    LogisticNormal,
    Marginal,
    NoBaseline,
    Pathwise,
    Reinforce,
    ReweightedWakeSleep,
    RunningMean,
    Sampled,
    Soft,
    SoftBaseline,
    SoftContext,
    StochasticEM,
    StochasticVI,
    Vimco,
    Wake,
    build_distribution,
    build_estimator,
    build_objective,
    build_score,
    parse_inference,
)

NAMED = {
    "soft": Soft(),
    "marginal": Marginal(),
    "hard": Hard(),
    "variational": Elbo(),
    "wake": Wake(),
    "rws": ReweightedWakeSleep(),
    "vimco": Vimco(),
    "svi": StochasticVI(),
    "em": StochasticEM(),
}


@pytest.mark.parametrize("name", NAMED)
def test_every_objective_has_a_name(name: str) -> None:
    assert build_objective(name) == NAMED[name]
    assert build_objective({"name": name}) == NAMED[name]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"name": "marginal", "prune": 0.01}, Marginal(prune=0.01)),
        ({"name": "rws", "samples": 7}, ReweightedWakeSleep(samples=7)),
        (
            {
                "name": "variational",
                "estimator": {"name": "reinforce", "samples": 3, "baseline": "leave-one-out"},
            },
            Elbo(Reinforce(samples=3, baseline=LeaveOneOut())),
        ),
        ({"name": "hard", "estimator": "pathwise"}, Hard(Pathwise())),
        (
            {"name": "svi", "steps": 4, "learning_rate": 0.5, "start": "posterior"},
            StochasticVI(steps=4, learning_rate=0.5, start="posterior"),
        ),
        (
            {"name": "hard", "estimator": Reinforce(baseline=NoBaseline())},
            Hard(Reinforce(baseline=NoBaseline())),
        ),
    ],
)
def test_options_and_nested_parts(config: dict, expected: object) -> None:
    before = repr(config)
    assert build_objective(config) == expected
    assert repr(config) == before  # a recipe is not altered by being read


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("enumerate", Enumerate()),
        ({"name": "enumerate", "prune": 0.1}, Enumerate(prune=0.1)),
        ("reinforce", Reinforce(samples=1, baseline=SoftBaseline())),
        ({"name": "reinforce", "baseline": "none"}, Reinforce(baseline=NoBaseline())),
        ({"name": "reinforce", "baseline": {"name": "soft"}}, Reinforce(baseline=SoftBaseline())),
        ({"name": "gumbel", "temperature": 0.5}, GumbelSoftmax(temperature=0.5)),
        ("pathwise", Pathwise()),
    ],
)
def test_estimators_and_baselines(config, expected: object) -> None:
    assert build_estimator(config) == expected


def test_a_running_mean_is_built_anew_each_time() -> None:
    config = {"name": "reinforce", "baseline": {"name": "running-mean", "decay": 0.5}}
    first, second = build_estimator(config).baseline, build_estimator(config).baseline
    assert isinstance(first, RunningMean)
    assert first.decay == 0.5
    assert first is not second


def test_distributions() -> None:
    scores, mask = torch.tensor([[[2.0, 0.0, -1.0, 5.0]]]), torch.tensor([[True, True, True, False]])
    plain = build_distribution("categorical")(scores, mask)
    assert torch.equal(plain.probs, Categorical.from_scores(scores, mask).probs)
    sparse = build_distribution({"name": "categorical", "normalizer": "sparsemax"})(scores, mask)
    assert sparse.probs.tolist() == [[[1.0, 0.0, 0.0, 0.0]]]
    assert isinstance(build_distribution("dirichlet")(scores, mask), Dirichlet)
    wide = build_distribution({"name": "logistic-normal", "scale": 2.0})(scores, mask)
    assert isinstance(wide, LogisticNormal)
    assert (wide.scale == 2.0).all()
    assert build_distribution("categorical")(scores, None).support.all()


def test_scores() -> None:
    assert isinstance(build_score("dot", 3, 3, 8), Dot)
    assert isinstance(build_score("general", 3, 4, 8), General)
    additive = build_score("additive", 3, 4, 8)
    assert isinstance(additive, Additive)
    assert additive.query.out_features == 8


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("exact", Exact()),
        ("soft", SoftContext()),
        ("kmax:3", KMax(3)),
        ("kmax", KMax(5)),
        ("sample:20", Sampled(20)),
    ],
)
def test_inference(text: str, expected: object) -> None:
    assert parse_inference(text) == expected


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (
            lambda: build_objective("variatonal"),
            "objective: expected one of soft.*'variatonal'.*'variational'",
        ),
        (lambda: build_objective("marginals"), "objective: .*did you mean 'marginal'"),
        (lambda: build_objective("xyzzy"), "objective: expected one of soft, marginal.*'xyzzy'"),
        (
            lambda: build_objective({"samples": 3}),
            "objective: expected a name, received .*samples.*name: soft",
        ),
        (
            lambda: build_objective({"name": "rws", "sample": 3}),
            "objective rws: expected samples, received 'sample'; did you mean 'samples'",
        ),
        (
            lambda: build_objective({"name": "soft", "prune": 0.1}),
            "objective soft: expected label_smoothing, received 'prune'",
        ),
        (
            lambda: build_objective({"name": "hard", "estimator": "reinforced"}),
            "estimator: .*'reinforced'.*'reinforce'",
        ),
        (
            lambda: build_objective(
                {"name": "hard", "estimator": {"name": "reinforce", "baseline": "sofft"}}
            ),
            "baseline: expected one of none, running-mean, soft, leave-one-out.*'sofft'.*'soft'",
        ),
        (
            lambda: build_estimator({"name": "reinforce", "baseline": "leave-one-out"}),
            "samples: expected at least 2",
        ),
        (lambda: build_estimator({"name": "gumbel", "temperature": "warm"}), "estimator gumbel.*warm"),
        (lambda: build_estimator({"name": "reinforce", "samples": "many"}), "samples.*whole number.*'many'"),
        (lambda: build_distribution("categorial"), "distribution: .*'categorial'.*'categorical'"),
        (
            lambda: build_distribution({"name": "categorical", "normaliser": "softmax"}),
            "distribution categorical: expected normalizer, received 'normaliser'",
        ),
        (
            lambda: build_score("bilinear", 2, 2, 2),
            "score: expected one of additive, dot, general.*'bilinear'",
        ),
        (lambda: parse_inference("kmaxx:5"), "inference: .*'kmaxx'.*'kmax'"),
        (lambda: parse_inference("kmax:many"), "inference: expected a whole number.*'kmax:many'.*kmax:5"),
        (lambda: parse_inference("kmax:0"), "k: expected a whole number of at least 1, received 0"),
        (
            lambda: parse_inference("exact:5"),
            "inference: exact takes no number, received 'exact:5'; try exact",
        ),
        (lambda: parse_inference(""), "inference: expected one of exact, kmax"),
    ],
)
def test_a_wrong_name_or_option_is_explained(mistake, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        mistake()
