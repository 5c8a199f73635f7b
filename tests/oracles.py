"""Brute force for the core library: plain loops over Python numbers, no torch, nothing of latentalign.

One output (one example, one step) at a time: `prior` and `posterior` are lists of S probabilities, `log_f` a
list of S log-likelihoods. Every function accepts complex numbers, because derivatives are taken by a complex
step, `Im f(x + ih) / h`, which is exact to the last bits of a float64 and needs no automatic differentiation.
"""

import cmath
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

Number = float | complex
Vector = Sequence[Number]
STEP = 1e-30


def exp(x: Number) -> Number:
    return cmath.exp(x) if isinstance(x, complex) else math.exp(x)


def log(x: Number) -> Number:
    return cmath.log(x) if isinstance(x, complex) else math.log(x)


def tanh(x: Number) -> Number:
    return cmath.tanh(x) if isinstance(x, complex) else math.tanh(x)


def total(numbers: Sequence[Number]) -> Number:
    result: Number = 0.0
    for number in numbers:
        result = result + number
    return result


def gradient(function: Callable[[list[Number]], Number], point: Vector) -> list[float]:
    """Partial derivatives of a real function at `point`, exact to rounding."""
    partials = []
    for i in range(len(point)):
        moved = [complex(x, STEP) if j == i else x for j, x in enumerate(point)]
        partials.append(complex(function(moved)).imag / STEP)
    return partials


# ---------------------------------------------------------------- normalisers


def softmax(scores: Vector, mask: Sequence[bool] | None = None) -> list[Number]:
    mask = mask or [True] * len(scores)
    top = max(complex(s).real for s, real in zip(scores, mask, strict=True) if real)
    powers = [exp(s - top) if real else 0.0 for s, real in zip(scores, mask, strict=True)]
    return [power / total(powers) for power in powers]


def sparsemax(scores: Sequence[float], mask: Sequence[bool] | None = None) -> list[float]:
    """Projection onto the simplex: try every support, keep the one that meets the optimality conditions."""
    real = [i for i in range(len(scores)) if mask is None or mask[i]]
    for size in range(1, len(real) + 1):
        for support in itertools.combinations(real, size):
            threshold = (sum(scores[i] for i in support) - 1) / size
            inside = all(scores[i] > threshold for i in support)
            outside = all(scores[i] <= threshold for i in real if i not in support)
            if inside and outside:
                return [scores[i] - threshold if i in support else 0.0 for i in range(len(scores))]
    raise AssertionError("no support meets the conditions")


def entmax15(scores: Sequence[float], mask: Sequence[bool] | None = None) -> list[float]:
    """p_i = max(s_i/2 − τ, 0)² with τ found by bisection so that the sum is one."""
    real = [mask is None or mask[i] for i in range(len(scores))]
    top = max(s / 2 for s, keep in zip(scores, real, strict=True) if keep)
    low, high = top - 1.0, top
    for _ in range(200):
        middle = (low + high) / 2
        mass = sum(max(s / 2 - middle, 0.0) ** 2 for s, keep in zip(scores, real, strict=True) if keep)
        low, high = (middle, high) if mass > 1 else (low, middle)
    return [max(s / 2 - low, 0.0) ** 2 if keep else 0.0 for s, keep in zip(scores, real, strict=True)]


# ---------------------------------------------------------------- likelihood: softmax(W tanh(Σ z_s v_s + b))


def log_likelihood(
    values: Sequence[Vector], query: Vector, weight: Sequence[Vector], y: int, z: Vector
) -> Number:
    """log f(x, z)_y for a point z of the simplex; values [S][D], query [D], weight [V][D]."""
    hidden = []
    for d in range(len(query)):
        mixed = total([z[s] * values[s][d] for s in range(len(values))])
        hidden.append(tanh(mixed + query[d]))
    logits = [total([row[d] * hidden[d] for d in range(len(hidden))]) for row in weight]
    return log(softmax(logits)[y])


def one_hot(i: int, size: int) -> list[float]:
    return [1.0 if j == i else 0.0 for j in range(size)]


