"""The schema in SQLAlchemy Core, for both SQLite and Postgres."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

Value = TypeVar("Value", bound=str | int)

metadata = sa.MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)


class UtcDateTime(sa.types.TypeDecorator[datetime]):
    """A time in UTC; SQLite has no time zones and stores it as naive UTC text."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        """Drop the time zone for SQLite."""
        if value is None or dialect.name != "sqlite":
            return value
        return value.astimezone(UTC).replace(tzinfo=None)

    def result_processor(
        self, dialect: sa.Dialect, coltype: object
    ) -> Callable[[Any], datetime | None]:
        """Add the time zone; one call per row, because logs have millions of rows."""
        return moment_from_sqlite if dialect.name == "sqlite" else _from_postgres


def moment_from_sqlite(text: str | None) -> datetime | None:
    """The time of SQLite's text."""
    return None if text is None else datetime.fromisoformat(f"{text}+00:00")


def _from_postgres(moment: datetime | None) -> datetime | None:
    return moment if moment is None or moment.tzinfo is UTC else moment.astimezone(UTC)


class DatabaseNow(FunctionElement[datetime]):
    """The database's clock, the only one for leases and log times."""

    inherit_cache = True
    type = UtcDateTime()


async def database_now(connection: AsyncConnection) -> datetime:
    """The time by the database's clock."""
    return (await connection.execute(sa.select(DatabaseNow()))).scalar_one()


@compiles(DatabaseNow, "postgresql")
def _now_on_postgres(element: DatabaseNow, compiler: SQLCompiler, **options: Any) -> str:
    # now() does not advance within a transaction, not even while it waits for a lock.
    return "clock_timestamp()"


@compiles(DatabaseNow, "sqlite")
def _now_on_sqlite(element: DatabaseNow, compiler: SQLCompiler, **options: Any) -> str:
    return SQLITE_NOW


# SQLAlchemy's text format of a datetime: microseconds, of which SQLite has the first three digits. Percent
# signs are not doubled, because the parameter style is qmark.
SQLITE_NOW = "strftime('%Y-%m-%d %H:%M:%f000', 'now')"


def _of_experiment() -> sa.Column[str]:
    """The first part of a primary key: the experiment of the row."""
    experiment = sa.ForeignKey("experiments.experiment_id")
    return sa.Column("experiment_id", sa.String(64), experiment, primary_key=True)


