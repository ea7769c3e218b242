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


@pytest.mark.parametrize(("chosen", "name"), [("quiet", "test_speed"), ("not quiet", "test_sum")])
def test_tests_that_measure_are_chosen_by_their_mark(
    pytester: pytest.Pytester, chosen: str, name: str
):
    pytester.makeini("[pytest]\nmarkers = quiet\nasyncio_default_fixture_loop_scope = function")
    pytester.makepyfile("def test_speed(measured): pass\ndef test_sum(): pass")
    result = pytester.runpytest_inprocess("-p", "tests.support.measuring", "-m", chosen, "-v")
    result.assert_outcomes(passed=1, deselected=1)
    result.stdout.fnmatch_lines(f"*::{name} PASSED*")
