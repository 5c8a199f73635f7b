"""Expectations over a simplex of two positions by quadrature, in plain floats."""

import math
from collections.abc import Callable


def beta_expectation(a: float, b: float, function: Callable[[float], float], points: int = 4000) -> float:
    """E[function(z)] for z ~ Beta(a, b), a and b ≥ 1: midpoints after z = sin²(u), which tames the ends."""
    log_norm = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    width = math.pi / 2 / points
    result = 0.0
    for n in range(points):
        u = (n + 0.5) * width
        z = math.sin(u) ** 2
        density = math.exp(log_norm + (a - 1) * math.log(z) + (b - 1) * math.log1p(-z))
        result += function(z) * density * 2 * math.sin(u) * math.cos(u) * width
    return result


def normal_expectation(
    mean: float, deviation: float, function: Callable[[float], float], points: int = 4000
) -> float:
    """E[function(x)] for x ~ Normal(mean, deviation²), by the trapezoid rule over ±12 deviations."""
    width = 24.0 / points
    result = 0.0
    for n in range(points + 1):
        e = -12.0 + n * width
        result += function(mean + deviation * e) * math.exp(-e * e / 2) / math.sqrt(2 * math.pi) * width
    return result


def central_difference(function: Callable[[float], float], x: float, step: float = 1e-4) -> float:
    return (function(x + step) - function(x - step)) / (2 * step)
