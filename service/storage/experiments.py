"""Experiments: what the caller declared, the phase, the status and the counters."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.errors import ExperimentExists, UnknownExperiment
from service.realms import SEPARATOR, Realm
from service.records import Experiment, Phase, Status, uuid7
from service.storage.database import Database
from service.storage.tables import DatabaseNow, experiments

Row = sa.Row[*tuple[Any, ...]]

COLUMNS = (
    experiments.c.experiment_id,
    experiments.c.name,
    experiments.c.spec,
    experiments.c.phase,
    experiments.c.status,
    experiments.c.head_offset,
    experiments.c.next_version,
    experiments.c.epoch,
    experiments.c.created_at,
)


class Experiments:
    """The experiments by full name. The phase is changed by an event (`records.phase_event`)."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, name: str, spec: str, phase: Phase = Phase.ZERO_SHOT) -> Experiment:
        """A new, active experiment with an empty log; `ExperimentExists` if the name is taken."""
        experiment_id = uuid7()
        row = {
            "experiment_id": experiment_id,
            "name": name,
            "spec": spec,
            "phase": phase.value,
            "status": Status.ACTIVE.value,
            "created_at": DatabaseNow(),
        }

        async def insert(connection: AsyncConnection) -> Experiment:
            # Seen before inserting, so that a broken constraint means a race and is run again.
            if await _find(connection, experiments.c.name == name):
                raise ExperimentExists
            await connection.execute(sa.insert(experiments).values(row))
            return await _get(connection, experiments.c.experiment_id == experiment_id)

        return await self._database.write(insert)

    async def get(self, name: str) -> Experiment:
        """The experiment of this name; `UnknownExperiment` if there is none."""
        return await self._database.read(
            lambda connection: _get(connection, experiments.c.name == name)
        )

    async def get_by_id(self, experiment_id: str) -> Experiment:
        """The experiment that has this id; `UnknownExperiment` if there is none."""
        return await self._database.read(
            lambda connection: _get(connection, experiments.c.experiment_id == experiment_id)
        )

    async def list(self, realm: Realm | None = None) -> list[Experiment]:
        """All experiments, or those of a realm, the oldest first."""
        query = sa.select(*COLUMNS).order_by(experiments.c.created_at, experiments.c.experiment_id)
        if realm is not None:
            query = query.where(is_within(realm))
        rows = await self._database.read(lambda connection: connection.execute(query))
        return [_experiment(row) for row in rows]

    async def set_status(self, name: str, status: Status) -> Experiment:
        """Pause or resume.

        After a pause has returned, only decisions that were answered before they were written still are:
        those of relaxed experiments, by processes that have not noticed the pause yet.
        """

        async def update(connection: AsyncConnection) -> Experiment:
            await connection.execute(
                sa.update(experiments).where(experiments.c.name == name).values(status=status.value)
            )
            return await _get(connection, experiments.c.name == name)

        return await self._database.write(update)


def is_within(realm: Realm) -> sa.ColumnElement[bool]:
    """Whether an experiment is in a realm."""
    name = experiments.c.name
    if realm.names is not None:
        return name.in_(sorted(map(realm.full_name, realm.names)))
    if not realm.tenant:
        return sa.not_(name.contains(SEPARATOR))
    prefix = f"{realm.tenant}{SEPARATOR}"
    return sa.func.substr(name, 1, len(prefix)) == prefix  # LIKE would not mind upper case


async def lock_experiment(
    connection: AsyncConnection, experiment_id: str, *columns: sa.ColumnElement[Any]
) -> Any:
    """The columns of an experiment's row, kept from other writers until the transaction ends."""
    query = (
        sa.select(*columns).where(experiments.c.experiment_id == experiment_id).with_for_update()
    )
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        raise UnknownExperiment
    return row


async def _get(connection: AsyncConnection, condition: sa.ColumnElement[bool]) -> Experiment:
    row = await _find(connection, condition)
    if row is None:
        raise UnknownExperiment
    return _experiment(row)


async def _find(connection: AsyncConnection, condition: sa.ColumnElement[bool]) -> Row | None:
    return (await connection.execute(sa.select(*COLUMNS).where(condition))).one_or_none()


def _experiment(row: Row) -> Experiment:
    experiment_id, name, spec, phase, status, *rest = row
    return Experiment(experiment_id, name, spec, Phase(phase), Status(status), *rest)
