"""Log lines: one JSON object per line, with a fixed `action` word and the fields of the context.

Contexts, rewards, keys and URLs are never logged. Of an exception only type and stack are logged, because
its message may quote values.
"""

import json
import logging
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, TextIO

EMPTY: Mapping[str, Any] = MappingProxyType({})
_context: ContextVar[Mapping[str, Any]] = ContextVar("log_context", default=EMPTY)

STANDARD_FIELDS = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
FOREIGN_FIELDS = frozenset({"color_message"})  # added by uvicorn
OUR_LOGGERS = ("service", "model")
QUIET_LOGGERS = dict.fromkeys(("uvicorn.error", "httpx", "alembic"), logging.WARNING)


def enter(**fields: Any) -> Token[Mapping[str, Any]]:
    """Add fields to all lines of this task until `leave`."""
    outer = _context.get()
    return _context.set({**outer, **fields} if outer else fields)


def leave(token: Token[Mapping[str, Any]]) -> None:
    """Undo `enter`."""
    _context.reset(token)


@contextmanager
def bound(**fields: Any) -> Iterator[None]:
    """Add fields to all lines within the block."""
    token = enter(**fields)
    try:
        yield
    finally:
        leave(token)


def context() -> Mapping[str, Any]:
    """The fields bound now."""
    return _context.get()


def configure(level: str, style: str = "auto", stream: TextIO | None = None) -> None:
    """Write all lines to standard output: readable on a terminal, JSON elsewhere.

    Only our own debug lines are logged, because those of libraries quote values such as rewards.
    """
    stream = stream or sys.stdout
    is_console = style == "console" or (style == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(ConsoleFormatter() if is_console else JsonFormatter())
    root = logging.getLogger()
    root.handlers = [handler]
    own_level = logging.getLevelNamesMapping()[level.upper()]
    root.setLevel(max(logging.INFO, own_level))
    for name in OUR_LOGGERS:
        logging.getLogger(name).setLevel(own_level)
    for name, least in QUIET_LOGGERS.items():
        logging.getLogger(name).setLevel(max(least, root.level))


class JsonFormatter(logging.Formatter):
    """A line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, logger, action and message first."""
        return json.dumps(line_of(record), default=str, ensure_ascii=False)


class ConsoleFormatter(logging.Formatter):
    """A line for people."""

    def format(self, record: logging.LogRecord) -> str:
        """Time of day, level, message, then the fields."""
        line = line_of(record)
        moment, level, message = line.pop("time"), line.pop("level"), line.pop("message")
        stack = line.pop("stack", [])
        fields = " ".join(f"{name}={value}" for name, value in line.items())
        return "\n".join((f"{moment[11:19]} {level:7} {message}  {fields}", *stack))


def line_of(record: logging.LogRecord) -> dict[str, Any]:
    """The fields of a line."""
    given = {
        name: value
        for name, value in record.__dict__.items()
        if name not in STANDARD_FIELDS and name not in FOREIGN_FIELDS
    }
    moment = datetime.fromtimestamp(record.created, UTC)
    return {
        "time": moment.isoformat(timespec="milliseconds"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "action": given.pop("action", "other"),
        "message": record.getMessage(),
        **_context.get(),
        **given,
        **_failure(record),
    }


def _failure(record: logging.LogRecord) -> dict[str, Any]:
    if not record.exc_info or record.exc_info[0] is None:
        return {}
    kind, _, trace = record.exc_info
    return {
        "exception": kind.__name__,
        "stack": [frame.rstrip() for frame in traceback.format_tb(trace)],
    }
