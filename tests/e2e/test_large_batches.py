"""Batches of many arms on a real server: how long others wait, and what memory is left."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import psutil
import pytest

from tests.support.measuring import Measured
from tests.support.processes.service import ServiceProcess
from tests.support.waiting import PATIENCE_SECONDS

MOST_WAIT_SECONDS = 0.25
REST_SECONDS = 60.0
SMALL = {"experiment": "small", "source": {"context": [0.1] * 4}}


def declared(name: str, arms: int) -> dict[str, Any]:
    names = [f"arm-{number:05d}" for number in range(arms)]
    context = {"kind": "shared", "shape": [4]}
    return {"name": name, "arms": names, "context": context, "method": "linucb"}


class Others(threading.Thread):
    """Another caller, who selects again and again and notes how long that took."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._is_over = threading.Event()
        self.seconds: list[float] = []

    def run(self) -> None:
        with httpx.Client(base_url=self._url, timeout=PATIENCE_SECONDS) as http:
            while not self.seconds or not self._is_over.wait(0.01):
                began = time.perf_counter()
                assert http.post("/select", json=SMALL).status_code == 200
                self.seconds.append(time.perf_counter() - began)

    def __enter__(self) -> "Others":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self.join()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with ServiceProcess(tmp_path_factory.mktemp("service")) as service:
        with httpx.Client(base_url=service.url, timeout=PATIENCE_SECONDS) as http:
            for name, arms in (("small", 2), ("thousand", 1000), ("most", 10_000)):
                assert http.post("/experiments", json=declared(name, arms)).status_code == 201
            for _ in range(200):
                assert http.post("/select", json=SMALL).status_code == 200
        yield service


def asked(kind: str, name: str, count: int) -> tuple[str, dict[str, Any]]:
    rows = np.random.default_rng(1).normal(size=(count, 4))
    if kind == "target":
        return "/target/select", {"experiment": name, "contexts": rows.tolist()}
    if kind == "infer":
        tensor = {"name": "context", "datatype": "FP32", "shape": [count, 4]}
        return f"/v2/models/{name}/infer", {"inputs": [{**tensor, "data": rows.ravel().tolist()}]}
    rounds = [
        {domain: {"context": row} for domain in ("source", "target")} for row in rows.tolist()
    ]
    return "/select/batch", {"experiment": name, "rounds": rounds}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name", "count", "status"),
    [
        ("batch", "most", 1000, 413),
        ("batch", "most", 10, 200),
        ("batch", "thousand", 1000, 413),
        ("batch", "thousand", 100, 200),
        ("target", "most", 1000, 413),
        ("target", "most", 180, 200),
        ("target", "thousand", 1000, 200),
        ("infer", "thousand", 1000, 200),
    ],
)
def test_others_wait_shortly_and_memory_is_given_back(
    service: ServiceProcess, measured: Measured, kind: str, name: str, count: int, status: int
):
    process = psutil.Process(service.process_id)
    path, body = asked(kind, name, count)
    with httpx.Client(base_url=service.url, timeout=PATIENCE_SECONDS) as http:
        if status == 200:  # pages of libraries and policies that a first request loads
            first_path, first = asked(kind, name, 1)
            assert http.post(first_path, json=first).status_code == 200
        resting = process.memory_info().rss
        with Others(service.url) as others:
            assert http.post(path, json=body).status_code == status
        measured.at_most("longest wait of others", max(others.seconds), MOST_WAIT_SECONDS)
    ends = time.monotonic() + (REST_SECONDS if measured.is_held else 0)
    while process.memory_info().rss > 1.2 * resting and time.monotonic() < ends:
        time.sleep(0.5)
    measured.at_most("memory as a share of that at rest", process.memory_info().rss / resting, 1.2)
