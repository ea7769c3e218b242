"""The load test as a user starts it, small: its accounts must balance. Speed is not looked at."""

import json
from pathlib import Path
from typing import Any

import pytest

from loadtest import relaxed_losses
from loadtest.__main__ import main

# Far beyond what a busy machine shows: whether a run is fast enough is not the matter here.
LENIENT = ["--max-lag-ms", "60000", "--max-generator-cpu", "2", "--timeout", "60"]


def report_of(folder: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((folder / "report.json").read_text())
    for stage in result["stages"]:
        assert sum(stage["outcomes"].values()) == stage["requests"]
        assert stage["outcomes"].keys() <= {"200", "201", "503"}
    return result


def figures(result: dict[str, Any]) -> dict[str, str]:
    return {check["name"].split(" of ")[0]: check["figure"] for check in result["checks"]}


@pytest.mark.slow
def test_a_soak_on_postgres_with_redis_restarts_loses_nothing(tmp_path: Path):
    rate = ["--rate", "15", "--seconds", "4", "--generators", "2", "--arrivals", "constant"]
    code = main(["soak", "--start", "postgres", *rate, *LENIENT, "--out", str(tmp_path)])
    result = report_of(tmp_path)
    assert result["faults"] == []
    assert (result["verdict"], code) in {("passed", 0), ("FAILED", 1)}, "it depends on the machine"
    soak = result["stages"][-1]
    assert (soak["requests"], soak["offered"]) == (60, 15)
    assert (result["generators"], [what for _, what in result["events"]]) == (
        2,
        ["Redis was restarted"] * 2,
    )
    found = figures(result)
    assert (found["events lost"], found["events repeated"]) == ("0", "0")
    assert {"encoders trained", "snapshots published"} <= found.keys()
    assert {"service", "trainer", "training process", "database"} == soak["memory_mib"].keys()


@pytest.mark.slow
def test_selects_beside_trainings_with_a_generator_that_may_not_be_late_at_all(tmp_path: Path):
    rate = ["--rate", "10", "--seconds", "2", "--repeats", "1", "--body", "binary"]
    assert main(["training", *rate, "--max-lag-ms", "0", "--out", str(tmp_path)]) == 2
    result = report_of(tmp_path)
    assert result["verdict"] == "INVALID"
    assert "0 ms are allowed" in result["faults"][0]
    assert [stage["name"] for stage in result["stages"]] == ["warm-up", "no training", "training"]
    assert figures(result)["encoders trained"] == "1"


def test_there_is_no_such_profile(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(["nonsense"])
    assert "invalid choice" in capsys.readouterr().err


@pytest.mark.slow
def test_relaxed_decisions_are_compared_with_the_log(capsys: pytest.CaptureFixture[str]):
    assert relaxed_losses.main(["--runs", "1", "--outages", "0.1", "--callers", "4"]) == 0
    _, _, outage, kill = capsys.readouterr().out.strip().split("\n")
    assert outage.startswith("| Postgres stopped for 0.1 s | 1 | ")
    assert outage.endswith(" | 0 | 0 |")
    assert kill.startswith("| kill -9 | 1 | ")
