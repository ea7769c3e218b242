"""The benchmark of serving runs and its table has its shape; how fast is no matter here."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks import serving, serving_devices, serving_workers, sqlite_select
from benchmarks.serving_servers import Server
from tests.support.processes.service import ROOT


@pytest.mark.slow
def test_a_quick_run_fills_the_table(tmp_path: Path):
    path = tmp_path / "figures.json"
    serving.main(["--quick", "--json", str(path)])
    figures = json.loads(path.read_text())
    names = [row["case"] for row in figures["cases"]]
    assert names[:2] == [serving.ECHO, serving.PYDANTIC]
    assert {f"select, {kind}, sqlite" for kind in ("binary", "JSON", "binary, relaxed")} <= set(
        names
    )
    for row in figures["cases"]:
        assert row["decisions_per_second"] > 0
        assert row["p50_ms"] <= row["p99_ms"]
    lines = serving.table(figures).splitlines()
    assert len(lines) == 2 + len(names) + 3 + len(figures["ratios"])


def test_every_goal_is_about_cases_that_are_measured(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(serving, "declare", lambda *_: None)
    server = Server(process_id=0, port=0)
    cases = {case.name for case in serving._service_cases(server, "postgres")}
    for _, case, base, least in serving.GOALS:
        assert {case, base} <= cases | {serving.ECHO, serving.PYDANTIC}
        assert least > 0


def test_one_service_runs_on_the_cpu_and_one_on_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    devices: list[str] = []

    @contextmanager
    def recorded(folder: Path, **settings: str) -> Iterator[Server]:
        devices.append(settings["DEVICE"])
        yield Server(process_id=len(devices), port=0)

    monkeypatch.setattr(serving_devices, "service", recorded)
    monkeypatch.setattr(serving_devices, "_declare", lambda _: None)
    with serving_devices._services(tmp_path, "cuda:1") as servers:
        assert [server.process_id for server in servers] == [1, 2]
    assert devices == ["cpu", "cuda:1"]


@pytest.mark.slow
def test_a_quick_run_sets_the_devices_beside_each_other(tmp_path: Path):
    path = tmp_path / "figures.json"
    serving_devices.main(["--quick", "--device", "cpu", "--json", str(path)])
    figures = json.loads(path.read_text())
    assert [(row["case"], row["callers"]) for row in figures["cases"]] == [
        ("select, vectors, on the CPU", 64),
        ("select, vectors, on cpu", 64),
        ("target/select, vectors, on the CPU", 1),
        ("target/select, vectors, on cpu", 1),
        ("select, images, on the CPU", 64),
        ("select, images, on cpu", 64),
        ("target/select, images, on the CPU", 1),
        ("target/select, images, on cpu", 1),
    ]
    for row in figures["cases"]:
        assert row["decisions_per_second"] > 0
    assert all(each["throughput"] > 0 for each in figures["ratios"])
    assert len(serving_devices.table(figures).splitlines()) == 2 + 8 + 3 + 4


@pytest.mark.slow
def test_two_builds_are_set_beside_each_other():
    rows = sqlite_select.measured(ROOT, seconds=0.2, rounds=1)
    kinds = ("select, JSON", "select, binary", "reward")
    names = [f"{kind}, callers: {callers}" for callers in (1, 64) for kind in kinds]
    assert [name for name, *_ in rows] == names
    assert all(here > 0 and there > 0 for _, here, there, _ in rows)


@pytest.mark.parametrize(
    ("service", "postgres", "load", "binds"),
    [
        (1.9, 3.0, 2.4, "the machine's cores"),
        (1.9, 0.5, 1.0, "the serving processes"),
        (1.9, 0.5, 1.9, "the load generators"),
        (0.9, 0.5, 0.4, "Postgres: Lock:tuple (80%)"),
    ],
)
def test_the_bottleneck_is_the_resource_in_full_use(
    service: float, postgres: float, load: float, binds: str
):
    waits = {"Lock:tuple": 0.8, serving_workers.WORKING: 0.2}
    row = serving_workers.Row(2, 1, 1000.0, 9.0, service, postgres, load, waits)
    assert row.binds(generators=2, cores=8) == binds
    assert row.micros(postgres) == pytest.approx(1000 * postgres)


@pytest.mark.slow
def test_processes_and_experiments_are_set_beside_each_other(tmp_path: Path):
    path = tmp_path / "figures.json"
    sizes = ["--processes", "2", "--experiments", "1", "3"]
    serving_workers.main([*sizes, "--seconds", "0.5", "--json", str(path)])
    rows = json.loads(path.read_text())["rows"]
    assert [(row["processes"], row["experiments"]) for row in rows] == [(2, 1), (2, 3)]
    for row in rows:
        assert min(row[name] for name in ("decisions_per_second", "service", "postgres")) > 0
        assert sum(row["waits"].values()) == pytest.approx(1)