def table(values: Sequence[Vector], query: Vector, weight: Sequence[Vector], y: int) -> list[Number]:
    """log f at every position."""
    size = len(values)
    return [log_likelihood(values, query, weight, y, one_hot(i, size)) for i in range(size)]


# ---------------------------------------------------------------- values of distributions and objectives


def positive(p: Number) -> bool:
    return complex(p).real > 0


def entropy(p: Vector) -> Number:
    return -total([x * log(x) for x in p if positive(x)])


def kl(q: Vector, p: Vector) -> Number:
    return total([b * (log(b) - log(a)) for b, a in zip(q, p, strict=True) if positive(b)])


def expected(d: Vector, log_f: Vector) -> Number:
    return total([x * y for x, y in zip(d, log_f, strict=True) if positive(x)])


def marginal(prior: Vector, log_f: Vector) -> Number:
    return log(total([p * exp(y) for p, y in zip(prior, log_f, strict=True) if positive(p)]))


def elbo(posterior: Vector, prior: Vector, log_f: Vector) -> Number:
    return expected(posterior, log_f) - kl(posterior, prior)


def hard(prior: Vector, log_f: Vector) -> Number:
    return expected(prior, log_f)


def responsibilities(prior: Vector, log_f: Vector) -> list[Number]:
    joint = [p * exp(y) if positive(p) else 0.0 for p, y in zip(prior, log_f, strict=True)]
    return [x / total(joint) for x in joint]


def kmax(prior: Sequence[float], log_f: Sequence[float], k: int) -> float:
    """Best k positions of the prior, renormalised."""
    best = sorted(range(len(prior)), key=lambda i: -prior[i])[:k]
    best = [i for i in best if prior[i] > 0]
    mass = sum(prior[i] for i in best)
    return math.log(sum(prior[i] / mass * math.exp(log_f[i]) for i in best))


# ---------------------------------------------------------------- all samples of a finite support


def tuples(d: Sequence[float], k: int) -> Iterator[tuple[tuple[int, ...], float]]:
    """Every K-tuple of positions with positive probability, and the probability of drawing it."""
    support = [i for i in range(len(d)) if d[i] > 0]
    for sample in itertools.product(support, repeat=k):
        yield sample, math.prod(d[i] for i in sample)


def score_gradient(probs: Sequence[float], i: int) -> list[float]:
    """∇ log softmax(scores)_i with respect to the scores."""
    return [(1.0 if j == i else 0.0) - probs[j] if probs[j] > 0 else 0.0 for j in range(len(probs))]


def log_weights(
    posterior: Sequence[float], prior: Sequence[float], log_f: Sequence[float], sample: Sequence[int]
) -> list[float]:
    return [math.log(prior[i]) + log_f[i] - math.log(posterior[i]) for i in sample]


def log_mean_exp(numbers: Sequence[Number]) -> Number:
    return log(total([exp(x) for x in numbers]) / len(numbers))


def importance_bound(
    posterior: Sequence[float], prior: Sequence[float], log_f: Sequence[float], sample: Sequence[int]
) -> float:
    """log 1/K Σ w_k of one tuple."""
    return float(log_mean_exp(log_weights(posterior, prior, log_f, sample)))


class Direction:
    """An update direction in the three groups of parameters of one output."""

    def __init__(self, size: int) -> None:
        self.prior_scores = [0.0] * size
        self.posterior_scores = [0.0] * size
        self.log_f = [0.0] * size

    def add(self, other: "Direction", factor: float) -> None:
        for name in ("prior_scores", "posterior_scores", "log_f"):
            mine, theirs = getattr(self, name), getattr(other, name)
            setattr(self, name, [a + factor * b for a, b in zip(mine, theirs, strict=True)])


