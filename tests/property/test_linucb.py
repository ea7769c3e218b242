import numpy as np
from hypothesis import given, strategies as st

from model.bandit.linucb import LinUCB
from tests.support.strategies import repeatable, round_columns


@repeatable()
@given(round_columns(), st.randoms(use_true_random=False))
def test_statistics_do_not_depend_on_the_order_of_rounds(columns, random):
    order = list(range(len(columns[1])))
    random.shuffle(order)
    first, second = LinUCB(3, 4, 1.0), LinUCB(3, 4, 1.0)
    first.fold(*columns)
    second.fold(*(column[order] for column in columns))
    np.testing.assert_allclose(first.A, second.A, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(first.b, second.b, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(first.counts, second.counts)


@repeatable()
@given(round_columns(), st.floats(1e-3, 1e3))
def test_factors_invert_the_design_matrix(columns, ridge):
    state = LinUCB(3, 4, ridge)
    state.fold(*columns)
    root = state.factors().inverse_root
    inverse = root.transpose(0, 2, 1) @ root
    np.testing.assert_allclose(state.A @ inverse, np.tile(np.eye(4), (3, 1, 1)), atol=1e-9)
    residual = (state.A @ state.factors().theta[..., None])[..., 0] - state.b
    assert np.abs(residual).max() <= 1e-10 * max(1.0, np.abs(state.b).max())


@repeatable()
@given(round_columns())
def test_widths_only_shrink_with_more_rounds(columns):
    state, z = LinUCB(3, 4, 1.0), np.eye(4)
    before = np.linalg.norm(z @ state.factors().inverse_root.transpose(0, 2, 1), axis=2)
    state.fold(*columns)
    after = np.linalg.norm(z @ state.factors().inverse_root.transpose(0, 2, 1), axis=2)
    assert (after <= before + 1e-12).all()
