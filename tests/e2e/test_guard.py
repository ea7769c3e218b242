"""A test run that is killed leaves no process behind."""

import asyncio
import shutil
import signal
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.processes.service import ROOT, clean_environment
from tests.support.waiting import PATIENCE_SECONDS


@pytest.mark.slow
async def test_what_a_killed_test_run_had_started_ends_with_it(folder: Path, postgres_url: str):
    command = (
        sys.executable,
        "-m",
        "tests.support.processes.abandoned_run",
        str(folder),
        postgres_url,
    )
    run = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, env=clean_environment(), stdout=asyncio.subprocess.PIPE
    )
    assert run.stdout is not None
    output = await asyncio.wait_for(run.stdout.readline(), PATIENCE_SECONDS)
    *ids, redis_folder = output.decode().split()
    started = [psutil.Process(int(each)) for each in ids]
    assert len(started) >= 6  # Redis, trainer, parent, two workers, and the guard
    run.send_signal(signal.SIGKILL)
    await run.wait()
    _, alive = await asyncio.to_thread(psutil.wait_procs, started, PATIENCE_SECONDS)
    for process in alive:
        process.kill()
    shutil.rmtree(redis_folder)
    assert alive == []
