"""How long a newcomer waits: from a fresh clone and `make serve` to the first answered `/select`.

Clones this repository at each revision into a temporary folder, starts it and asks. Everything that
`make serve` installs is installed anew: `python -m benchmarks.first_select BEFORE HEAD`.
"""

import argparse
import os
import resource
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import httpx

ROOT = Path(__file__).parents[1]
POLL_SECONDS = 0.2
EXPERIMENT = {"name": "first", "arms": ["a", "b"], "context": {"kind": "shared", "shape": [2]}}
ROUND = {"experiment": "first", "request_id": "1", "source": {"context": [0.1, 0.2]}}


class Start(NamedTuple):
    """What one first start took."""

    seconds: float
    cpu_seconds: float
    environment_bytes: int


def main() -> None:
    """Measure the revisions one after the other; ratios are to the first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("revisions", nargs="+", metavar="REVISION")
    first: Start | None = None
    for revision in parser.parse_args().revisions:
        found = first_start(revision)
        first = first or found
        print(
            f"{revision:<12} {found.seconds:6.1f} s ({found.seconds / first.seconds:.2f})"
            f"  CPU {found.cpu_seconds:6.1f} s ({found.cpu_seconds / first.cpu_seconds:.2f})"
            f"  .venv {found.environment_bytes / 1e9:.2f} GB"
            f" ({found.environment_bytes / first.environment_bytes:.2f})",
            flush=True,
        )


def first_start(revision: str) -> Start:
    """Clone, start, ask for a decision, stop."""
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "daband"
        for command in (
            ("git", "clone", "--quiet", str(ROOT), str(clone)),
            ("git", "-C", str(clone), "checkout", "--quiet", "--detach", _commit(revision)),
        ):
            subprocess.run(command, check=True)  # noqa: S603 - our own words
        before = _cpu_seconds()
        seconds = _answered(clone, time.perf_counter())
        return Start(seconds, _cpu_seconds() - before, _bytes_in(clone / ".venv"))


def _answered(clone: Path, begun: float) -> float:
    port = _free_port()
    process = subprocess.Popen(  # noqa: S603 - our own words
        ("make", "serve", f"ARGS=--port {port}"),  # noqa: S607
        cwd=clone,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={key: value for key, value in os.environ.items() if not key.startswith("DABAND_")},
        start_new_session=True,
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            while not _is_ready(client):
                if process.poll() is not None:
                    raise RuntimeError(f"`make serve` ended with {process.returncode}")
                time.sleep(POLL_SECONDS)
            client.post("/experiments", json=EXPERIMENT).raise_for_status()
            client.post("/select", json=ROUND).raise_for_status()
            return time.perf_counter() - begun
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def _cpu_seconds() -> float:
    """Of all that was started and has ended; it does not depend on what else the machine does."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").is_success
    except httpx.TransportError:
        return False


def _commit(revision: str) -> str:
    command = ("git", "-C", str(ROOT), "rev-parse", f"{revision}^{{commit}}")
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    return done.stdout.strip()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _bytes_in(folder: Path) -> int:
    """On disk, a hard link once."""
    found = {each.lstat().st_ino: each.lstat().st_blocks * 512 for each in folder.rglob("*")}
    return sum(found.values())


if __name__ == "__main__":
    main()
