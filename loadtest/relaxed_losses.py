"""How many answered decisions of a relaxed experiment are lost: `python -m loadtest.relaxed_losses`.

Callers ask as fast as they are answered. Meanwhile Postgres stands still for some time (SIGSTOP), or the
serving process is killed (SIGKILL). Then the log is compared with what was answered. Exit code 1 if more
was lost than is documented: nothing in an outage, the bound by a kill.
"""

import argparse
import asyncio
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from loadtest.lost_events import compared, logged_ids
from loadtest.relaxed_callers import CREATION, EXPERIMENT, RelaxedCallers
from loadtest.traffic import SELECT
from tests.support.processes.servers import DURABLE_SETTINGS, PostgresServer, running_server
from tests.support.processes.service import ServiceProcess
from tests.support.storage import migrated
from tests.support.waiting import eventually

WARM_UP = 1000  # decisions before the fault, and after it
UNWRITTEN = "daband_unwritten_decisions 0.0"
KILL = "kill -9"


@dataclass(frozen=True, slots=True)
class Loss:
    """One run."""

    fault: str
    answered: int
    refused: int
    lost: int
    repeated: int

    def is_documented(self, bound: int) -> bool:
        """Whether no more was lost than the documentation says."""
        return self.lost <= (bound if self.fault == KILL else 0) and not self.repeated


def main(arguments: Sequence[str] | None = None) -> int:
    """Play all runs and print a table; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="of each fault")
    parser.add_argument("--outages", type=float, nargs="*", default=[0.5, 1.0, 3.0, 10.0])
    parser.add_argument("--callers", type=int, default=32)
    parser.add_argument("--bound", type=int, default=512, help="DABAND_RELAXED_BOUND")
    options = parser.parse_args(arguments)
    print(
        "| fault | run | answered | refused (503) | lost | written twice |\n|---|---|---|---|---|---|"
    )
    losses: list[Loss] = []
    for seconds in [*options.outages, None]:
        for run in range(1, options.runs + 1):
            loss = asyncio.run(played(seconds, options.callers, options.bound))
            figures = (loss.fault, run, loss.answered, loss.refused, loss.lost, loss.repeated)
            print("| {} |".format(" | ".join(str(each) for each in figures)), flush=True)
            losses.append(loss)
    return 0 if all(loss.is_documented(options.bound) for loss in losses) else 1


async def played(outage_seconds: float | None, callers: int, bound: int) -> Loss:
    """One run with an outage of this length; None: the serving process is killed."""
    with running_server(PostgresServer(**DURABLE_SETTINGS)) as postgres:
        await migrated(postgres.url())
        async with _asked(postgres.url(), callers, bound) as (service, asking):
            await asking.answered_more(WARM_UP)
            if outage_seconds is None:
                service.signal(signal.SIGKILL)
            else:
                postgres.pause()
                await asyncio.sleep(outage_seconds)
                postgres.resume()
                await asking.answered_more(WARM_UP)
            await asking.stop()
            if outage_seconds is not None:
                await _all_written(service.url)
        fault = KILL if outage_seconds is None else f"Postgres stopped for {outage_seconds:g} s"
        return await _loss(fault, asking, postgres.url())


@asynccontextmanager
async def _asked(
    database_url: str, callers: int, bound: int
) -> AsyncIterator[tuple[ServiceProcess, RelaxedCallers]]:
    """A service with callers at work."""
    with tempfile.TemporaryDirectory(prefix="daband-relaxed-") as folder:
        settings = {"DATABASE_URL": database_url, "RELAXED_BOUND": str(bound)}
        with ServiceProcess(Path(folder), "--no-trainer", **settings) as service:
            async with httpx.AsyncClient(base_url=service.url, timeout=60) as http:
                (await http.post("/experiments", json=CREATION)).raise_for_status()
            async with RelaxedCallers(service.url, callers) as asking:
                yield service, asking


async def _all_written(url: str) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:

        async def is_so() -> bool:
            return UNWRITTEN in (await http.get("/metrics")).text

        await eventually(is_so)


async def _loss(fault: str, asking: RelaxedCallers, database_url: str) -> Loss:
    logged = await logged_ids(database_url, EXPERIMENT)
    found = compared({SELECT: asking.answered}, logged)
    return Loss(fault, len(asking.answered), asking.refused, found.lost, found.repeated)


if __name__ == "__main__":
    sys.exit(main())
