"""The work of offline evaluation's commands: logs evaluated, replayed, exported and imported."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import typer

from model.ope import EvaluationOptions
from service.app import opened_database
from service.auth.tenants import TenantScope, split
from service.cli.local import run
from service.cli.options import fail, file_errors, progress_bar
from service.evaluating.candidates import CandidateSpec, changed_values, parsed
from service.evaluating.counterfactual import Counterfactual, replay_with
from service.evaluating.experiment_log import decisions_of, header_of
from service.evaluating.file_log import FileOptions, evaluate_file
from service.evaluating.importing import Imported, import_log
from service.evaluating.pieces.evaluation import DatabasePlace, evaluated_in_pieces
from service.evaluating.pieces.sweep import ReplayPiece, Sweep, replayed, swept
from service.evaluating.presenting.figures import interval, number
from service.evaluating.presenting.table_report import print_result
from service.evaluating.request import EvaluationRequest
from service.evaluating.running import EvaluationStores, evaluated_here, planned
from service.experiment_spec import ExperimentSpec
from service.formats.files import FORMATS, reading, write_log
from service.formats.records import LoggedDecision
from service.parallel.engine import Engine, result_of
from service.parallel.opening import EngineOptions, opened_engine
from service.records import Domain, utc_now
from service.settings import Settings
from service.storage.database import Database
from service.storage.events.group_commit import CommitOptions
from service.storage.events.log import EventLog
from service.storage.experiments import Experiments
from service.storage.snapshots import Snapshots

Pages = AsyncIterator[list[tuple[int, LoggedDecision]]]

PATIENT = CommitOptions(timeout_seconds=60.0)
CORRECTIONS = ("rejection", "weighting")
# An invalid file, candidate or variant; each ends the command with a message.
BAD_INPUT = (ValueError, msgspec.MsgspecError)


def replay_counterfactual(
    settings: Settings,
    experiment: str,
    changes: list[str],
    correction: str,
    as_json: bool,
    where: EngineOptions,
) -> None:
    """`daband replay --with`: print the estimated value under the changes."""
    if correction not in CORRECTIONS:
        fail(f"--correction must be one of {', '.join(CORRECTIONS)}")
    with file_errors(*BAD_INPUT):
        wanted = Counterfactual(changed_values(changes), correction)
        result = run(_counterfactual(settings, experiment, wanted, where))
    if as_json:
        typer.echo(json.dumps(result, ensure_ascii=False))
        return
    found = result["estimates"]["dr"]
    ips, snips = (result["estimates"][name]["value"] for name in ("ips", "snips"))
    typer.echo(
        f"rounds    {result['rounds']} ({result['kept_rounds']} kept by {correction},"
        f" {result['encoder_version']} encoder updates)\n"
        f"logged    {number(result['logged']['value'])}\n"
        f"with it   {number(found['value'])} {interval(found['interval'])}"
        f" (snips {number(snips)}, ips {number(ips)},"
        f" effective n {result['support']['effective_rounds']:.0f})"
    )
    for warning in result["warnings"]:
        typer.echo(f"! {warning}")


@file_errors(*BAD_INPUT)
def sweep_of(variants: list[str], correction: str, confidence: float) -> Sweep:
    """The variants of the options, each once, beside the experiment as it is."""
    changes = [changed_values(each.split(",")) for each in dict.fromkeys(variants)]
    return Sweep([{}, *changes], correction, confidence)


@file_errors(*BAD_INPUT)
def swept_log(
    settings: Settings, experiment: str, wanted: Sweep, where: EngineOptions
) -> dict[str, Any]:
    """Which variant would have earned most."""

    async def work() -> dict[str, Any]:
        async with opened_database(settings) as database:
            found = await Experiments(database).get(experiment)
            place = DatabasePlace(settings.storage_url, database.options)
        with opened_engine(where) as engine, progress_bar("replaying variants") as show:
            return await asyncio.to_thread(swept, found, place, wanted, engine, show)

    return run(work())


def print_sweep(result: dict[str, Any], as_json: bool) -> None:
    """The variants with their values, and the answer."""
    if as_json:
        typer.echo(json.dumps(result, ensure_ascii=False))
        return
    width = max(len(each["name"]) for each in result["variants"])
    typer.echo(f"{'logged':{width}}  {number(result['logged']['value'])}")
    for each in result["variants"]:
        found = each["estimates"]["dr"]
        typer.echo(
            f"{each['name']:{width}}  {number(found['value'])} {interval(found['interval'])}"
            f"  ({each['kept_rounds']} of {each['rounds']} rounds,"
            f" effective n {each['support']['effective_rounds']:.0f})"
        )
    for warning in dict.fromkeys(text for each in result["variants"] for text in each["warnings"]):
        typer.echo(f"! {warning}")
    typer.echo(result["answer"])


@file_errors(*BAD_INPUT)
def candidates(specs: list[str]) -> list[CandidateSpec]:
    """The candidates of the options, each once."""
    return [parsed(each) for each in dict.fromkeys(specs)]


def file_options(
    log_format: str | None, skip_bad: bool, domain: str = Domain.SOURCE
) -> FileOptions:
    """How a log file is read."""
    return FileOptions(_known_format(log_format), skip_bad, Domain(domain))


@file_errors(*BAD_INPUT)
def evaluated_file(
    log: Path,
    wanted: list[CandidateSpec],
    options: EvaluationOptions,
    how: FileOptions,
    where: EngineOptions,
) -> dict[str, Any]:
    """What candidates would have earned, by a file."""
    with opened_engine(where) as engine, progress_bar("reading the log") as show:
        return evaluate_file(log.resolve(), wanted, options, how, engine, show)


@file_errors(*BAD_INPUT)
def evaluated(
    settings: Settings, request: EvaluationRequest, where: EngineOptions
) -> dict[str, Any]:
    """What candidates would have earned, by an experiment's log."""
    with opened_engine(where) as engine:
        return run(_evaluated(settings, request, engine))


