"""Names in a recipe -> objects. The only place that knows the names; adding a part is one line here."""

import difflib
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import Tensor, nn

from latentalign.alignment.chains.chain import ChainDistribution
from latentalign.alignment.errors import ConfigError
from latentalign.alignment.latents.categorical import Categorical
from latentalign.alignment.latents.continuous import Dirichlet, LogisticNormal
from latentalign.alignment.latents.latent import Latent
from latentalign.alignment.learning.estimators import (
    Baseline,
    Enumerate,
    Estimator,
    GumbelSoftmax,
    LeaveOneOut,
    NoBaseline,
    Pathwise,
    Reinforce,
    RunningMean,
    SoftBaseline,
)
from latentalign.alignment.learning.importance import ReweightedWakeSleep, Vimco
from latentalign.alignment.learning.objectives import (
    Elbo,
    Hard,
    Marginal,
    Objective,
    Soft,
    StochasticEM,
    StochasticVI,
    Wake,
)
from latentalign.alignment.prediction import Exact, KMax, Predictor, Sampled, SoftContext
from latentalign.alignment.scores import Additive, Dot, General, Score

Config = str | Mapping[str, Any]

OBJECTIVES: dict[str, Callable[..., Objective]] = {
    "soft": Soft,
    "marginal": Marginal,
    "hard": Hard,
    "variational": Elbo,
    "wake": Wake,
    "rws": ReweightedWakeSleep,
    "vimco": Vimco,
    "svi": StochasticVI,
    "em": StochasticEM,
}
ESTIMATORS: dict[str, Callable[..., Estimator]] = {
    "enumerate": Enumerate,
    "reinforce": Reinforce,
    "gumbel": GumbelSoftmax,
    "pathwise": Pathwise,
}
BASELINES: dict[str, Callable[..., Baseline]] = {
    "none": NoBaseline,
    "running-mean": RunningMean,
    "soft": SoftBaseline,
    "leave-one-out": LeaveOneOut,
}
DISTRIBUTIONS: dict[str, Callable[..., Latent]] = {
    "categorical": Categorical.from_scores,
    "dirichlet": Dirichlet.from_scores,
    "logistic-normal": LogisticNormal.from_scores,
}
# distributions that own something that is learnt: modules that the caller keeps
DISTRIBUTION_MODULES: dict[str, Callable[..., nn.Module]] = {"chain": ChainDistribution}
PREDICTORS: dict[str, Callable[..., Predictor]] = {
    "exact": Exact,
    "kmax": KMax,
    "sample": Sampled,
    "soft": SoftContext,
}
SCORES: dict[str, Callable[..., Score]] = {
    "additive": Additive,
    "dot": lambda query_dim, memory_dim, hidden_dim: Dot(query_dim, memory_dim),
    "general": lambda query_dim, memory_dim, hidden_dim: General(query_dim, memory_dim),
}
# options that only some parts have, and why
_ELSEWHERE = {
    "label_smoothing": "it needs the probability of every output value, which soft alone computes for each output; "
    "leave it out, or smooth a phase of soft"
}
# options that are themselves parts with a name
_NESTED: dict[str, Mapping[str, Callable[..., Any]]] = {"estimator": ESTIMATORS, "baseline": BASELINES}


def build_objective(config: Config | Objective, *, estimator: Config | None = None) -> Objective:
    """An objective from its name, or from a mapping with `name` and options.

    `estimator` is for objectives that take one, where the config names none.

    Example:
        >>> build_objective({"name": "variational", "estimator": {"name": "reinforce", "samples": 2}})
        Elbo(estimator=Reinforce(samples=2, baseline=SoftBaseline()))
    """
    if estimator is not None and isinstance(config, (str, Mapping)):
        name, options = _split("objective", OBJECTIVES, config)
        if "estimator" in inspect.signature(OBJECTIVES[name]).parameters:
            config = {"name": name, "estimator": estimator, **options}
    built: Objective = _build("objective", OBJECTIVES, config)
    return built


def build_estimator(config: Config) -> Estimator:
    """An estimator from its name, or from a mapping with `name` and options."""
    built: Estimator = _build("estimator", ESTIMATORS, config)
    return built


