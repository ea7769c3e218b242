"""What is measured is always noted, and held to its limit only where times are measured."""

import pytest

from tests.support.measuring import Measured, percentile


@pytest.mark.parametrize("is_held", [True, False])
def test_a_value_within_its_limit_is_noted(*, is_held: bool):
    lines: list[str] = []
    Measured("test_x", lines, is_held=is_held).at_most("seconds", 1.0, 1.0)
    assert lines == ["test_x: seconds 1, limit 1"]


def test_a_value_beyond_its_limit_fails_where_times_are_measured():
    lines: list[str] = []
    Measured("test_x", lines, is_held=False).at_most("seconds", 1.5, 1.0)
    with pytest.raises(AssertionError, match=r"seconds 1\.5, limit 1"):
        Measured("test_x", lines, is_held=True).at_most("seconds", 1.5, 1.0)
    assert len(lines) == 2


def test_a_percentile_is_one_of_the_values():
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0
    assert percentile([3.0, 1.0, 2.0], 99) == 3.0
