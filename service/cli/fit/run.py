"""The work of a fit: the service itself, in this process, asked by its own client.

First everything is written to the log while nothing learns, then the trainer works until nothing is due.
So updates begin at the same places of the log, however fast the machine is: the same files and seed give
the same policy.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from daband_client import AsyncClient, DabandError, ProblemError
from daband_client.answers import State, Transfer
from daband_client.in_process import in_process
from model import open_exported
from service.app import create_app
from service.cli.fit.images import as_archive, surveyed_images
from service.cli.fit.summary import arm_counts, summary
from service.cli.fit.tables import FitError, FitTables, Surveyed, as_tables, notes, surveyed
from service.cli.options import progress_bar
from service.cli.score import ScoringError, TableOptions, scored, write_atomically
from service.columns.schema import TableError
from service.deciding.scored import Scored, csv_lines
from service.routes.transfer import report_page
from service.services import Services
from service.settings import Settings

EXPERIMENT = "fit"
POLL_SECONDS = 0.1
FOREVER_SECONDS = 30 * 86_400.0  # a person watches the bar, and may stop it


@dataclass(frozen=True, slots=True)
class Outputs:
    """The files to write."""

    arms: Path
    report: Path | None = None
    policy: Path | None = None


def fitted(
    wanted: FitTables, outputs: Outputs, settings: Settings, data_dir: Path | None = None
) -> str:
    """Fit, write the files, and say what came of it; `FitError` if it cannot be done."""
    with ExitStack() as stack:
        temporary = Path(stack.enter_context(TemporaryDirectory(prefix="daband-fit-")))
        wanted = as_archive(as_tables(wanted, temporary / "cells"), temporary)
        images = wanted.images
        tables = surveyed(wanted) if images is None else surveyed_images(wanted, images)
        folder = data_dir or temporary
        # Whatever the environment says: a fit has a database of its own, and no other process.
        own = {
            "data_dir": folder,
            "database_url": None,
            "redis_url": None,
            "host": "127.0.0.1",
            "auth": "off",
            "workers": 1,
            # Nothing is served meanwhile that training could slow down, and a process costs more.
            "training": "thread",
            "storage_timeout_seconds": 60.0,
        }
        try:
            return asyncio.run(_fitted(wanted, tables, outputs, settings.model_copy(update=own)))
        except (DabandError, ScoringError, TableError) as error:
            raise FitError(str(error)) from error
        except OSError as error:
            raise FitError(f"{error.filename}: {error.strerror}") from error


async def _fitted(wanted: FitTables, tables: Surveyed, outputs: Outputs, settings: Settings) -> str:
    async with _service(settings, has_trainer=False) as (client, _):
        await _create(client, wanted, tables)
        await _import(client, wanted, tables)
        await _upload(client, tables)
    async with _service(settings, has_trainer=True) as (client, services):
        state = await _learned(client)
        transfer = await _judged(client)
        content = await client.policy(EXPERIMENT, state.policy_version)
        page = await _report(services, tables) if outputs.report is not None else ""
    found = await asyncio.to_thread(_written, wanted, tables, outputs, content, page)
    return summary(wanted, tables, found, state, transfer)


@asynccontextmanager
async def _service(
    settings: Settings, *, has_trainer: bool
) -> AsyncIterator[tuple[AsyncClient, Services]]:
    """A client of the service with or without its trainer, and what the service works with."""
    app = create_app(settings.model_copy(update={"trainer_inside": has_trainer}))
    async with (
        app.router.lifespan_context(app) as state,
        in_process(app, state or {}) as client,
    ):
        yield client, (state or {})["services"]


async def _create(client: AsyncClient, wanted: FitTables, tables: Surveyed) -> None:
    await client.create_experiment(
        EXPERIMENT,
        tables.rounds.arms,
        tables.context,
        method=wanted.method,
        seed=wanted.seed,
        config=wanted.config,
        reward_range=tables.reward_range,
    )


async def _import(client: AsyncClient, wanted: FitTables, tables: Surveyed) -> None:
    names = tables.source_names
    work = client.import_history(
        EXPERIMENT,
        wanted.source,
        arm=wanted.arm,
        reward=wanted.reward,
        time=wanted.time,
        propensity=wanted.propensity,
        id=wanted.id if wanted.id in names else None,
        ignore=tables.source_ignore,
        image=None if wanted.images is None else wanted.images.column,
        csv=wanted.csv_query,
        media=tables.source_media,
    )
    importing = asyncio.create_task(work)
    try:
        with progress_bar("importing") as show:
            while not importing.done():
                await asyncio.wait([importing], timeout=POLL_SECONDS)
                events = (await client.state(EXPERIMENT)).head_offset
                show(events // 2, tables.rounds.rows)  # a decision and its reward for each row
        await importing
    except ProblemError as error:
        # Each place is a row of the table, which its detail names.
        raise FitError("; ".join(each["detail"] for each in error.errors) or str(error)) from error
    finally:
        importing.cancel()
        with suppress(asyncio.CancelledError, DabandError):
            await importing


async def _upload(client: AsyncClient, tables: Surveyed) -> None:
    """Send the rows of the target; the same rows are stored once."""
    for rows in tables.target_contexts():
        digest = hashlib.sha256(np.ascontiguousarray(rows).tobytes()).hexdigest()
        await client.upload_contexts(EXPERIMENT, rows, f"target-{digest}")


async def _learned(client: AsyncClient) -> State:
    """The state once nothing is due and nothing runs."""
    with progress_bar("training") as show:
        return await client.wait_until_trained(
            EXPERIMENT, FOREVER_SECONDS, lambda state: show(*state.updates)
        )


async def _judged(client: AsyncClient) -> Transfer:
    """The transfer of the served encoder, once no judgement is due."""
    while True:
        state = await client.state(EXPERIMENT)
        if state.training.judgement != "due":
            return await client.transfer(EXPERIMENT)
        await asyncio.sleep(POLL_SECONDS)


async def _report(services: Services, tables: Surveyed) -> str:
    """The service's report with the remarks on the tables, which the service does not know."""
    experiment = await services.experiments.get(EXPERIMENT)
    return await report_page(services, experiment, [*notes(tables.remarks)])


def _written(
    wanted: FitTables, tables: Surveyed, outputs: Outputs, content: bytes, page: str
) -> Counter[str]:
    """Score the target and write all files; how often each arm was decided."""
    found: Counter[str] = Counter()
    ignore = tuple(name for name in tables.target_ignore if name != wanted.id)
    options = TableOptions(wanted.id, ignore, wanted.csv)

    def batches() -> Iterator[Scored]:
        for each in scored(open_exported(content), wanted.target, None, options):
            found.update(arm_counts(each.answer))
            yield each

    write_atomically(outputs.arms, csv_lines(batches()))
    if outputs.report is not None:
        write_atomically(outputs.report, [page.encode()])
    if outputs.policy is not None:
        write_atomically(outputs.policy, [content])
    return found
