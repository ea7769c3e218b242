"""Candidates by name, the pass over a log, and its reports."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from model.config import ContextKind
from model.learner import Learner
from model.ope.candidates import UniformCandidate
from model.ope.estimates import EvaluationOptions
from model.rounds import Domain
from model.state.export import exported
from model.state.snapshot import to_bytes
from service.errors import InvalidRequest
from service.evaluating.candidates import (
    CandidateMaker,
    CandidateSpec,
    Made,
    UnfitCandidateError,
    changed_values,
    fresh_learner,
    parsed,
)
from service.evaluating.evaluation import CURVE_POINTS, Curve, Evaluation
from service.evaluating.file_log import FileOptions, evaluate_file
from service.evaluating.presenting import plots
from service.evaluating.presenting.figures import against_log
from service.evaluating.presenting.html_report import ESTIMATORS, page
from service.evaluating.presenting.table_report import print_result
from service.evaluating.target_sample import TargetSample
from service.formats.records import LogFormatError, LogHeader
from service.pages.lights import Light
from service.pages.plot_style import plot_style
from service.records import RewardRange
from tests.support.builders import small_config
from tests.support.evaluations import linear_spec
from tests.support.ope import logged_rounds

NOW = datetime(2026, 11, 18, 9, 30, tzinfo=UTC)
DATA = Path(__file__).parents[2] / "data"
HEADER = LogHeader(arms=("low", "mid", "high"), context_kind=ContextKind.SHARED, context_shape=(4,))


def maker(header: LogHeader = HEADER) -> CandidateMaker:
    return CandidateMaker(header, Domain.SOURCE, None, {})


@pytest.mark.parametrize(
    "text",
    ["uniform", "arm:low", "arm:a,b", "version:12", "system:nlinucb,alpha=0.2", "file:a.json"],
)
def test_a_candidate_is_named_as_it_was_given(text: str):
    assert parsed(text).name == text


@pytest.mark.parametrize(
    "text", ["", "nothing", "arm:", "version:x", "version:", "system:", "uniform:1"]
)
def test_what_is_no_candidate_is_refused(text: str):
    with pytest.raises(UnfitCandidateError):
        parsed(text)


def test_changes_are_values():
    found = changed_values(["alpha=0.2", "method=nlinucb", "hidden_sizes=[8]"])
    assert found == {"alpha": 0.2, "method": "nlinucb", "hidden_sizes": [8]}
    with pytest.raises(UnfitCandidateError, match="name=value"):
        changed_values(["alpha"])


def test_a_fresh_learner_has_the_experiments_choices_but_for_the_changes():
    spec = linear_spec("lab")
    learner = fresh_learner(HEADER, spec, "nlinucb", {"alpha": 0.7})
    assert (learner.config.alpha, learner.config.epsilon, learner.seed) == (0.7, 0.3, 3)
    assert learner.config.encoder == "auto"
    with pytest.raises(InvalidRequest):
        fresh_learner(HEADER, spec, "nlinucb", {"alpha": -1})


def test_a_snapshot_file_must_fit_the_log(tmp_path: Path):
    path = tmp_path / "policy.daband"
    snapshot = to_bytes(Learner(small_config(), 1), 1, with_contexts=False)
    for content in (snapshot, exported(snapshot, {})):
        path.write_bytes(content)
        made = maker().make(CandidateSpec(kind="file", path=str(path)))
        assert made.policy is not None
        assert made.trained_offset is None
    path.write_bytes(to_bytes(Learner(small_config(arm_count=2), 1), 1, with_contexts=False))
    for content in (path.read_bytes(), b"nothing"):
        path.write_bytes(content)
        with pytest.raises(UnfitCandidateError, match="policy: "):
            maker().make(CandidateSpec(kind="file", path=str(path)))
    with pytest.raises(UnfitCandidateError, match="No such file"):
        maker().make(CandidateSpec(kind="file", path=str(tmp_path / "none.daband")))


@pytest.mark.parametrize(
    "rows",
    [
        {"*": {"low": 0.5}},
        {"*": {"low": 0.5, "nobody": 0.5}},
        {"*": {"low": 1.5, "mid": -0.5}},
        {"*": 1},
    ],
)
def test_a_policy_table_must_be_one(tmp_path: Path, rows: Any):
    path = tmp_path / "policy.json"
    path.write_text(json.dumps({"format": "daband-policy-table", "rows": rows}))
    with pytest.raises(UnfitCandidateError):
        maker().make(CandidateSpec(kind="file", path=str(path)))


def test_a_policy_table_is_evaluated_by_segment(tmp_path: Path):
    path = tmp_path / "policy.json"
    rows = {str(place): {"4": 0.5, str(place): 0.5} for place in (1, 2, 3)}
    path.write_text(json.dumps({"format": "daband-policy-table", "rows": rows}))
    wanted = [CandidateSpec(kind="file", path=str(path))]
    result = evaluate_file(
        DATA / "open_bandit.csv", wanted, EvaluationOptions(max_weight=5.0), FileOptions()
    )
    lines = [line.split(",") for line in (DATA / "open_bandit.csv").read_text().splitlines()[1:]]
    worth = [
        (0.5 if cells[2] in ("4", cells[3]) else 0.0) / float(cells[5]) * float(cells[4])
        for cells in lines
    ]
    found = result["candidates"][0]["estimates"]["ips"]["value"]
    assert found == pytest.approx(np.mean(worth), abs=1e-12)
    assert result["candidates"][0]["support"]["is_uniform_log"]


def test_a_file_knows_no_versions():
    with pytest.raises(UnfitCandidateError, match="experiment"):
        evaluate_file(
            DATA / "open_bandit.csv",
            [CandidateSpec(kind="version", version=1)],
            EvaluationOptions(),
            FileOptions(),
        )


def test_bad_lines_of_a_file_are_counted_or_stop_it(tmp_path: Path, capsys: Any):
    path = tmp_path / "log.csv"
    lines = (DATA / "open_bandit.csv").read_text().splitlines()
    lines[7] = lines[7].replace(",0.2,", ",7,")
    path.write_text("\n".join(lines))
    wanted = [CandidateSpec(kind="uniform")]
    with pytest.raises(LogFormatError, match="line 8: propensity"):
        evaluate_file(path, wanted, EvaluationOptions(), FileOptions())
    result = evaluate_file(path, wanted, EvaluationOptions(), FileOptions(skip_bad=True))
    assert (result["rounds"], result["bad_lines"]) == (299, 1)
    assert result["first_bad_lines"][0]["line"] == 8
    print_result(result)
    assert "line 8: propensity" in capsys.readouterr().out
    assert "1 bad lines" in page(result, NOW)


def evaluated(count: int, batches: int = 1, **options: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    made = {name: Made(UniformCandidate()) for name in ("one", "<two>")}
    evaluation = Evaluation(HEADER, made, EvaluationOptions(**options))
    for _ in range(batches):
        rounds = logged_rounds(
            rng.integers(3, size=count),
            rng.random(count),
            np.full((count, 3), 1 / 3),
            rng.standard_normal((count, 4)).astype(np.float32),
        )
        evaluation.add(rounds)
    return evaluation.result()


def test_a_result_is_json_and_a_page(capsys: Any):
    result = evaluated(200, 3)
    assert json.loads(json.dumps(result)) == json.loads(json.dumps(result, allow_nan=False))
    shown = page(result, NOW)
    assert "&lt;two&gt;" in shown
    assert "<two>" not in shown
    assert len(re.findall(r'<figure id="plot-growth-\d">', shown)) == 2
    assert "Made on 2026-11-18 09:30 UTC from 600 rounds" in shown
    print_result(result)
    assert "600 rounds" in capsys.readouterr().out


@pytest.mark.parametrize("count", [0, 1, 10])
def test_small_logs_have_reports_too(count: int):
    result = evaluated(count)
    assert result["rounds"] == count
    assert "Offline evaluation" in page(result, NOW)


def candidate(low: float, high: float, **changes: Any) -> dict[str, Any]:
    ends = [low, high]
    estimate = {"value": sum(ends) / 2, "interval": ends, "standard_error": 0.1, "method": None}
    return {
        "name": "one",
        "value": sum(ends) / 2,
        "warnings": (),
        "estimates": dict.fromkeys(ESTIMATORS, estimate),
        "bootstrap": None,
        "sequence": ends,
        "target": None,
        "support": {"effective_rounds": 40.0, "overlap": 1.0, "max_weight": 2.0},
        "curve": [[64, 1.7, 0.0, 1.0], [128, None, low, high]],
        **changes,
    }


LOGGED = {"value": 0.5, "interval": [0.45, 0.55]}


@pytest.mark.parametrize(
    ("found", "light", "text"),
    [
        (candidate(0.6, 0.7), Light.GOOD, "more than"),
        (candidate(0.6, 0.7, warnings=("few rounds",)), Light.CAUTION, "warning"),
        (candidate(0.5, 0.7), Light.CAUTION, "not clearly"),
        (candidate(0.1, 0.2), Light.BAD, "less than"),
        (candidate(0, 1, estimates={"dr": {"interval": None}}), Light.UNKNOWN, "cannot"),
    ],
)
def test_a_candidate_is_compared_with_the_log(found: dict[str, Any], light: Light, text: str):
    assert against_log(found, LOGGED)[0] is light
    assert text in against_log(found, LOGGED)[1]


def test_a_page_and_a_terminal_show_rewards_in_their_unit(capsys: Any):
    facts = {"domain": "source", "rounds": 9, "confidence": 0.95, "reward_range": [-50.0, 150.0]}
    result = {**facts, "logged": LOGGED, "candidates": [candidate(0.6, 0.7)]}
    shown = page(result, NOW)
    print_result(result)
    for text in (shown, capsys.readouterr().out):
        assert "80.00" in text  # the value 0.65
        assert "[70.00," in text
        assert "0.65" not in text
    assert ">20.00</td>" in shown  # the standard error 0.1
    assert "rewards lie between -50 and 150" in shown


def test_curves_stay_inside_of_their_frames():
    with plot_style():
        axes = Figure().subplots()
        plots.growth(candidate(0.6, 0.7), 0, 0.5, RewardRange(0.0, 1.0))(axes)
    low, high = axes.get_ylim()
    drawn = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in axes.lines])
    assert np.nanmin(drawn) >= low
    assert np.nanmax(drawn) <= high


def test_ticks_are_round_and_every_candidate_has_its_row():
    found = [candidate(0.142, 0.342), candidate(0.2, 0.9)]
    with plot_style():
        axes = Figure().subplots()
        plots.intervals(found, LOGGED)(axes)
    assert all(abs(tick - round(tick, 1)) < 1e-9 for tick in axes.get_xticks())
    heights = [line.get_ydata()[0] for line in axes.lines if len(line.get_ydata()) == 2]  # type: ignore[index, arg-type]
    assert heights[:2] == [0, -1]


def test_curves_stay_short():
    curve = Curve()
    for number in range(10_000):
        curve.add((number, 0.5, 0.0, 1.0))
    assert CURVE_POINTS / 3 < len(curve.points) < CURVE_POINTS
    assert curve.points == sorted(curve.points)


@pytest.mark.parametrize(
    ("blob", "made", "is_per_arm", "reason"),
    [
        (b"x", Made(UniformCandidate(), domain_free=True), True, "one context"),
        (b"x", Made(UniformCandidate()), False, "no fixed target policy"),
        (None, Made(UniformCandidate(), domain_free=True), False, "no snapshot"),
        (b"x", Made(UniformCandidate(), domain_free=True), False, "at least"),
    ],
)
def test_a_target_value_needs_much(blob: bytes | None, made: Made, is_per_arm: bool, reason: str):
    found = TargetSample(blob, is_per_arm).value(made, EvaluationOptions())
    assert (found["is_identifiable"], found["value"]) == (False, None)
    assert reason in found["reason"]
