"""Hostile files against a real server: its memory, others' selects, and what a kill leaves behind."""

import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.test_upload_memory import MEBIBYTE
from tests.support.hostile_files import EXPERIMENTS, Hostile, hostile_files
from tests.support.measuring import Measured, percentile
from tests.support.processes.service import ServiceProcess
from tests.support.waiting import PATIENCE_SECONDS, wait_until

LIMIT = 600 * MEBIBYTE
SELECTS = 400
SECRET = b"a-name-that-nobody-else-has"


def opened(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=PATIENCE_SECONDS)


def declare(http: httpx.Client) -> None:
    for each in EXPERIMENTS:
        assert http.post("/experiments", json=each).status_code == 201


def most_memory(process_id: int) -> int:
    """The largest resident memory of a process since its start, in bytes."""
    lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    (line,) = (each for each in lines if each.startswith("VmHWM"))
    return int(line.split()[1]) << 10


class Selects(threading.Thread):
    """Asks for decisions one after the other, and notes how long each took."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._http = opened(url)
        self.is_over = threading.Event()
        self.seconds: list[float] = []

    def select(self) -> None:
        body = {"experiment": "vector", "source": {"context": [1.0, 2.0, 3.0, 4.0]}}
        start = time.perf_counter()
        assert self._http.post("/select", json=body).status_code == 200
        self.seconds.append(time.perf_counter() - start)

    def run(self) -> None:
        while not self.is_over.wait(0.01):
            self.select()

    def close(self) -> None:
        """End, and give the connection back."""
        self.is_over.set()
        if self.ident is not None:
            self.join()
        self._http.close()

    def p99(self) -> float:
        return percentile(self.seconds, 99)


def running_jobs(http: httpx.Client) -> int:
    jobs = http.get("/evaluations", params={"limit": 1000}).json()["evaluations"]
    return sum(job["status"] in ("queued", "running") for job in jobs)


def send_all(http: httpx.Client, files: Mapping[str, Hostile]) -> None:
    for name, file in files.items():
        headers = {"Content-Type": file.media}
        answer = http.post(file.path, params=file.params, content=file.content, headers=headers)
        assert answer.status_code in file.answers, f"{name}: {answer.text}"
    wait_until(lambda: running_jobs(http) == 0)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_hostile_files_take_bounded_memory_and_delay_no_select(tmp_path: Path, measured: Measured):
    files = {
        name: make() for name, make in hostile_files()
    }  # not beside the selects that are timed
    with ServiceProcess(tmp_path) as service, opened(service.url) as http:
        declare(http)
        alone, beside = Selects(service.url), Selects(service.url)
        for _ in range(SELECTS):
            alone.select()
        rest = most_memory(service.process_id)
        beside.start()
        send_all(http, files)
        for each in (alone, beside):
            each.close()
        grown = most_memory(service.process_id) - rest
        assert http.get("/healthz").status_code == 200
    assert grown < LIMIT
    measured.at_most("growth of memory in MiB", grown / MEBIBYTE, LIMIT / MEBIBYTE)
    measured.at_most("p99 of a select in s", beside.p99(), 2 * alone.p99())


def files_with(folder: Path, secret: bytes) -> list[Path]:
    return [each for each in folder.rglob("*") if each.is_file() and secret in each.read_bytes()]


def held_bytes(process_id: int) -> int:
    """How much the process keeps in open files that have no name."""
    found = 0
    for each in Path(f"/proc/{process_id}/fd").iterdir():
        try:
            if "(deleted)" in str(each.readlink()):
                found += each.stat().st_size
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("/experiments/table/history", {"arm": "arm", "reward": "reward"}),
        ("/evaluations/file", {"experiment": "vector", "candidate": "uniform", "format": "csv"}),
        ("/target/contexts", {"experiment": "image"}),
    ],
)
def test_nothing_of_an_upload_remains_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, params: dict[str, Any]
):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    media = {"/target/contexts": "application/zip", "/evaluations/file": "application/octet-stream"}
    with ServiceProcess(tmp_path, BODY_TIMEOUT_SECONDS=str(PATIENCE_SECONDS)) as service:
        with opened(service.url) as http:
            declare(http)
        sent = threading.Event()

        def pieces() -> Any:
            for _ in range(64):
                yield SECRET * 2048
            sent.wait(PATIENCE_SECONDS)  # the rest of the body never comes

        def upload() -> None:
            headers = {"Content-Type": media.get(path, "text/csv")}
            try:
                with opened(service.url) as http:
                    http.post(path, params=params, content=pieces(), headers=headers)
            except httpx.HTTPError:
                pass

        thread = threading.Thread(target=upload, daemon=True)
        thread.start()
        wait_until(
            lambda: held_bytes(service.process_id) > MEBIBYTE or files_with(temporary, SECRET) != []
        )
        service.signal(signal.SIGKILL)
        service.wait()
        sent.set()
        thread.join(PATIENCE_SECONDS)
    assert files_with(temporary, SECRET) == []
