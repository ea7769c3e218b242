"""Levels that are ranges of numbers."""

import pytest

from service.columns.ranges import ordered_ranges

ORDERED: list[tuple[str, ...]] = [
    ("10 - 19", "20 - 29", "90+"),
    ("<5", "5–9", "10 to 19", ">=20"),
    ("0", "1-2", "3+"),
    ("1,5-2,5", "2.5 - 3.5"),
    ("-10 - -5", "-5 - 0", "0 - 5"),
    ("1.7-2.8", "2-3", "2-3.5"),
    ("≤ 1", "> 1"),
]


@pytest.mark.parametrize("levels", ORDERED)
def test_ranges_are_ordered_by_their_bounds(levels: tuple[str, ...]):
    assert ordered_ranges(levels[::-1]) == levels


UNORDERED: list[tuple[str, ...]] = [
    ("A", "B"),
    ("10 - 19", "unknown"),
    ("1", "2", "3"),
    ("2020-01", "2020-02"),
    ("10 - 19",),
    ("10 - 19", "10-19"),
    ("3; 8", "3"),
    ("*1/*2", "*1/*1"),
    (),
]


@pytest.mark.parametrize("levels", UNORDERED)
def test_other_levels_have_no_order(levels: tuple[str, ...]):
    assert ordered_ranges(levels) is None
