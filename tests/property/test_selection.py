import numpy as np
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from model.bandit.selection import drawn_arms, mixed_probabilities
from model.randomness import KeyedUniforms
from model.rounds import Booleans, Floats
from tests.support.strategies import SMALL, repeatable

MODERATE = st.floats(-(2.0**20), 2.0**20, width=32)


@st.composite
def scored(draw: st.DrawFn) -> tuple[Floats, Booleans | None]:
    """Scores (n, K) and the eligible arms, at least one a row, or None."""
    shape = draw(st.tuples(st.integers(1, 5), st.integers(1, 6)))
    elements = draw(st.sampled_from([MODERATE, SMALL, st.sampled_from([0.0, 0.5, 0.5000001])]))
    ucb = draw(hnp.arrays(np.float32, shape, elements=elements))
    if draw(st.booleans()):
        return ucb, None
    eligible = draw(hnp.arrays(np.bool_, shape))
    eligible[np.arange(shape[0]), draw(st.integers(0, shape[1] - 1))] = True
    return ucb, eligible


@repeatable(100)
@given(scored(), st.floats(0.0, 1.0))
def test_probabilities_are_a_distribution_with_the_explored_floor(case, epsilon):
    ucb, eligible = case
    p = mixed_probabilities(ucb, eligible, epsilon)
    allowed = np.ones_like(p, dtype=np.bool_) if eligible is None else eligible
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)
    assert (p[~allowed] == 0).all()
    floor = np.broadcast_to(epsilon / allowed.sum(axis=1, keepdims=True), p.shape)
    assert (p[allowed] >= floor[allowed]).all()


@repeatable(100)
@given(scored(), st.floats(0.0, 0.99))
def test_no_arm_is_likelier_than_the_best(case, epsilon):
    ucb, eligible = case
    p = mixed_probabilities(ucb, eligible, epsilon)
    masked = ucb if eligible is None else np.where(eligible, ucb, -np.inf)
    best = p[np.arange(len(p)), masked.argmax(axis=1)]
    np.testing.assert_array_equal(best, p.max(axis=1))


@repeatable()
@given(scored(), st.integers(0, 2**63 - 1), st.integers(0, 2**64 - 1))
def test_drawn_arm_always_has_a_positive_probability(case, seed, key):
    ucb, eligible = case
    p = mixed_probabilities(ucb, eligible, 0.0)
    arms = drawn_arms(p, KeyedUniforms(seed, "draw"), np.full(len(p), key, dtype=np.uint64))
    assert (p[np.arange(len(p)), arms] > 0).all()
