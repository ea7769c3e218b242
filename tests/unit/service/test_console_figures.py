"""What the console says of an experiment, in the unit of its rewards."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from service.console.curves import curve, expected_curve, target_regret_curve
from service.console.figures import Facts, arm_rows, joined, outcomes, tiles
from service.experiment_spec import ExperimentSpec
from service.pages.lights import Light
from service.records import Experiment, Phase, Status
from tests.support.api import DOSES

NOW = datetime(2026, 11, 18, tzinfo=UTC)
EXPERIMENT = Experiment("e", "doses", "{}", Phase.ZERO_SHOT, Status.ACTIVE, 40, 2, 1, NOW)
GATE = [
    {
        "offset": 20,
        "at": NOW,
        "what": "encoder_refused",
        "details": {
            "episode": 3,
            "verdict": {"reasons": ["worse"], "reward": 0.25, "reward_before": 0.5},
        },
    },
    {"offset": 30, "at": NOW, "what": "version_restored", "details": {"version": 7, "by": "Ada"}},
]
COUNTS = {"source_rewards": 20, "target_contexts": 9}


def facts(**transfer: Any) -> Facts:
    """Facts of an experiment whose rewards go from 0 to 120."""
    training = {"status": "idle", "running": None, "due_updates": 0}
    state = {"counts": COUNTS, "policy_version": 4, "encoder_version": 2, "lag": 0}
    points = [
        {"after": 0, "offset": 20, "rewards": 5, "mean": 0.25, "regret": 0.75},
        {"after": 20, "offset": 40, "rewards": 15, "mean": 0.75, "regret": 0.25},
    ]
    arms = [
        {"arm": "low", "decisions": 15, "rewards": 10, "mean": 0.5},
        {"arm": "mid", "decisions": 5, "rewards": 0, "mean": None},
    ]
    return Facts(
        EXPERIMENT,
        ExperimentSpec.from_json("doses", json.dumps({**DOSES, "reward_range": [0, 120]})),
        {**state, "training": training},
        {"verdict": None, "expected": None, "versions": [], "gate": GATE, **transfer},
        {"points": points, "arms": arms, "best_reward": 1.0},
    )


def test_before_a_judgement_nothing_is_expected():
    found = facts()
    assert found.expected is None
    tile = tiles(found)[0]
    assert (tile.title, tile.value) == ("Expected in the target", "–")


def test_the_expected_value_is_in_the_unit_with_its_lower_bound_and_a_light():
    found = facts(expected={"reward": 0.5, "lower": 0.25})
    assert found.expected == {"reward": 60.0, "lower": 30.0}
    tile = tiles(found)[0]
    assert (tile.title, tile.value) == ("Expected in the target", "60")
    assert (tile.meaning, tile.light) == (
        "At least 30. Estimated without target rewards.",
        Light.CAUTION,
    )


def test_the_curve_and_the_present_reward_are_in_the_unit():
    found = facts()
    data = json.loads(curve(found))
    assert [each["values"] for each in data["lines"]] == [[30.0, 90.0], [90.0, 30.0]]
    assert (data["low"], data["high"]) == (0, 120)
    assert data["marks"] == [{"offset": 20, "kind": "bad"}, {"offset": 30, "kind": "caution"}]
    assert found.present_reward == pytest.approx(75.0)


def test_the_expected_reward_is_drawn_over_encoders_with_its_bound():
    judged: list[dict[str, Any]] = [
        {"offset": 20, "expected": None},  # by an earlier build
        {"offset": 30, "expected": {"reward": 0.5, "lower": 0.25}},
        {"offset": 40, "expected": {"reward": 0.75, "lower": 0.5}},
    ]
    newest = judged[-1]["expected"]
    data = json.loads(expected_curve(facts(versions=judged, expected=newest)) or "")
    assert data["places"] == [30, 40]
    assert [each["values"] for each in data["lines"]] == [[60.0, 90.0], [30.0, 60.0]]
    assert [each["dashed"] for each in data["lines"]] == [False, True]
    assert expected_curve(facts(versions=judged[:2], expected=newest)) is None


def test_the_targets_regret_is_drawn_once_it_has_rewards():
    assert target_regret_curve(facts(target_regret={"curve": []})) is None
    data = json.loads(target_regret_curve(facts(target_regret={"curve": [[1, 0.5], [2, 0.75]]})) or "")  # fmt: skip
    assert (data["places"], data["lines"][0]["values"]) == ([1, 2], [60.0, 90.0])
    assert (data["low"], data["high"]) == (0.0, 90.0)


def test_arms_have_their_share_of_the_decisions():
    assert [(each["name"], each["share"], each["mean"]) for each in arm_rows(facts())] == [
        ("low", 0.75, "60"),
        ("mid", 0.25, "–"),
    ]


def test_the_newest_outcome_comes_first_and_kept_candidates_may_be_promoted():
    restored, refused = outcomes(facts(), [3])
    assert (restored["what"], restored["number"]) == ("version restored by Ada", "version 7")
    assert (refused["light"], refused["before"], refused["after"]) == (Light.BAD, "60", "30")
    assert (refused["why"], refused["can_promote"]) == ("worse", 3)
    assert restored["can_promote"] is None
    assert outcomes(facts(), [])[1]["can_promote"] is None


def test_points_of_few_rewards_are_joined_without_losing_any():
    points = [
        {
            "after": 10 * place,
            "offset": 10 * place + 10,
            "rewards": count,
            "mean": mean,
            "regret": None,
        }
        for place, (count, mean) in enumerate([(1, 1.0), (4, 0.5), (9, 0.25), (2, 1.0)])
    ]
    found = joined(points)
    assert [(each["after"], each["offset"], each["rewards"]) for each in found] == [
        (0, 20, 5),
        (20, 40, 11),
    ]
    assert sum(each["rewards"] * each["mean"] for each in found) == pytest.approx(7.25)
    assert joined(points[:1]) == points[:1]
    assert joined([]) == []
