"""ε-mixed UCB: from scores to exact probabilities, and from probabilities to a drawn arm."""

from bisect import bisect_right
from itertools import accumulate

import numpy as np

from model.randomness import KeyedUniforms
from model.rounds import Booleans, Doubles, Floats, Integers, Keys

TIE_TOLERANCE = 1e-6  # a few times the rounding of scores near 1 in float32
_TINY = 1e-300  # stands for 0 in a logarithm: 0·log 0 = 0


def mixed_probabilities(
    ucb: Floats, eligible: Booleans | None, epsilon: float, tolerance: float = TIE_TOLERANCE
) -> Doubles:
    """p = (1 − ε)·[argmax, ties shared evenly] + ε·uniform over the eligible arms; all (n, K).

    UCBs within the tolerance of the best count as tied, so that rounding does not decide between
    arms that are equal by construction.
    """
    if eligible is None:
        if len(ucb) == 1:  # the same arithmetic without numpy's overhead
            return np.array([_mixed_row(ucb[0].tolist(), epsilon, np.float32(tolerance))])
        floor: float | Doubles = epsilon / ucb.shape[1]
    else:
        ucb = np.where(eligible, ucb, np.float32(-np.inf))
        floor = epsilon * eligible / eligible.sum(axis=1, keepdims=True)
    tied = ucb >= np.maximum.reduce(ucb, axis=1, keepdims=True) - np.float32(tolerance)
    has_ties = np.count_nonzero(tied) > len(tied)
    count = tied.sum(axis=1, keepdims=True) if has_ties else 1
    return np.asarray(tied * ((1.0 - epsilon) / count) + floor)


def _mixed_row(ucb: list[float], epsilon: float, tolerance: np.float32) -> list[float]:
    least = float(np.float32(max(ucb)) - tolerance)
    floor = epsilon / len(ucb)
    best = (1.0 - epsilon) / sum(score >= least for score in ucb) + floor
    return [best if score >= least else floor for score in ucb]


def entropy(probabilities: Doubles) -> Doubles:
    """−Σ p·log p in nats, of the arms' probabilities (…, K): 0 = the arm is certain."""
    return -np.asarray((probabilities * np.log(np.maximum(probabilities, _TINY))).sum(axis=-1))


def drawn_arms(probabilities: Doubles, uniforms: KeyedUniforms, keys: Keys) -> Integers:
    """One arm for each row, drawn with a number that depends on the seed and the decision's key alone."""
    # Scaling by the total keeps a draw at 0.999… inside the table despite rounding. An arm of
    # probability 0 is never drawn: its cumulative value equals its predecessor's.
    if len(probabilities) == 1:  # the same arithmetic without numpy's overhead
        table = list(accumulate(probabilities[0].tolist()))
        return np.array([bisect_right(table, uniforms.one(int(keys[0])) * table[-1])])
    cumulative = probabilities.cumsum(axis=1)
    points = uniforms.many(keys) * cumulative[:, -1]
    return np.asarray((points[:, None] < cumulative).argmax(axis=1))
