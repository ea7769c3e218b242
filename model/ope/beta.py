"""The beta distribution's CDF and quantiles, for the exact intervals."""

import math

_TINY = 1e-300
_PRECISION = 3e-16


def beta_cdf(x: float, a: float, b: float) -> float:
    """I_x(a, b), the regularised incomplete beta function; 0 ≤ x ≤ 1."""
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    # The continued fraction converges fast below the mean; above it, symmetry is used.
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - _tail(1.0 - x, b, a, complement=x)
    return _tail(x, a, b, complement=1.0 - x)


def beta_quantile(probability: float, a: float, b: float) -> float:
    """The x with I_x(a, b) = probability, by bisection down to neighbouring numbers."""
    low, high = 0.0, 1.0
    while True:
        middle = 0.5 * (low + high)
        if middle in (low, high):
            return middle
        if beta_cdf(middle, a, b) < probability:
            low = middle
        else:
            high = middle


def f_quantile(confidence: float, n: float) -> float:
    """The quantile of the F distribution with 1 and n degrees of freedom."""
    quantile = beta_quantile(confidence, 0.5, 0.5 * n)
    return n * quantile / (1.0 - quantile)


def _tail(x: float, a: float, b: float, complement: float) -> float:
    front = math.exp(
        math.lgamma(a + b)
        - math.lgamma(a)
        - math.lgamma(b)
        + a * math.log(x)
        + b * math.log(complement)
    )
    return front * _fraction(x, a, b) / a


def _fraction(x: float, a: float, b: float) -> float:
    """1/(1 + d₁/(1 + d₂/(1 + …))) by Lentz's method; about √max(a, b) steps are needed."""
    value, upper, lower = 1.0, 1.0, 0.0
    for step in range(1, 100_000):
        term = _coefficient(step, x, a, b)
        lower = 1.0 / _away_from_zero(1.0 + term * lower)
        upper = _away_from_zero(1.0 + term / upper)
        value *= upper * lower
        if abs(upper * lower - 1.0) < _PRECISION:
            break
    return 1.0 / value


def _coefficient(step: int, x: float, a: float, b: float) -> float:
    half, is_odd = divmod(step, 2)
    if is_odd:
        return -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
    return half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