def build_distribution(config: Config) -> Callable[[Tensor, Tensor | None], Latent]:
    """A function (scores, mask) -> distribution, from a name or a mapping with `name` and options.

    For a chain it is a module that owns the scores of its jumps: keep it where its parameters are found.
    """
    every = {**DISTRIBUTIONS, **DISTRIBUTION_MODULES}
    name, options = choose_part("distribution", every, config, skip=("scores", "mask"))
    if name in DISTRIBUTIONS:
        return partial(DISTRIBUTIONS[name], **options)
    return DISTRIBUTION_MODULES[name](**options)


def choose_part(
    kind: str, registry: Mapping[str, Callable[..., Any]], config: Config, *, skip: tuple[str, ...] = ()
) -> tuple[str, dict[str, Any]]:
    """The name and the options that a recipe gives, all of them known; `skip`: not for recipes."""
    name, options = _split(kind, registry, config)
    _check_options(f"{kind} {name}", registry[name], options, skip=skip)
    return name, options


def build_score(name: str, query_dim: int, memory_dim: int, hidden_dim: int) -> Score:
    """A score function by name: additive, dot or general."""
    _check_name("score", SCORES, name)
    return SCORES[name](query_dim, memory_dim, hidden_dim)


def parse_inference(text: str) -> Predictor:
    """A predictor from `exact`, `kmax:K`, `sample:N` or `soft`.

    Example:
        >>> parse_inference("kmax:5")
        KMax(k=5)
    """
    name, _, count = text.partition(":")
    _check_name("inference", PREDICTORS, name)
    if not count:
        return PREDICTORS[name]()
    if not inspect.signature(PREDICTORS[name]).parameters:
        raise ConfigError(f"inference: {name} takes no number, received {text!r}; try {name}")
    try:
        number = int(count)
    except ValueError:
        raise ConfigError(
            f"inference: expected a whole number after {name}:, received {text!r}; try {name}:5"
        ) from None
    return PREDICTORS[name](number)


def fitting_predictors(*, is_discrete: bool) -> list[str]:
    """Names of the ways to predict that such a latent can take."""
    return [name for name in PREDICTORS if is_discrete or not parse_inference(name).needs_discrete]


def _build(kind: str, registry: Mapping[str, Callable[..., Any]], config: Any) -> Any:
    if not isinstance(config, (str, Mapping)):
        return config  # already an object
    name, options = _split(kind, registry, config)
    factory = registry[name]
    _check_options(f"{kind} {name}", factory, options)
    for key, nested in _NESTED.items():
        if key in options:
            options[key] = _build(key, nested, options[key])
    try:
        return factory(**options)
    except TypeError as error:
        raise ConfigError(f"{kind} {name}: {error}; check the types of its options {options}") from None


def _split(kind: str, registry: Mapping[str, Any], config: Config) -> tuple[str, dict[str, Any]]:
    options = {} if isinstance(config, str) else dict(config)
    name = config if isinstance(config, str) else options.pop("name", None)
    if name is None:
        raise ConfigError(
            f"{kind}: expected a name, received {dict(options)}; add name: {next(iter(registry))}"
        )
    _check_name(kind, registry, name)
    return name, options


def _check_name(kind: str, registry: Mapping[str, Any], name: object) -> None:
    if name not in registry:
        raise ConfigError(
            f"{kind}: expected one of {', '.join(registry)}, received {name!r}{_nearest(name, registry)}"
        )


def _check_options(
    place: str, factory: Callable[..., Any], options: Mapping[str, Any], skip: tuple[str, ...] = ()
) -> None:
    known = [name for name in inspect.signature(factory).parameters if name not in skip]
    for option in options:
        if option not in known and option in _ELSEWHERE:
            raise ConfigError(f"{place}: takes no {option}: {_ELSEWHERE[option]}")
        if option not in known:
            choices = ", ".join(known) or "no options"
            raise ConfigError(f"{place}: expected {choices}, received {option!r}{_nearest(option, known)}")


def _nearest(name: object, choices: Any) -> str:
    close = difflib.get_close_matches(str(name), list(choices), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else "; choose one of these"
