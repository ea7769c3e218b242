"""Connections to Postgres: to one of several hosts, directly or through a connection pooler.

Poolers such as PgBouncer in transaction pooling give each transaction another session of the server.
A session's settings and prepared statements would be lost or met by others, so neither is used there.
"""

from typing import Any, cast

import asyncpg
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql.asyncpg import AsyncAdapt_asyncpg_connection as PGConnection
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from service.ops.addresses import split_hosts
from service.storage.drivers.driver_errors import DRIVER_ERRORS, READ_ONLY, sqlstate
from service.storage.drivers.options import DatabaseOptions, milliseconds

PORT = 5432
# Statements without a name live until the next one; such a statement is planned for its own values.
UNNAMED_STATEMENTS: dict[str, Any] = {
    "statement_cache_size": 0,
    "prepared_statement_cache_size": 0,
    "prepared_statement_name_func": lambda: "",
}


def parsed_url(url: str) -> sa.URL:
    """The URL; several hosts may be given as libpq has them, `postgresql://h1:p1,h2:p2/name`."""
    parts = split_hosts(url)
    if "," not in parts.hosts:
        return sa.make_url(url)
    hosts, ports = zip(*parts.addresses(PORT), strict=True)
    at = f"{parts.account}@" if parts.account else ""
    hostless = sa.make_url(f"{parts.scheme}://{at}{parts.path}?{parts.query}")
    return hostless.update_query_dict({"host": ",".join(hosts), "port": ",".join(map(str, ports))})


def set_limits(options: DatabaseOptions) -> str:
    """The statement that sets a transaction's limits, for that transaction only."""
    settings = ", ".join(f"set_config('{name}', '{ms}', true)" for name, ms in _limits(options))
    return f"SELECT {settings}"


def _limits(options: DatabaseOptions) -> list[tuple[str, str]]:
    return [
        ("lock_timeout", milliseconds(options.lock_timeout_seconds)),
        (
            "idle_in_transaction_session_timeout",
            milliseconds(options.idle_transaction_timeout_seconds),
        ),
    ]


def create_postgres(url: sa.URL, options: DatabaseOptions) -> AsyncEngine:
    """An engine that connects when it is first used."""
    engine = create_async_engine(
        url,
        pool_size=options.pool_size,
        max_overflow=0,
        pool_timeout=options.timeout_seconds,
        pool_use_lifo=True,
    )
    connector = Connector(options)

    @sa.event.listens_for(engine.sync_engine, "do_connect")
    def _connect(
        dialect: Dialect, _record: object, _arguments: object, parameters: dict[str, Any]
    ) -> PGConnection:
        return connector.connect(dialect, parameters)

    @sa.event.listens_for(engine.sync_engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        if connector.is_pooled and connection.get_execution_options().get("is_writer", False):
            connection.exec_driver_sql(set_limits(options))

    @sa.event.listens_for(engine.sync_engine, "handle_error")
    def _failed(context: sa.engine.ExceptionContext) -> None:
        # The server was demoted: a new connection may find the one that was promoted.
        if sqlstate(context.original_exception) == READ_ONLY:
            context.is_disconnect = True

    return engine


class Connector:
    """Connects to the first host that answers, and finds out whether a pooler is in between."""

    def __init__(self, options: DatabaseOptions) -> None:
        self._options = options
        self._last_host: dict[str, Any] = {}
        self.is_pooled: bool | None = None  # unknown

    def connect(self, dialect: Dialect, parameters: dict[str, Any]) -> PGConnection:
        """A connection; `parameters` are those of SQLAlchemy's driver."""
        try:
            return self._connected(dialect, parameters)
        except BaseException:
            self.is_pooled = None  # another server may be there next time
            raise

    def _connected(self, dialect: Dialect, parameters: dict[str, Any]) -> PGConnection:
        unnamed = parameters | UNNAMED_STATEMENTS
        if self.is_pooled is None:
            # A pooler refuses settings of a session, and would lend out the statements that we name.
            first = self._any_host(dialect, unnamed, {})
            self.is_pooled = _is_to_a_pooler(first)
            if self.is_pooled:
                return first
            first.terminate()
        if self.is_pooled:
            return self._any_host(dialect, unnamed, {})
        # A cached plan for a short log would scan a log that has grown.
        settings = {"plan_cache_mode": "force_custom_plan", **dict(_limits(self._options))}
        return self._any_host(dialect, parameters, settings)

    def _any_host(
        self, dialect: Dialect, parameters: dict[str, Any], settings: dict[str, str]
    ) -> PGConnection:
        """Try the hosts in turn, first the one that was good last."""
        hosts = sorted(_hosts(parameters), key=lambda host: host != self._last_host)
        # A host that is gone without a word must leave time for the next one.
        given = {**parameters, "timeout": self._options.timeout_seconds / len(hosts)}
        given["server_settings"] = {"application_name": "daband", **settings}
        if len(hosts) > 1:
            given.setdefault("target_session_attrs", "read-write")
        for number, host in enumerate(hosts, 1):
            try:
                connection = dialect.connect(**(given | host))
            except (dialect.loaded_dbapi.Error, *DRIVER_ERRORS):
                if number == len(hosts):
                    raise
            else:
                self._last_host = host
                return cast(PGConnection, connection)
        raise AssertionError("unreachable")


def _hosts(parameters: dict[str, Any]) -> list[dict[str, Any]]:
    """The parameters that name a host; none for the default one."""
    names = parameters.get("host")
    if isinstance(names, list):
        ports = parameters["port"]
        return [{"host": host, "port": port} for host, port in zip(names, ports, strict=True)]
    return [{name: parameters[name] for name in ("host", "port") if name in parameters}]


def _is_to_a_pooler(connection: PGConnection) -> bool:
    """Whether another process of the server answers than the one named at the start."""
    driver: asyncpg.Connection = connection.driver_connection
    answered = connection.run_async(lambda _: driver.fetchval("SELECT pg_backend_pid()"))
    return bool(answered != driver.get_server_pid())
