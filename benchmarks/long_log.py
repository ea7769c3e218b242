"""Logs of any length, written in bulk past the group commit: what a service leaves after years."""

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import partial
from itertools import islice

import msgspec
import numpy as np
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from model.config import ContextKind
from model.learner import Learner
from model.rounds import Domain
from model.state.snapshot import state_hash, to_bytes
from service.codec.decisions import DecisionPayload
from service.experiment_spec import ExperimentSpec
from service.learning.fold import Folder
from service.records import (
    EventKind,
    Experiment,
    NewSnapshot,
    SnapshotRecord,
    StoredEvent,
    utc_now,
    uuid7,
)
from service.storage.database import Database
from service.storage.events.log import EventLog
from service.storage.events.rows import event_columns, event_values
from service.storage.experiments import Experiments
from service.storage.leases import Leases
from service.storage.snapshots import Snapshots
from service.storage.tables import events, experiments

ROWS_A_TRANSACTION = 20_000
TIMEOUT_SECONDS = 600.0
REWARD_LAG = 20  # decisions between a decision and its reward
PAGE = 4096
COLUMNS = [column.name for column in event_columns(with_context=True)]


def linear_spec(name: str, arms: int = 10, size: int = 32, **config: object) -> ExperimentSpec:
    """An experiment whose encoder is the identity."""
    names = tuple(f"arm-{number}" for number in range(arms))
    shape, kind = (size,), ContextKind.SHARED
    return ExperimentSpec(name, names, kind, shape, method="linucb", seed=7, config=config)


async def write_log(
    database: Database, spec: ExperimentSpec, count: int, *, is_distinct: bool = False
) -> Experiment:
    """A new experiment with `count` events: decisions, each with its reward some decisions later.

    With `is_distinct` no two decisions have the same payload, which takes longer to make.
    """
    experiment = await Experiments(database).create(spec.name, **spec.row())
    made = made_events(experiment.experiment_id, spec, count, is_distinct=is_distinct)
    rows = (event_values(event) for event in made)
    some = list(islice(rows, ROWS_A_TRANSACTION))
    while some:  # the database writes some rows while the next ones are made
        writing = database.write(partial(_insert, some), TIMEOUT_SECONDS)
        making = asyncio.to_thread(lambda: list(islice(rows, ROWS_A_TRANSACTION)))
        _, some = await asyncio.gather(writing, making)
    await database.write(lambda connection: _move_head(connection, experiment, count))
    return await Experiments(database).get(spec.name)


async def _insert(rows: Sequence[tuple[object, ...]], connection: AsyncConnection) -> None:
    if connection.dialect.name == "postgresql":  # COPY takes a tenth of the time of inserts
        driver = (await connection.get_raw_connection()).driver_connection
        assert driver is not None
        await driver.copy_records_to_table(events.name, records=rows, columns=COLUMNS)
    else:
        named = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
        await connection.execute(sa.insert(events), named)


async def _move_head(connection: AsyncConnection, experiment: Experiment, head: int) -> None:
    is_ours = experiments.c.experiment_id == experiment.experiment_id
    await connection.execute(sa.update(experiments).where(is_ours).values(head_offset=head))


def made_events(
    experiment_id: str, spec: ExperimentSpec, count: int, *, is_distinct: bool = False
) -> Iterator[StoredEvent]:
    """The events one by one, in log order: nothing of the log is held in memory."""
    rng = np.random.default_rng(spec.seed)
    payloads = [_payload(spec, rng) for _ in range(64)]
    started = utc_now() - timedelta(days=1)
    waiting: list[tuple[str, str]] = []
    for offset in range(1, count + 1):
        moment = started + timedelta(milliseconds=offset)
        if len(waiting) > REWARD_LAG or (waiting and offset + len(waiting) > count):
            key, arm = waiting.pop(0)
            kind, payload, context, request_id = EventKind.REWARD, b"", None, None
            reward = float(rng.random() < 0.5)
        else:
            key, arm = uuid7(), spec.arms[int(rng.integers(len(spec.arms)))]
            waiting.append((key, arm))
            kind, payload, reward = EventKind.DECISION, payloads[offset % 64], None
            context = rng.standard_normal(spec.context_shape, dtype=np.float32).tobytes()
            request_id = f"r-{offset}"
            if is_distinct:
                payload = _payload(spec, rng)
        hash_ = None if context is None else hashlib.sha256(context).hexdigest()
        yield StoredEvent(
            experiment_id,
            offset,
            kind,
            key,
            payload,
            context,
            request_id,
            hash_,
            Domain.SOURCE,
            arm,
            reward,
            1,
            moment,
        )


def _payload(spec: ExperimentSpec, rng: np.random.Generator) -> bytes:
    shares = rng.dirichlet(np.ones(len(spec.arms)))
    floats = [tuple(values.tolist()) for values in (shares, rng.random(len(shares)), shares)]
    content = DecisionPayload(spec.arms, floats[0], floats[1], floats[2], encoder_version=0)
    return msgspec.json.encode(content)


async def write_snapshot(database: Database, experiment: Experiment) -> SnapshotRecord:
    """Fold the log and store the state, as a trainer would have."""
    spec, log = ExperimentSpec.of(experiment), EventLog(database)
    folder = Folder(Learner(spec.bandit_config(), spec.seed), spec)
    while page := await log.read(experiment.experiment_id, folder.learner.offset, PAGE):
        await asyncio.to_thread(folder.fold, page)
    learner = folder.learner
    lease = await Leases(database).acquire(experiment.experiment_id, "benchmark")
    assert lease is not None
    snapshot = NewSnapshot(
        offset=learner.offset,
        encoder_version=learner.encoder_version,
        state_hash=state_hash(learner),
        blob=to_bytes(learner, 1, with_contexts=False),
        note={"counts": {}},
    )
    record = await Snapshots(database).save(
        experiment.experiment_id, epoch=lease.epoch, expected_version=0, snapshot=snapshot
    )
    await Leases(database).release(lease, is_unfinished=False)
    return record
