"""Drawings of the console: lines and points stay in their frame."""

import re

import pytest

from service.console.drawing import HEIGHT, MOST_GROUPS, SIZE, WIDTH, scatter, sparkline


def numbers(path: str) -> list[float]:
    return [float(each) for each in re.findall(r"-?\d+\.\d+", path)]


@pytest.mark.parametrize("values", [[], [0.5]])
def test_a_line_needs_two_points(values: list[float]):
    assert sparkline(values) == ""


def test_a_line_goes_from_edge_to_edge_and_up_with_its_values():
    found = numbers(sparkline([10.0, 15.0, 20.0], 10.0, 20.0))
    assert found[::2] == [0.0, WIDTH / 2, WIDTH]
    assert found[1::2] == [HEIGHT - 2, HEIGHT / 2, 2.0]


def test_points_stay_in_their_frame_at_one_scale():
    points = [{"x": 0.0, "y": 0.0, "arm": "a"}, {"x": 10.0, "y": 5.0, "arm": "b"}]
    first, second = (numbers(group.path) for group in scatter(points, "arm"))
    assert all(0 < each < SIZE for each in first + second)
    assert second[0] - first[0] == pytest.approx(2 * (first[1] - second[1]))


def test_small_groups_share_a_colour():
    points = [{"x": 0.0, "y": 0.0, "arm": str(number)} for number in range(20)]
    groups = scatter([*points, points[7]], "arm")
    assert [group.number for group in groups] == list(range(1, MOST_GROUPS + 1))
    assert (groups[0].name, groups[-1].name) == ("7", "all others")
    assert sum(group.path.count("M") for group in groups) == 21
    assert scatter([], "arm") == []
