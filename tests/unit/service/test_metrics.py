"""Metrics have bounded labels, and one meaning over several processes."""

import fcntl
import inspect
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.multiprocess import mark_process_dead
from prometheus_client.parser import text_string_to_metric_families

from model.transfer.diagnostics import TransferReport
from model.transfer.report import Judgement
from model.transfer.verdict import Signs, TransferVerdict, Word
from service.metrics import Metrics
from service.metrics.experiment_labels import FILE_NAME, MAX_EXPERIMENTS, OTHER, ExperimentLabels

MANY = 10_000
# Every one of these takes its values from a closed set.
LABELS = {
    *("route", "method", "status", "slug", "task", "kind", "operation"),
    *("experiment", "domain", "outcome", "verdict", "term", "sign", "figure"),
}
CREATED = datetime(2026, 1, 1, tzinfo=UTC)
JUDGED = Judgement(
    encoder_version=1,
    report=TransferReport(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    signs=Signs(0.6, 0.61, 0.62, 0.63, 1.0, 8, 0, 64, 64),
    verdict=TransferVerdict(Word.WEAK, ()),
    conditions=(),
    abstention=(),
)
# What is recorded of an experiment, by the method that records it.
RECORDED: dict[str, Callable[[Metrics, str], None]] = {
    "count_decisions": lambda metrics, name: metrics.count_decisions(name, "source", 1, 0.5),
    "count_lost_decisions": lambda metrics, name: metrics.count_lost_decisions(name, 4),
    "count_reward": lambda metrics, name: metrics.count_reward(name, "target", 1.0),
    "count_refused_target_reward": lambda metrics, name: metrics.count_refused_target_reward(name),
    "count_target_selections": lambda metrics, name: metrics.count_target_selections(name, 3, 1),
    "count_target_contexts": lambda metrics, name: metrics.count_target_contexts(name, 2),
    "set_policy": lambda metrics, name: metrics.set_policy(name, 12, CREATED),
    "set_policy_lag": lambda metrics, name: metrics.set_policy_lag(name, 3),
    "begin_leading": lambda metrics, name: metrics.begin_leading(name),
    "set_lag": lambda metrics, name: metrics.set_lag(name, 5),
    "set_due_updates": lambda metrics, name: metrics.set_due_updates(name, 36),
    "set_blocked": lambda metrics, name: metrics.set_blocked(name, is_blocked=True),
    "observe_snapshot": lambda metrics, name: metrics.observe_snapshot(name, 1000, 7.5),
    "observe_episode": lambda metrics, name: metrics.observe_episode(
        name, 2.0, {"reward": 0.25, "divergence": 0.7}, is_accepted=False
    ),
    "set_transfer": lambda metrics, name: metrics.set_transfer(name, JUDGED),
}
EXPECTED = """
daband_decisions_total{domain="source",experiment="doses"} 1.0
daband_decisions_total{domain="target",experiment="doses"} 0.0
daband_selection_entropy_nats_total{domain="source",experiment="doses"} 0.5
daband_decisions_lost_total{experiment="doses"} 4.0
daband_rewards_total{domain="target",experiment="doses"} 1.0
daband_reward_points_total{domain="target",experiment="doses"} 1.0
daband_target_rewards_refused_total{experiment="doses"} 1.0
daband_target_selections_total{experiment="doses",outcome="answered"} 2.0
daband_target_selections_total{experiment="doses",outcome="abstained"} 1.0
daband_target_contexts_total{experiment="doses"} 2.0
daband_policy_version{experiment="doses"} 12.0
daband_policy_created_timestamp_seconds{experiment="doses"} 1.7672256e+09
daband_policy_lag_events{experiment="doses"} 3.0
daband_trainer_lag_events{experiment="doses"} 5.0
daband_due_updates{experiment="doses"} 36.0
daband_trainer_blocked{experiment="doses"} 1.0
daband_snapshot_bytes{experiment="doses"} 1000.0
daband_condition_number{experiment="doses"} 7.5
daband_episode_seconds_count{experiment="doses"} 1.0
daband_loss{experiment="doses",term="divergence"} 0.7
daband_gate_verdicts_total{experiment="doses",verdict="accepted"} 0.0
daband_gate_verdicts_total{experiment="doses",verdict="refused"} 1.0
daband_domain_accuracy{experiment="doses"} 0.6
daband_diagnostic_term{experiment="doses",term="divergence"} 0.3
daband_diagnostic_term{experiment="doses",term="source_regret"} 0.1
daband_transfer_sign{experiment="doses",sign="source_skill"} 0.63
daband_expected_target_reward{experiment="doses",figure="reward"} 0.6
daband_expected_target_reward{experiment="doses",figure="lower"} 0.35
daband_transfer_verdict{experiment="doses",verdict="weak"} 1.0
daband_transfer_verdict{experiment="doses",verdict="aligned"} 0.0
"""
WORKER = """
import sys
from service.metrics import Metrics
metrics = Metrics()
metrics.count_start()
metrics.requests_in_flight.inc()
for name in sys.argv[2:]:
    metrics.count_decisions(name, "source", 1, 0.5)
metrics.set_policy_lag("e0", int(sys.argv[1]))
print(metrics.exposition().decode())
"""


def families(metrics: Metrics) -> list[Metric]:
    return list(text_string_to_metric_families(metrics.exposition().decode()))


def series(metrics: Metrics) -> int:
    return sum(len(family.samples) for family in families(metrics))


def test_what_is_recorded_of_an_experiment_is_shown():
    metrics = Metrics()
    for record in RECORDED.values():
        record(metrics, "doses")
    lines = metrics.exposition().decode().splitlines()
    assert set(EXPECTED.split("\n")) - {""} <= set(lines)


def test_every_recording_method_is_tried_here():
    methods = inspect.getmembers(Metrics, inspect.isfunction)
    takers = {n for n, f in methods if "experiment" in inspect.signature(f).parameters}
    assert {name for name in takers if not name.startswith("_")} == set(RECORDED)


def test_ten_thousand_experiments_leave_the_number_of_series_bounded():
    metrics = Metrics()
    sizes = []
    for number in range(MANY):
        for record in RECORDED.values():
            record(metrics, f"experiment-{number}")
        if number in (MAX_EXPERIMENTS, MANY - 1):
            sizes.append(series(metrics))
    assert sizes[0] == sizes[1]
    labels = {s.labels.get("experiment") for f in families(metrics) for s in f.samples}
    assert len(labels - {None}) == MAX_EXPERIMENTS + 1


def test_experiments_beyond_the_cap_are_counted_together_and_have_no_gauges():
    metrics = Metrics()
    for number in range(MAX_EXPERIMENTS + 10):
        for record in RECORDED.values():
            record(metrics, f"e{number}")
    text = metrics.exposition().decode()
    assert 'daband_decisions_total{domain="source",experiment="other"} 10.0' in text
    assert 'daband_policy_version{experiment="e49"} 12.0' in text
    assert 'daband_policy_version{experiment="other"}' not in text


def test_labels_are_of_closed_sets():
    metrics = Metrics()
    for record in RECORDED.values():
        record(metrics, "doses")
    metrics.observe_request("/select", "POST", 200, 0.1)
    metrics.expect_problems(["overloaded"])
    metrics.expect_task("trainer")
    seen = {label for f in families(metrics) for s in f.samples for label in s.labels}
    assert seen - {"le"} == LABELS


def test_requests_are_kept_by_class_of_status():
    metrics = Metrics()
    for status in (200, 201, 503, None):
        metrics.observe_request("/select", "POST", status, 0.1)
    text = metrics.exposition().decode()
    for kept, count in (("2xx", 2), ("5xx", 1), ("gone", 1)):
        labels = f'{{method="POST",route="/select",status="{kept}"}}'
        assert f"daband_request_seconds_count{labels} {count}.0" in text


def test_queues_and_batches_are_distributions():
    metrics = Metrics()
    metrics.observe_scoring([2, 5])
    metrics.observe_append(4, 9, 0.01)
    text = metrics.exposition().decode()
    for line in (
        "daband_scorer_queue_depth_sum 7.0",
        "daband_scorer_batch_size_sum 7.0",
        "daband_scorer_batch_size_count 2.0",
        "daband_append_events_sum 4.0",
        "daband_append_queue_depth_sum 9.0",
        "daband_append_seconds_count 1.0",
    ):
        assert line in text


def test_unwritten_decisions_are_those_of_the_last_report():
    metrics = Metrics()
    for count in (3, 512, 7):
        metrics.unwritten_decisions.set(count)
    assert "daband_unwritten_decisions 7.0" in metrics.exposition().decode()


def test_failures_begin_at_zero():
    text = Metrics().exposition().decode()
    assert 'daband_storage_errors_total{kind="timeout"} 0.0' in text
    assert 'daband_bus_failures_total{operation="publish"} 0.0' in text


def test_an_experiment_that_is_led_fails_only_if_it_is_said_to():
    metrics = Metrics()
    metrics.set_failing(["bad"])
    for name in ("good", "bad"):
        metrics.begin_leading(name)
    lines = metrics.exposition().decode().splitlines()
    assert 'daband_learning_failing{experiment="good"} 0.0' in lines
    assert 'daband_learning_failing{experiment="bad"} 1.0' in lines


def test_a_diverged_training_shows_no_number():
    metrics = Metrics()
    metrics.observe_episode("doses", 1.0, {"reward": math.nan}, is_accepted=False)
    assert 'daband_loss{experiment="doses",term="reward"} NaN' in metrics.exposition().decode()


def test_two_apps_in_a_process_do_not_share_numbers():
    first, second = Metrics(), Metrics()
    first.count_reward("doses", "source", 1.0)
    assert 'daband_rewards_total{domain="source"' not in second.exposition().decode()


def test_all_figures_of_a_judgement_are_shown():
    metrics = Metrics()
    metrics.set_transfer("doses", JUDGED)
    shown = {
        sample.labels.get("term") or sample.labels.get("sign")
        for family in families(metrics)
        for sample in family.samples
    }
    not_signs = {"held_out_rounds", "target_contexts", "domain_accuracy", "expected_reward"}
    figures = asdict(JUDGED.signs) | asdict(JUDGED.report)
    assert shown - {None} == set(figures) - not_signs


@pytest.fixture
def shared(tmp_path: Path) -> Callable[..., str]:
    """Counts experiments in a separate process, which ends at once."""
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}

    def run(*arguments: Any) -> str:
        command = [sys.executable, "-c", WORKER, *map(str, arguments)]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        ).stdout

    return run