def rws_direction(
    posterior: Sequence[float], prior: Sequence[float], log_f: Sequence[float], sample: Sequence[int]
) -> Direction:
    """Σ_k w̃_k ∇log p(y, z_k) for θ and Σ_k w̃_k ∇log q(z_k) for φ, written out."""
    weights = softmax(log_weights(posterior, prior, log_f, sample))
    direction = Direction(len(prior))
    for weight, i in zip(weights, sample, strict=True):
        direction.log_f[i] += float(weight)
        for j, slope in enumerate(score_gradient(prior, i)):
            direction.prior_scores[j] += float(weight) * slope
        for j, slope in enumerate(score_gradient(posterior, i)):
            direction.posterior_scores[j] += float(weight) * slope
    return direction


def vimco_direction(
    posterior: Sequence[float], prior: Sequence[float], log_f: Sequence[float], sample: Sequence[int]
) -> Direction:
    """Σ_k (L − L_{−k}) ∇log q(z_k) + Σ_k w̃_k ∇log w_k, with L_{−k} from the geometric mean of the others."""
    weights = log_weights(posterior, prior, log_f, sample)
    bound = float(log_mean_exp(weights))
    normalised = softmax(weights)
    direction = Direction(len(prior))
    for k, i in enumerate(sample):
        others = [w for j, w in enumerate(weights) if j != k]
        replaced = [*others, sum(others) / len(others)]
        signal = bound - float(log_mean_exp(replaced))
        direction.log_f[i] += float(normalised[k])
        for j, slope in enumerate(score_gradient(prior, i)):
            direction.prior_scores[j] += float(normalised[k]) * slope
        for j, slope in enumerate(score_gradient(posterior, i)):
            direction.posterior_scores[j] += (signal - float(normalised[k])) * slope
    return direction


def importance_direction(
    posterior: Sequence[float], prior: Sequence[float], log_f: Sequence[float], k: int
) -> Direction:
    """Gradient of the expectation over all K-tuples of log 1/K Σ w_k: the whole sum is differentiated."""
    size, direction = len(prior), Direction(len(prior))
    support = [i for i in range(size) if posterior[i] > 0]

    def objective(prior_scores: Vector, posterior_scores: Vector, logs: Vector) -> Number:
        mask = [x > 0 for x in prior]
        p, q = softmax(prior_scores, mask), softmax(posterior_scores, mask)
        result: Number = 0.0
        for sample in itertools.product(support, repeat=k):
            chance: Number = 1.0
            for i in sample:
                chance = chance * q[i]
            ratios = [log(p[i]) + logs[i] - log(q[i]) for i in sample]
            result = result + chance * log_mean_exp(ratios)
        return result

    p_scores = [math.log(x) if x > 0 else 0.0 for x in prior]
    q_scores = [math.log(x) if x > 0 else 0.0 for x in posterior]
    direction.prior_scores = gradient(lambda s: objective(s, q_scores, log_f), p_scores)
    direction.posterior_scores = gradient(lambda s: objective(p_scores, s, log_f), q_scores)
    direction.log_f = gradient(lambda s: objective(p_scores, q_scores, s), log_f)
    return direction


# ---------------------------------------------------------------- inner steps, curvature, alignment error


def svi(
    start: Sequence[float], prior: Vector, log_f: Vector, *, steps: int, learning_rate: float
) -> list[Number]:
    """λ after gradient steps on the ELBO; ∂ELBO/∂λ_i = q_i (g_i − Σ_j q_j g_j), g = log f + log p − log q."""
    scores: list[Number] = list(start)
    mask = [positive(p) for p in prior]
    for _ in range(steps):
        q = softmax(scores, mask)
        gains = [y + log(p) - log(x) if m else 0.0 for y, p, x, m in zip(log_f, prior, q, mask, strict=True)]
        mean = total([x * g for x, g in zip(q, gains, strict=True)])
        scores = [s + learning_rate * x * (g - mean) for s, x, g in zip(scores, q, gains, strict=True)]
    return softmax(scores, mask)


def alignment_error_rate(
    predicted: set[tuple[int, int]], sure: set[tuple[int, int]], possible: set[tuple[int, int]]
) -> float:
    possible = possible | sure
    hits_sure = sum(1 for link in predicted if link in sure)
    hits_possible = sum(1 for link in predicted if link in possible)
    return 1 - (hits_sure + hits_possible) / (len(predicted) + len(sure))
