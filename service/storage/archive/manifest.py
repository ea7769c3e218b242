"""The manifest: which files hold the archived rounds of a log, and the requests in them."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.errors import UnknownExperiment
from service.records import Domain, EventKind, Status
from service.storage.archive.files import ArchivingError
from service.storage.archive.request_keys import hashed
from service.storage.archive.segment_file import Archived, file_name
from service.storage.experiments import lock_experiment
from service.storage.tables import DatabaseNow, events, experiments, log_segments

INSERT_REQUESTS = sa.text(
    "INSERT INTO archived_requests (experiment_key, request_key, event_offset)"
    " VALUES (:experiment_key, :request_key, :event_offset) ON CONFLICT DO NOTHING"
)

RequestRow = tuple[int, int, int]


class LateRewardError(Exception):
    """A reward came while its decision was written to a file: the file is made again."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A row of the manifest; the keys are the smallest and largest decision id."""

    experiment_id: str
    last_offset: int
    first_offset: int
    first_key: bytes | None
    last_key: bytes | None
    events: int
    last_reward_offset: int
    target_rewards: int
    size_bytes: int
    sha256: str

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> "Segment":
        """The one of a row by the names of its columns."""
        return cls(**{name: row[name] for name in cls.__dataclass_fields__})

    @property
    def place(self) -> str:
        """The file, below the archive's folder."""
        return f"{self.experiment_id}/{file_name(self.first_offset, self.last_offset, self.sha256)}"

    def may_have(self, keys: Iterable[bytes]) -> bool:
        """Whether a decision with one of these keys can be in it."""
        first, last = self.first_key, self.last_key
        return first is not None and last is not None and any(first <= key <= last for key in keys)


COLUMNS = tuple(log_segments.c[name] for name in Segment.__dataclass_fields__)


def segment_of(
    experiment_id: str, first_offset: int, rounds: Sequence[Archived], content: bytes
) -> Segment:
    """The row of a file with these rounds; it stands for all offsets from the first on."""
    some = [each.event for each in rounds]
    keys = [each.event_key.encode() for each in some if each.kind is EventKind.DECISION]
    rewards = [each for each in some if each.kind is EventKind.REWARD]
    return Segment(
        experiment_id=experiment_id,
        last_offset=some[-1].offset,
        first_offset=first_offset,
        first_key=min(keys, default=None),
        last_key=max(keys, default=None),
        events=len(some),
        last_reward_offset=max((each.offset for each in rewards), default=0),
        target_rewards=sum(each.domain is Domain.TARGET for each in rewards),
        size_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )


def request_rows(experiment_id: str, rounds: Iterable[Archived]) -> list[RequestRow]:
    """For each request its keys and the offset of its first decision."""
    first: dict[str, int] = {}
    for event, _ in rounds:
        if event.request_id is not None:
            first.setdefault(event.request_id, event.offset)
    experiment_key = hashed(experiment_id)
    return sorted((experiment_key, hashed(name), offset) for name, offset in first.items())


async def insert_requests(rows: Sequence[RequestRow], connection: AsyncConnection) -> None:
    """Insert request keys; a run that was killed may have inserted some."""
    names = ("experiment_key", "request_key", "event_offset")
    values = [dict(zip(names, row, strict=True)) for row in rows]
    await connection.execute(INSERT_REQUESTS, values)


async def enter(
    connection: AsyncConnection, segment: Segment, open_decisions: set[str], head: int
) -> None:
    """Enter a file that was made when the log reached up to `head`.

    Raises `LateRewardError` if one of its decisions without a reward has got one since.
    """
    row = await lock_experiment(
        connection, segment.experiment_id, experiments.c.archived_offset, experiments.c.status
    )
    if row.status == Status.DELETED.value:
        raise UnknownExperiment
    if row.archived_offset != segment.first_offset - 1:
        raise ArchivingError("the log was archived further meanwhile: run it again")
    later = sa.select(events.c.event_key).where(
        events.c.experiment_id == segment.experiment_id,
        events.c.event_offset > head,
        events.c.kind == EventKind.REWARD.value,
    )
    if not open_decisions.isdisjoint(await connection.scalars(later)):
        raise LateRewardError
    values = {column.name: getattr(segment, column.name) for column in COLUMNS}
    await connection.execute(sa.insert(log_segments).values(**values, created_at=DatabaseNow()))
    its_own = experiments.c.experiment_id == segment.experiment_id
    moved = sa.update(experiments).where(its_own).values(archived_offset=segment.last_offset)
    await connection.execute(moved)


async def hold(connection: AsyncConnection, segment: Segment) -> None:
    """Keep a file's row in the manifest as it is until the transaction ends.

    Raises `ArchivingError` if the row is not there any more.
    """
    query = sa.select(log_segments.c.sha256).where(is_of(segment)).with_for_update()
    if await connection.scalar(query) != segment.sha256:
        raise ArchivingError("the log was moved back meanwhile")


def is_of(segment: Segment) -> sa.ColumnElement[bool]:
    """The row of a file in the manifest."""
    return sa.and_(
        log_segments.c.experiment_id == segment.experiment_id,
        log_segments.c.last_offset == segment.last_offset,
    )