@file_errors(*BAD_INPUT)
def exported(
    settings: Settings, experiment: str, file: Path, log_format: str | None, rewarded: bool
) -> int:
    """Write an experiment's log to a file; the number of decisions."""
    name = _known_format(log_format)
    return run(_exported(settings, experiment, file, name, rewarded))


@file_errors(*BAD_INPUT)
def import_file(
    settings: Settings,
    file: Path,
    how: FileOptions,
    full_name: str,
    method: str,
    seed: int,
    config: dict[str, Any],
) -> None:
    """Make a new experiment of a file, and say what came of it."""
    tenant_scope, name = split(full_name)
    with reading(file, how.format, how.skip_bad) as reader:
        header = reader.header
        spec = ExperimentSpec(
            name,
            header.arms,
            header.context_kind,
            header.context_shape,
            method,
            seed,
            config,
            table=header.table,
            image=header.image,
        )
        done = run(_imported(settings, tenant_scope, spec, iter(reader)))
        typer.echo(f"{done.decisions} decisions and {done.rewards} rewards are in {full_name}")
        if done.left_out:
            typer.echo(f"{done.left_out} target rewards were left out: the phase is zero-shot")
        if reader.bad_count:
            typer.echo(f"{reader.bad_count} bad lines were skipped")
            for bad in reader.first_bad:
                typer.echo(f"  line {bad.number}: {bad.reason}")


def show(result: dict[str, Any], json_file: Path | None, html_file: Path | None) -> None:
    """Print a result, and write it to the files that are named."""
    print_result(result)
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(json.dumps(result, ensure_ascii=False, indent=1) + "\n")
    if html_file is not None:
        from service.evaluating.presenting.html_report import page

        html_file.parent.mkdir(parents=True, exist_ok=True)
        html_file.write_text(page(result, utc_now()))


def _known_format(name: str | None) -> str | None:
    if name is not None and name not in FORMATS:
        fail(f"--format must be one of {', '.join(FORMATS)}")
    return name


async def _evaluated(
    settings: Settings, request: EvaluationRequest, engine: Engine | None
) -> dict[str, Any]:
    async with opened_database(settings) as database:
        stores = EvaluationStores(Experiments(database), EventLog(database), Snapshots(database))
        experiment = await stores.experiments.get(request.experiment)
        with progress_bar("reading the log") as show:

            async def note(done: int, total: int) -> None:
                show(done, total, "estimating" if done == total else None)

            plan = await planned(stores, experiment, request)
            if engine is None:
                return await evaluated_here(plan, stores.event_log, note)
            place = DatabasePlace(settings.storage_url, database.options)
            return await evaluated_in_pieces(plan, place, engine, note)


async def _counterfactual(
    settings: Settings, name: str, wanted: Counterfactual, where: EngineOptions
) -> dict[str, Any]:
    with opened_engine(where) as engine, progress_bar("replaying the log") as show:
        async with opened_database(settings) as database:
            experiment = await Experiments(database).get(name)
            if engine is None:
                return await replay_with(experiment, EventLog(database), wanted, show)
            place = DatabasePlace(settings.storage_url, database.options)
            # The learner needs the whole log in order: one piece.
            future = engine.submit(replayed, ReplayPiece(place, experiment, wanted))
            return await asyncio.to_thread(result_of, future)


async def _exported(
    settings: Settings, name: str, file: Path, log_format: str | None, rewarded: bool
) -> int:
    async with opened_database(settings) as database:
        experiment = await Experiments(database).get(name)
        pages = decisions_of(experiment, EventLog(database), experiment.head_offset)
        decisions = _from_loop(asyncio.get_running_loop(), pages)
        kept = (each for each in decisions if each.reward is not None or not rewarded)
        header = header_of(ExperimentSpec.of(experiment))
        return await asyncio.to_thread(write_log, file, header, kept, log_format)


def _from_loop(loop: asyncio.AbstractEventLoop, pages: Pages) -> Iterator[LoggedDecision]:
    """The decisions for the writing thread; the event loop reads the log."""
    while True:
        page_ = asyncio.run_coroutine_threadsafe(_next(pages), loop).result()
        if page_ is None:
            return
        yield from (decision for _, decision in page_)


async def _next(pages: Pages) -> list[tuple[int, LoggedDecision]] | None:
    return await anext(pages, None)


async def _imported(
    settings: Settings,
    tenant_scope: TenantScope,
    spec: ExperimentSpec,
    decisions: Iterator[LoggedDecision],
) -> Imported:
    spec.check_budget(settings.budget_limits)
    async with opened_database(settings) as database, writing(database) as event_log:
        experiments = Experiments(database, settings.quotas)
        return await import_log(experiments, event_log, tenant_scope, spec, decisions)


@asynccontextmanager
async def writing(database: Database) -> AsyncIterator[EventLog]:
    """A log that takes appends."""
    event_log = EventLog(database, PATIENT)
    flusher = asyncio.create_task(event_log.run())
    try:
        yield event_log
    finally:
        await event_log.close()
        await flusher
