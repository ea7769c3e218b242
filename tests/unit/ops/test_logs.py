"""One JSON line an event."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from service.ops import logs


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    yield stream
    root.handlers, root.level = handlers, level
    for name in logs.OUR_LOGGERS:
        logging.getLogger(name).setLevel(logging.NOTSET)


def written(stream: io.StringIO) -> dict[str, Any]:
    line: dict[str, Any] = json.loads(stream.getvalue())
    return line


def test_a_line_has_its_action_and_what_the_context_binds(lines: io.StringIO):
    with logs.bound(request_id="r-1"), logs.bound(experiment="doses"):
        logging.getLogger("here").info("done", extra={"action": "snapshot_saved", "version": 3})
    line = written(lines)
    assert list(line)[:5] == ["time", "level", "logger", "action", "message"]
    assert (line["action"], line["level"], line["logger"]) == ("snapshot_saved", "info", "here")
    assert (line["request_id"], line["experiment"], line["version"]) == ("r-1", "doses", 3)
    assert line["time"].endswith("+00:00")


def test_bound_fields_are_removed_afterwards():
    with logs.bound(request_id="r-1"):
        pass
    assert dict(logs.context()) == {}


def test_an_exception_is_named_but_not_quoted(lines: io.StringIO):
    try:
        float("0.123 and no number")
    except ValueError:
        logging.getLogger().exception("failed", extra={"action": "request_failed"})
    line = written(lines)
    assert line["exception"] == "ValueError"
    assert any("test_logs.py" in frame for frame in line["stack"])
    assert "could not convert" not in lines.getvalue()


def test_lines_below_the_level_are_dropped(lines: io.StringIO):
    logging.getLogger().debug("too much")
    logging.getLogger("uvicorn.error").info("started")
    logging.getLogger("alembic.runtime.migration").info("Running upgrade")
    assert lines.getvalue() == ""


def test_debug_lines_are_ours_alone(lines: io.StringIO):
    logs.configure("debug", "json", lines)
    logging.getLogger("aiosqlite").debug("executing INSERT … 0.88")
    assert lines.getvalue() == ""
    logging.getLogger("service.anything").debug("ours")
    assert written(lines)["message"] == "ours"


def test_a_terminal_gets_lines_for_people():
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.ConsoleFormatter())
    record = logging.makeLogRecord(
        {"msg": "saved", "levelname": "INFO", "action": "snapshot_saved"}
    )
    handler.handle(record)
    assert "saved" in stream.getvalue()
    assert "action=snapshot_saved" in stream.getvalue()
