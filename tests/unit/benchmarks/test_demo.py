"""The laboratory keeps the score and draws it."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import demo as in_process
from daband_client.answers import State, TargetDecision, TargetRegret, Transfer
from model.rounds import Domain
from model.simulate import ClusterWorld
from service.cli.demo import Play, baselines, comparison, expected_reward, figure, sparkline, table

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
    assert (len(rounds), rounds[-1], shares[0], shares[-1]) == (16, 100, 0.0, 1.0)


def test_a_short_play_has_a_short_curve():
    assert Play("demo", {domain: [True] for domain in Domain}).curve(Domain.TARGET) == ([1], [1.0])


def test_a_sparkline_rises_with_its_values():
    assert sparkline([-1, 0, 0.5, 1, 2]) == "▁▁▅██"


def test_the_table_and_the_picture_show_both_domains(played: Play):
    console = Console(file=io.StringIO(), width=120)
    console.print(table(played, STATE))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(text in shown for text in ("source", "target", "policy 12", "encoder 3", "1.000"))
    values = {"daband": 0.9, "ridge regression for each arm": 0.7, "arm-1 for all": 0.2}
    (axes,) = figure(played, values).axes
    assert len(axes.lines) == 4  # two domains and two baselines


def test_the_answer_is_an_arm_and_its_reward_beside_the_baselines():
    console = Console(file=io.StringIO(), width=120)
    first = TargetDecision("arm-2", {}, 0.87, 0.1, 0.51, False)
    transfer = Transfer("demo", "zero_shot", 3, None, [], [], TargetRegret(0, None, 0.0, []))
    console.print(comparison({"daband": 0.944, "one arm for all": 0.206}, first, transfer))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    for text in ("0.944", "0.206", "context gets arm-2", "0.87", "0.51", "not judged"):
        assert text in shown


def test_the_baselines_learn_from_the_rounds_that_were_played():
    world = ClusterWorld(seed=1, arm_count=3, size=8, shift=0.0)
    source, test = world.draw(Domain.SOURCE, 300, "demo"), world.draw(Domain.TARGET, 200, "asked")
    arms = [number % 3 for number in range(300)]
    rewards = [float(source.expected[number, arm]) for number, arm in enumerate(arms)]
    ridge, one = baselines(Play("demo", arms=arms, rewards=rewards), source, test).values()
    assert len(set(one)) == 1
    assert expected_reward(test, ridge) > expected_reward(test, one) + 0.2
    assert expected_reward(test, test.best_arms.tolist()) == 1.0


def test_the_demo_in_one_process_ends_in_an_answer_beside_nlinucb(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    plot = tmp_path / "demo.png"
    in_process.main(["--rounds", "4", "--plot", str(plot)])
    shown = capsys.readouterr().out
    assert all(text in shown for text in ("nlinucb", "context arm ", "predicted reward "))
    assert plot.read_bytes().startswith(b"\x89PNG")
