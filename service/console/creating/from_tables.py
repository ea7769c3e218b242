"""An experiment from two tables: declared, its past rounds imported, its target contexts stored.

Both tables are read to their end before anything is written. The same files and choices sent again
continue what was interrupted, or change nothing.
"""

import asyncio
from collections.abc import Mapping

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


async def created(
    services: Services,
    form: FormData,
    typed: PairTyped,
    found: Surveyed,
    caller: Caller,
    actor: Actor,
) -> Experiment:
    """Create the experiment and write both tables to its log; `TableError` names what does not fit."""
    pair = found.pair
    assert pair is not None  # noqa: S101 - the caller has asked
    name, spec = await checked(services, caller, _declared(form, typed, pair))
    columns = _columns(pair, found.roles)
    with Spool(spec) as contexts:
        history = await asyncio.to_thread(_read, pair, columns, spec, contexts)
        with history:
            made = await created_or_same(services.experiments, name, spec, actor)
            await written(services, made, history, actor)
        served = await services.policies.current(name)
        request_id = f"target-{contexts.digest()}"
        await services.uploading.store_spooled(served, request_id, contexts)
    return made


def _declared(form: FormData, typed: PairTyped, pair: TablePair) -> ExperimentBody:
    return ExperimentBody(
        name=typed.texts["name"],
        arms=list(pair.rounds.arms),
        context=msgspec.convert(pair.context(), ContextBody),
        method=typed.texts["method"],
        seed=integer_of(form, "seed"),
        config={"exclusive_rewards": True} if typed.is_exclusive else {},
        reward_range=None if pair.reward_range is None else list(pair.reward_range),
    )


def _columns(pair: TablePair, roles: Mapping[str, str]) -> HistoryColumns:
    ignore = tuple(each for each in pair.source_ignore if each not in roles.values())
    return HistoryColumns(roles["arm"], roles["reward"], id=roles["id"] or None, ignore=ignore)


def _read(
    pair: TablePair, columns: HistoryColumns, spec: ExperimentSpec, contexts: Spool
) -> HistorySpool:
    for rows in pair.target_slots():
        contexts.add(rows)
    return spooled(pair.source, columns, history_shape(spec))
