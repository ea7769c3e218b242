"""Metrics have bounded labels."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from service.metrics import MAX_EXPERIMENTS, Metrics, forget_dead_processes

WORKER = """
from service.metrics import Metrics
metrics = Metrics()
metrics.count_decision("doses", "source")
metrics.requests_in_flight.inc()
print(metrics.exposition().decode())
"""


def test_experiments_beyond_the_cap_share_a_label():
    metrics = Metrics()
    names = [f"e{number}" for number in range(MAX_EXPERIMENTS + 10)]
    labels = {metrics.experiment(name) for name in names}
    assert len(labels) == MAX_EXPERIMENTS + 1
    assert metrics.experiment("e0") == "e0"
    assert metrics.experiment("e59") == "other"


def test_what_the_trainer_tells_is_shown():
    metrics = Metrics()
    metrics.set_policy("doses", 12, datetime(2026, 1, 1, tzinfo=UTC))
    metrics.set_lag("doses", 5)
    metrics.observe_episode("doses", 2.0, is_accepted=True)
    metrics.observe_episode("doses", 2.0, is_accepted=False)
    metrics.observe_snapshot("doses", 1000, 7.5)
    metrics.count_bus_failure("publish")
    text = metrics.exposition().decode()
    for line in (
        'daband_policy_version{experiment="doses"} 12.0',
        'daband_policy_created_timestamp_seconds{experiment="doses"} 1.7672256e+09',
        'daband_trainer_lag_events{experiment="doses"} 5.0',
        'daband_gate_verdicts_total{experiment="doses",verdict="refused"} 1.0',
        'daband_episode_seconds_count{experiment="doses"} 2.0',
        'daband_snapshot_bytes{experiment="doses"} 1000.0',
        'daband_condition_number{experiment="doses"} 7.5',
        'daband_bus_failures_total{operation="publish"} 1.0',
    ):
        assert line in text


def test_two_apps_in_a_process_do_not_share_numbers():
    first, second = Metrics(), Metrics()
    first.count_reward("doses", "source")
    assert 'daband_rewards_total{domain="source"' not in second.exposition().decode()


def test_processes_share_their_numbers_and_the_dead_are_forgotten(tmp_path: Path):
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    for _ in range(2):
        told = subprocess.run(
            [sys.executable, "-c", WORKER],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    assert 'daband_decisions_total{domain="source",experiment="doses"} 2.0' in told
    assert len(list(tmp_path.glob("gauge_livesum_*.db"))) == 2
    forget_dead_processes(tmp_path)
    assert not list(tmp_path.glob("gauge_livesum_*.db"))