experiments = sa.Table(
    "experiments",
    metadata,
    sa.Column("experiment_id", sa.String(64), primary_key=True),
    sa.Column("name", sa.String(255), nullable=False, unique=True),
    sa.Column("spec", sa.Text, nullable=False),
    sa.Column("config", sa.Text),  # in force, as JSON; null until a trainer resolves it
    sa.Column("recipe", sa.BigInteger),
    sa.Column("phase", sa.String(16), nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("head_offset", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("next_version", sa.BigInteger, nullable=False, server_default="1"),
    sa.Column("folded_offset", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("archived_offset", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("is_unfinished", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("lease_holder", sa.String(255)),
    sa.Column("lease_expires_at", UtcDateTime),  # written only by builds before 0006
    sa.Column("epoch", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("created_at", UtcDateTime, nullable=False),
)

# A lease is valid while its trainer renews this row, one row for all its leases.
trainers = sa.Table(
    "trainers",
    metadata,
    sa.Column("trainer_id", sa.String(64), primary_key=True),
    sa.Column("expires_at", UtcDateTime, nullable=False),
)

# One row while an experiment's learning fails.
learning_failures = sa.Table(
    "learning_failures",
    metadata,
    _of_experiment(),
    sa.Column("stage", sa.String(16), nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("failures", sa.BigInteger, nullable=False),
    sa.Column("since", UtcDateTime, nullable=False),
    sa.Column("retry_at", UtcDateTime, nullable=False),
)

# Administrative acts, outside the event logs; rows outlive their experiment.
audit = sa.Table(
    "audit",
    metadata,
    sa.Column("audit_id", sa.String(64), primary_key=True),
    sa.Column("experiment_id", sa.String(64), nullable=False, index=True),
    sa.Column("name", sa.String(255), nullable=False),
    sa.Column("act", sa.String(16), nullable=False),
    sa.Column("made_by", sa.String(255)),
    sa.Column("reason", sa.Text),
    sa.Column("key_id", sa.String(32)),
    sa.Column("created_at", UtcDateTime, nullable=False),
)

events = sa.Table(
    "events",
    metadata,
    _of_experiment(),  # on Postgres without the foreign key: migration 0005
    sa.Column("event_offset", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("event_key", sa.String(255), nullable=False),
    sa.Column("request_id", sa.String(255)),
    sa.Column("request_hash", sa.String(128)),
    sa.Column("domain", sa.String(16)),
    sa.Column("arm", sa.String(255)),
    sa.Column("reward", sa.Double),
    sa.Column("policy_version", sa.BigInteger),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("payload", sa.LargeBinary, nullable=False),
    sa.Column("context", sa.LargeBinary),
    sa.UniqueConstraint("kind", "event_key"),
)

sa.Index(
    "uq_events_experiment_id_request_id_domain",
    events.c.experiment_id,
    events.c.request_id,
    events.c.domain,
    unique=True,
    postgresql_where=events.c.request_id.is_not(None),
    sqlite_where=events.c.request_id.is_not(None),
)

# All events except decisions, rewards and contexts.
LIFECYCLE = sa.text("kind NOT IN ('decision', 'reward', 'contexts')")
sa.Index(
    "ix_events_lifecycle",
    events.c.experiment_id,
    events.c.event_offset,
    postgresql_where=LIFECYCLE,
    sqlite_where=LIFECYCLE,
)
TARGET_REWARD = sa.text("kind = 'reward' AND domain = 'target'")
sa.Index(
    "ix_events_target_reward",
    events.c.experiment_id,
    events.c.event_offset,
    postgresql_where=TARGET_REWARD,
    sqlite_where=TARGET_REWARD,
)

# The files that hold the decisions and rewards of a log up to `experiments.archived_offset`.
log_segments = sa.Table(
    "log_segments",
    metadata,
    _of_experiment(),
    sa.Column("last_offset", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("first_offset", sa.BigInteger, nullable=False),
    # Smallest and largest decision id, as bytes: databases sort text differently.
    sa.Column("first_key", sa.LargeBinary),
    sa.Column("last_key", sa.LargeBinary),
    sa.Column("events", sa.BigInteger, nullable=False),
    sa.Column("last_reward_offset", sa.BigInteger, nullable=False),
    sa.Column("target_rewards", sa.BigInteger, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("sha256", sa.String(64), nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
)

# The requests of archived decisions, as 64-bit hashes; a hit is looked up in its segment.
archived_requests = sa.Table(
    "archived_requests",
    metadata,
    sa.Column("experiment_key", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("request_key", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("event_offset", sa.BigInteger, primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)

candidates = sa.Table(
    "candidates",
    metadata,
    _of_experiment(),
    sa.Column("episode", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("sha256", sa.String(64), nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("is_pinned", sa.Boolean, nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("verdict", sa.Text, nullable=False),
    sa.Column("blob", sa.LargeBinary, nullable=False),
)

transfers = sa.Table(
    "transfers",
    metadata,
    _of_experiment(),
    sa.Column("encoder_version", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("event_offset", sa.BigInteger, nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("judgement", sa.Text, nullable=False),
)

snapshots = sa.Table(
    "snapshots",
    metadata,
    _of_experiment(),
    sa.Column("version", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("event_offset", sa.BigInteger, nullable=False),
    sa.Column("encoder_version", sa.BigInteger, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("state_hash", sa.String(128), nullable=False),
    sa.Column("sha256", sa.String(64), nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("is_pinned", sa.Boolean, nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("note", sa.Text, nullable=False),
    sa.Column("blob", sa.LargeBinary, nullable=False),
)

# Parts of large blobs, by the hash of the complete blob (see `snapshots.write_parts`).
blob_parts = sa.Table(
    "blob_parts",
    metadata,
    _of_experiment(),
    sa.Column("sha256", sa.String(64), primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("content", sa.LargeBinary, nullable=False),
)

# Parts of accepted or arriving histories; each is deleted once its rounds are in the log.
history_parts = sa.Table(
    "history_parts",
    metadata,
    _of_experiment(),
    sa.Column("sha256", sa.String(64), primary_key=True),
    sa.Column("first_row", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("created_at", UtcDateTime, nullable=False),  # read often: SQLite walks past blobs
    sa.Column("content", sa.LargeBinary, nullable=False),
)

evaluations = sa.Table(
    "evaluations",
    metadata,
    sa.Column("evaluation_id", sa.String(64), primary_key=True),
    sa.Column(
        "experiment_id",
        sa.String(64),
        sa.ForeignKey("experiments.experiment_id"),
        nullable=False,
    ),
    sa.Column("request_id", sa.String(255)),
    sa.Column("request", sa.Text, nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("done", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("total", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("holder", sa.String(255)),
    sa.Column("expires_at", UtcDateTime),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("ended_at", UtcDateTime),
    sa.Column("problem", sa.Text),
    sa.Column("result", sa.Text),
    sa.UniqueConstraint("experiment_id", "request_id"),
)

api_keys = sa.Table(
    "api_keys",
    metadata,
    sa.Column("key_id", sa.String(32), primary_key=True),
    sa.Column("label", sa.String(255), nullable=False),
    sa.Column("tenant", sa.String(64), nullable=False),
    sa.Column("experiments", sa.Text),  # a JSON array of names; null: all of the tenant's
    sa.Column("scopes", sa.String(255), nullable=False),
    sa.Column("requests_per_second", sa.Double, nullable=False),
    sa.Column("burst", sa.BigInteger, nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("expires_at", UtcDateTime),
    sa.Column("revoked_at", UtcDateTime),
)


def _of_key() -> sa.Column[str]:
    return sa.Column("key_id", sa.String(32), sa.ForeignKey("api_keys.key_id"), nullable=False)


key_secrets = sa.Table(
    "key_secrets",
    metadata,
    sa.Column("sha256", sa.String(64), primary_key=True),
    _of_key(),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("expires_at", UtcDateTime),
)

# Append-only: the number of rows is the version that serving processes poll.
key_changes = sa.Table(
    "key_changes",
    metadata,
    sa.Column("change_id", sa.String(64), primary_key=True),
    _of_key(),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("made_by", sa.String(255), nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
)

# Console sessions that were ended by logging out, until they would have expired.
ended_sessions = sa.Table(
    "ended_sessions",
    metadata,
    sa.Column("sha256", sa.String(64), primary_key=True),
    sa.Column("expires_at", UtcDateTime, nullable=False),
)

# One row, made by a migration: the key that signs snapshots in Redis. It never leaves in a backup.
snapshot_keys = sa.Table(
    "snapshot_keys", metadata, sa.Column("secret", sa.LargeBinary, primary_key=True)
)


def columns_without(table: sa.Table, *names: str) -> tuple[sa.Column[Any], ...]:
    """The columns of a table in order, without those of these names."""
    return tuple(column for column in table.columns if column.name not in names)


def padded(values: Sequence[Value]) -> list[Value]:
    """The distinct values, padded by repetition to a power of two.

    Otherwise `IN` lists of every length would be compiled and prepared as separate statements.
    """
    distinct = list(dict.fromkeys(values))
    size = 1 << max(len(distinct) - 1, 0).bit_length()
    return distinct + distinct[:1] * (size - len(distinct))
