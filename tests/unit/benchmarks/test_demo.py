"""The laboratory keeps the score and draws it."""

import io

import pytest
from rich.console import Console

from daband_client.answers import State
from model.rounds import Domain
from service.cli.demo import Play, figure, sparkline, table

STATE = State(
    experiment="demo",
    phase="zero_shot",
    status="active",
    counts={},
    policy_version=12,
    encoder_version=3,
    state_hash=None,
    head_offset=0,
    folded_offset=0,
    lag=0,
    snapshot_at=None,
)


@pytest.fixture
def played() -> Play:
    """A hundred rounds that get better."""
    hits = [number % 100 < number for number in range(0, 200, 2)]
    return Play("demo", dict.fromkeys(Domain, hits))


def test_a_curve_is_the_share_of_best_decisions_over_the_rounds(played: Play):
    rounds, shares = played.curve(Domain.SOURCE)
    assert (len(rounds), rounds[-1], shares[0], shares[-1]) == (32, 100, 0.0, 1.0)


def test_a_short_play_has_a_short_curve():
    assert Play("demo", {domain: [True] for domain in Domain}).curve(Domain.TARGET) == ([1], [1.0])


def test_a_sparkline_rises_with_its_values():
    assert sparkline([-1, 0, 0.5, 1, 2]) == "▁▁▅██"


def test_the_table_and_the_picture_show_both_domains(played: Play):
    console = Console(file=io.StringIO(), width=120)
    console.print(table(played, STATE))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(text in shown for text in ("source", "target", "policy 12", "encoder 3", "1.000"))
    (axes,) = figure(played).axes
    assert len(axes.lines) == 2