def test_processes_share_their_numbers_and_the_dead_are_forgotten(
    shared: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    shared(7, "e0", "e1")
    received = shared(3, "e0")
    for line in (
        'daband_decisions_total{domain="source",experiment="e0"} 2.0',
        'daband_decisions_total{domain="source",experiment="e1"} 1.0',
        'daband_policy_lag_events{experiment="e0"} 7.0',
        "daband_requests_in_flight 2.0",
        "daband_processes 2.0",
        "daband_process_starts_total 2.0",
    ):
        assert line in received
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    for path in tmp_path.glob("gauge_livesum_*.db"):
        mark_process_dead(int(path.stem.rpartition("_")[2]))
    received = shared(1, "e1")
    assert 'daband_decisions_total{domain="source",experiment="e1"} 2.0' in received
    assert 'daband_policy_lag_events{experiment="e0"} 1.0' in received
    assert "daband_requests_in_flight 1.0" in received
    assert "daband_process_starts_total 3.0" in received


def test_processes_name_the_same_experiments(shared: Callable[..., str]):
    shared(0, *(f"e{number}" for number in range(MAX_EXPERIMENTS)))
    received = shared(0, *(f"f{number}" for number in range(MAX_EXPERIMENTS)), "e3")
    assert (
        f'daband_decisions_total{{domain="source",experiment="other"}} {MAX_EXPERIMENTS}.0'
        in received
    )
    assert 'daband_decisions_total{domain="source",experiment="e3"} 2.0' in received
    assert "f0" not in received


def test_processes_claim_names_one_after_the_other(tmp_path: Path):
    claimed: list[str] = []
    claiming = Thread(target=lambda: claimed.append(ExperimentLabels(tmp_path).of("late")))
    with (tmp_path / FILE_NAME).open("a") as claims:
        fcntl.flock(claims, fcntl.LOCK_EX)
        claiming.start()
        claiming.join(0.2)  # it has the time to do wrong
        claims.writelines(json.dumps(f"e{number}") + "\n" for number in range(MAX_EXPERIMENTS))
    claiming.join()
    assert claimed == [OTHER]
