"""ε-mixed UCB: from scores to exact probabilities, and from probabilities to a drawn arm."""

from bisect import bisect_right
from itertools import accumulate

import numpy as np

from model.randomness import KeyedUniforms
from model.rounds import Booleans, Doubles, Floats, Integers, Keys

TIE_TOLERANCE = 1e-6


def mixed_probabilities(
    ucb: Floats, eligible: Booleans | None, epsilon: float, tolerance: float = TIE_TOLERANCE
) -> Doubles:
    """p = (1 − ε)·[argmax, ties shared evenly] + ε·uniform over the eligible arms; all (n, K).

    UCBs within the tolerance of the best count as tied, so that rounding does not decide between
    arms that are equal by construction.
    """
    if eligible is None:
        floor: float | Doubles = epsilon / ucb.shape[1]
    else:
        ucb = np.where(eligible, ucb, -np.inf)
        floor = epsilon * eligible / eligible.sum(axis=1, keepdims=True)
    tied = ucb >= np.maximum.reduce(ucb, axis=1, keepdims=True) - tolerance
    if np.count_nonzero(tied) == len(tied):  # one best arm in every row, the usual case
        shared = tied * (1.0 - epsilon)
    else:
        shared = tied * ((1.0 - epsilon) / tied.sum(axis=1, keepdims=True))
    return np.asarray(shared + floor)


def drawn_arms(probabilities: Doubles, uniforms: KeyedUniforms, keys: Keys) -> Integers:
    """One arm a row, drawn with a number that depends on the seed and the decision's key alone."""
    # Scaling by the total keeps a draw at 0.999… inside the table despite rounding; an arm of
    # probability 0 is never hit since its cumulative value equals its predecessor's.
    if len(probabilities) == 1:  # the same arithmetic, without numpy's cost a call
        table = list(accumulate(probabilities[0].tolist()))
        return np.array([bisect_right(table, uniforms.one(int(keys[0])) * table[-1])])
    cumulative = probabilities.cumsum(axis=1)
    points = uniforms.many(keys) * cumulative[:, -1]
    return np.asarray((points[:, None] < cumulative).argmax(axis=1))
