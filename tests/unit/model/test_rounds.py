import numpy as np
import pytest

from model.rounds import HUGE, checked_contexts

BAD_CONTEXTS = {
    "too short": [1.0, 2.0, 3.0],
    "scalar": 1.0,
    "transposed": np.ones((4, 2)),
    "ragged": [[1.0, 2.0, 3.0, 4.0], [1.0]],
    "words": ["a", "b", "c", "d"],
    "none": None,
    "NaN": [1.0, 2.0, 3.0, np.nan],
    "infinity": [1.0, 2.0, 3.0, -np.inf],
    "beyond float32": [1.0, 2.0, 3.0, 1e39],
}


@pytest.mark.parametrize("contexts", BAD_CONTEXTS.values(), ids=BAD_CONTEXTS)
def test_bad_context_is_a_value_error_naming_it(contexts):
    with pytest.raises(ValueError, match=r"^context: "):
        checked_contexts(contexts, (4,))


@pytest.mark.parametrize("leading", [(), (5,), (5, 2), (0,)])
def test_any_leading_shape_passes_as_float32(leading):
    checked = checked_contexts(np.ones((*leading, 2, 4)), (2, 4))
    assert checked.shape == (*leading, 2, 4)
    assert checked.dtype == np.float32


def test_largest_float32_passes_limited_so_that_its_square_is_finite():
    assert checked_contexts([3.4028235e38], (1,))[0] == np.float32(HUGE)
    assert checked_contexts([1e18], (1,))[0] == np.float32(1e18)
