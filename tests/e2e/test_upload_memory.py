"""A million contexts: taken in, folded and kept with bounded memory."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest

from tests.support.measuring import Measured
from tests.support.processes.service import ServiceProcess
from tests.support.waiting import PATIENCE_SECONDS, wait_until

MEBIBYTE = 1 << 20
LIMIT = 300 * MEBIBYTE


class Watch(threading.Thread):
    """Follows the largest memory of a process."""

    def __init__(self, process_id: int) -> None:
        super().__init__(daemon=True)
        self._process = psutil.Process(process_id)
        self._is_over = threading.Event()
        self.start_bytes = self.most_bytes = self._process.memory_info().rss

    def run(self) -> None:
        while not self._is_over.wait(0.02):
            self.most_bytes = max(self.most_bytes, self._process.memory_info().rss)

    def growth(self) -> int:
        self._is_over.set()
        self.join()
        return int(self.most_bytes - self.start_bytes)


def pieces(count: int, size: int, rows: int = 10_000) -> Iterator[bytes]:
    """Contexts in binary, made as they are sent: the sender holds no more than a piece either."""
    rng = np.random.default_rng(1)
    for start in range(0, count, rows):
        some = rng.standard_normal((min(rows, count - start), size))
        yield some.astype("<f4").tobytes()


def declared(size: int) -> dict[str, Any]:
    config = {"latent_size": 8, "hidden_sizes": [8], "reservoir_size": 1024}
    context = {"kind": "shared", "shape": [size]}
    return {"name": "doses", "arms": ["a", "b"], "context": context, "config": config}


def folded(http: httpx.Client, count: int) -> None:
    def is_folded() -> bool:
        state = http.get("/experiments/doses/state").json()
        return bool(state["counts"]["target_contexts"] == count)

    wait_until(is_folded)


def upload(folder: Path, count: int, size: int) -> int:
    """Bytes that the server grew by, from its start until all is folded."""
    with (
        ServiceProcess(folder) as service,
        httpx.Client(base_url=service.url, timeout=PATIENCE_SECONDS) as http,
    ):
        assert http.post("/experiments", json=declared(size)).status_code == 201
        warm = {"experiment": "doses", "contexts": [[0.0] * size]}
        assert http.post("/target/select", json=warm).status_code == 200
        watch = Watch(service.process_id)
        watch.start()
        for status in (201, 200):  # the same again finds all of it there
            answer = http.post(
                "/target/contexts?experiment=doses&request_id=u-1",
                content=pieces(count, size),
                headers={"Content-Type": "application/octet-stream"},
            )
            assert (answer.status_code, answer.json()["contexts"]) == (status, count)
        folded(http, count)
        return watch.growth()


@pytest.mark.slow
def test_an_upload_larger_than_its_bound_of_memory(tmp_path: Path):
    # 77 MB of contexts; a server that kept them would grow by more.
    assert upload(tmp_path, 50_000, 384) < 70 * MEBIBYTE


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_million_contexts(tmp_path: Path, measured: Measured):
    # 384 MB of contexts: larger than the bound.
    growth = upload(tmp_path, 1_000_000, 96)
    measured.at_most("growth of memory in MiB", growth / MEBIBYTE, LIMIT / MEBIBYTE)
