"""An experiment from two tables: declared, its past rounds imported, its target contexts stored.

Both tables are read to their end before anything is written. The same files and choices sent again
continue what was interrupted, or change nothing.
"""

import asyncio
from dataclasses import dataclass

import msgspec
from starlette.datastructures import FormData

from service.auth.keys import Caller
from service.codec.bodies import ContextBody, ExperimentBody
from service.console.creating.forms import integer_of
from service.console.creating.pair_form import PairTyped, Surveyed
from service.deciding.uploads import Spool
from service.evaluating.history import history_shape
from service.evaluating.importing import created_or_same
from service.experiment_spec import ExperimentSpec
from service.formats.history import HistoryColumns, HistorySpool, spooled
from service.formats.table_pair import TablePair
from service.records import Actor, Experiment
from service.routes.experiments import checked
from service.routes.history import written
from service.services import Services


@dataclass(frozen=True, slots=True)
class Wanted:
    """The experiment to create, its tables, and its caller."""

    caller: Caller
    actor: Actor
    declared: ExperimentBody
    pair: TablePair
    columns: HistoryColumns


def wanted_of(
    form: FormData, typed: PairTyped, found: Surveyed, caller: Caller, actor: Actor
) -> Wanted:
    """What the form means, with the survey of its files."""
    assert found.pair is not None  # noqa: S101 - the caller has asked
    pair, roles = found.pair, found.roles
    declared = ExperimentBody(
        name=typed.texts["name"],
        arms=list(pair.rounds.arms),
        context=msgspec.convert(pair.context(), ContextBody),
        method=typed.texts["method"],
        seed=integer_of(form, "seed"),
        config={"exclusive_rewards": True} if typed.is_exclusive else {},
        reward_range=None if pair.reward_range is None else list(pair.reward_range),
    )
    named = {roles["arm"], roles["reward"], roles["id"]}
    ignore = tuple(each for each in pair.source_ignore if each not in named)
    columns = HistoryColumns(roles["arm"], roles["reward"], id=roles["id"] or None, ignore=ignore)
    return Wanted(caller, actor, declared, pair, columns)


async def created(services: Services, wanted: Wanted) -> Experiment:
    """Create the experiment and write both tables to its log; `TableError` names what does not fit."""
    name, spec = await checked(services, wanted.caller, wanted.declared)
    with Spool(spec) as contexts:
        history = await asyncio.to_thread(_read, wanted, spec, contexts)
        with history:
            made = await created_or_same(services.experiments, name, spec, wanted.actor)
            await written(services, made, history, wanted.actor)
        served = await services.policies.current(name)
        request_id = f"target-{contexts.digest()}"
        await services.uploading.store_spooled(served, request_id, contexts)
    return made


def _read(wanted: Wanted, spec: ExperimentSpec, contexts: Spool) -> HistorySpool:
    for rows in wanted.pair.target_slots():
        contexts.add(rows)
    return spooled(wanted.pair.source, wanted.columns, history_shape(spec))
