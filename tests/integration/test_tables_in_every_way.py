"""The same good and bad tables by each of the five ways in: a clear refusal, and nothing half imported."""

import asyncio
import csv
import io
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from daband_client import AsyncClient, ContextError, ProblemError
from service.cli.fit.tables import FitError, FitTables, surveyed
from service.cli.main import app as command_line
from service.columns.seen import ColumnTypes
from tests.support.api import DOSES, Api, asgi, running_api
from tests.support.storage import sqlite_url
from tests.support.tables import COLUMNS

NAMES = ("age", "strain", "treated_before", "stage")
GOOD = [(41.5, "B6", True, "II"), (40.0, "BALB", False, "I"), (3.25, "B6", False, "III")]
ROUNDS = ("dose", "gain")
ARMS = ("low", "mid", "high")
HUGE = tuple(f"c{number}" for number in range(10_000))

UNKNOWN, MISSING = "Unknown column `tail`", "Column `treated_before` is missing"
WRONG = "Column `age` takes a finite number"
LEVEL = "Column `stage` takes one of I, II, III, or null"
ABSENT = "Column `strain` may not be missing"
TWICE = "Column names must be unique; `age` is not"


@dataclass(frozen=True)
class Table:
    """Rows under names, and what each way says of them; None: they are taken."""

    says: Mapping[str, str | None]
    names: tuple[str, ...] = NAMES
    rows: list[tuple[Any, ...]] = field(default_factory=lambda: list(GOOD))

    def text(self, *, is_history: bool) -> str:
        """As CSV; a history has an arm and a reward in each row."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([*self.names, *(ROUNDS if is_history else ())])
        for number, row in enumerate(self.rows):
            round_ = (ARMS[number % 3], number % 2) if is_history else ()
            writer.writerow(["" if each is None else each for each in (*row, *round_)])
        return stream.getvalue()

    def dicts(self) -> list[dict[str, Any]]:
        return [dict(zip(self.names, row, strict=True)) for row in self.rows]


def refusals_of(text: str | None, **others: str | None) -> dict[str, str | None]:
    """The refusal by each way: `text`, except for `others`."""
    return dict.fromkeys(WAYS, text) | others


def with_last(*row: Any) -> list[tuple[Any, ...]]:
    return [*GOOD, row]


async def as_json(api: Api, table: Table, folder: Path) -> str | None:
    """Rows in a request."""
    body = {"experiment": "json", "contexts": table.dicts(), "store": True}
    return refusal(await api.http.post("/target/select", json=body))


async def as_file(api: Api, table: Table, folder: Path) -> str | None:
    """A file as the body of a request."""
    return await sent_history(api, "file", table.text(is_history=True).encode())


async def as_import(api: Api, table: Table, folder: Path) -> str | None:
    """`daband log import` into the experiment."""
    path = folder / "mice.csv"
    path.write_text(table.text(is_history=True))
    done = await imported(path, "import")
    assert done.exit_code in (0, 2), done.output
    return done.output if done.exit_code else None


async def as_fit(api: Api, table: Table, folder: Path) -> str | None:
    """The target of `daband fit`, beside a good source; all is read before anything begins."""
    source, target = folder / "source.csv", folder / "target.csv"
    source.write_text(GOOD_TABLE.text(is_history=True))
    target.write_text(table.text(is_history=False))
    types = ColumnTypes(ordinal={"stage": ("I", "II", "III")})
    try:
        await asyncio.to_thread(surveyed, FitTables(source, target, *ROUNDS, types=types))
    except FitError as error:
        return str(error)
    return None


async def as_frame(api: Api, table: Table, folder: Path) -> str | None:
    """A DataFrame that the client uploads."""
    frame = pd.DataFrame(table.rows, columns=list(table.names))
    transport = httpx.ASGITransport(asgi(api.app, api.services))
    async with AsyncClient("http://test", transport=transport) as client:
        try:
            await client.upload_contexts("frame", frame)
        except (ContextError, ProblemError, ValueError) as error:
            return str(error)
    return None


WAYS: dict[str, Callable[[Api, Table, Path], Awaitable[str | None]]] = {
    "json": as_json,
    "file": as_file,
    "import": as_import,
    "fit": as_fit,
    "frame": as_frame,
}
GOOD_TABLE = Table(refusals_of(None))
TABLES: dict[str, Table] = {
    "good": GOOD_TABLE,
    "another order": Table(refusals_of(None), NAMES[::-1], [row[::-1] for row in GOOD]),
    "an unknown column": Table(
        refusals_of(UNKNOWN, fit="Column `tail` is in target.csv, but not in source.csv"),
        (*NAMES, "tail"),
        [(*row, 3) for row in GOOD],
    ),
    "a missing column": Table(
        refusals_of(MISSING, fit="Column `treated_before` is in source.csv, but not in target.csv"),
        ("age", "strain", "stage"),
        [(age, strain, stage) for age, strain, _, stage in GOOD],
    ),
    "a wrong type": Table(
        refusals_of(
            WRONG,
            fit="row 31: Column `age` of target.csv holds a text among numbers",
            frame="Conversion failed for column age",
        ),
        rows=[*GOOD * 10, ("secret", "B6", True, "I")],
    ),
    "an unknown rank": Table(
        refusals_of(LEVEL, fit="Column `stage` has other levels than I, II, III"),
        rows=with_last(1.5, "B6", True, "IV"),
    ),
    "an unknown category": Table(refusals_of(None), rows=with_last(1.5, "wild", True, "I")),
    "one value missing": Table(refusals_of(ABSENT, fit=None), rows=with_last(1.5, None, True, "I")),
    "all values missing": Table(refusals_of(ABSENT, fit=None), rows=[(1.5, None, True, "I")] * 3),
    "every cell missing": Table(
        refusals_of("may not be missing", fit="target.csv has no rows"),
        rows=[(None, None, None, None)] * 3,
    ),
    "10^4 columns": Table(
        refusals_of(
            "columns; there may be 4096", json="Unknown column `c0`", frame="Unknown column `c0`"
        ),
        HUGE,
        [HUGE],
    ),
    "names that are there twice": Table(
        refusals_of(
            TWICE, json=None, frame="Duplicate column names"
        ),  # JSON: the last value counts
        ("age", *NAMES),
        [(1.5, *row) for row in GOOD],
    ),
    "no rows": Table(
        refusals_of(
            "no rows",
            json="must have 1 to 1000",
            frame="no contexts to send",
            fit="target.csv has no rows",
        ),
        rows=[],
    ),
}


@pytest.fixture(autouse=True)
def _keeps_logging(keeps_logging: None) -> None:
    """The command does not change the logging of the tests after it."""


@pytest.fixture
async def mice(sqlite_template: Path, tmp_path: Path) -> AsyncIterator[Api]:
    """An experiment for each way, in a database that the command line finds in the test's folder."""
    path = tmp_path / "daband.db"
    shutil.copy(sqlite_template, path)
    async with running_api(sqlite_url(path)) as api:
        context = {"kind": "table", "columns": COLUMNS}
        for name in WAYS:
            declared = {**DOSES, "name": name, "context": context}
            answer = await api.http.post("/experiments", json=declared)
            assert answer.status_code == 201, answer.text
        yield api


async def imported(path: Path, experiment: str) -> Result:
    """`daband log import`, with the database beside the file."""
    words = ["log", "import", experiment, str(path), "--arm", "dose", "--reward", "gain"]
    words += ["--data-dir", str(path.parent)]
    return await asyncio.to_thread(CliRunner().invoke, command_line, words)


def refusal(answer: httpx.Response) -> str | None:
    assert answer.status_code in (200, 201, 422), answer.text
    return answer.text if answer.status_code == 422 else None


async def sent_history(api: Api, name: str, content: bytes) -> str | None:
    query = {"arm": "dose", "reward": "gain"}
    return refusal(
        await api.http.post(
            f"/experiments/{name}/history",
            content=content,
            params=query,
            headers={"content-type": "text/csv"},
        )
    )


@pytest.mark.parametrize("name", TABLES)
async def test_a_table_is_taken_whole_or_refused_with_its_reason(
    mice: Api, tmp_path: Path, name: str
):
    for way, send in WAYS.items():
        expected = TABLES[name].says[way]
        found = await send(mice, TABLES[name], tmp_path)
        is_written = await mice.last_offset(way) > 0
        assert is_written == (expected is None and way != "fit")  # a fit has a log of its own
        assert (found is None) == (expected is None), (way, found)
        assert (expected or "") in (found or ""), way
        assert "secret" not in (found or ""), way


# A CSV file as people's programs write it; each is the good table.
PLAIN = GOOD_TABLE.text(is_history=True)
SPELLINGS = {
    "a BOM": b"\xef\xbb\xbf" + PLAIN.encode(),
    "semicolons and decimal commas": PLAIN.replace(",", ";").replace(".", ",").encode(),
    "quotes": "\n".join(
        ",".join(f'"{cell}"' for cell in line.split(",")) for line in PLAIN.splitlines()
    ).encode(),
    "CRLF": PLAIN.replace("\n", "\r\n").encode(),
    "UTF-16": PLAIN.replace(",", "\t").encode("utf-16"),
    "empty columns beside it and empty rows below it": (
        PLAIN.replace("\n", ",,\n") + "," * (len(NAMES) + len(ROUNDS) + 1) + "\n"
    ).encode(),
    "row numbers without a name": "\n".join(
        f"{number or ''},{line}" for number, line in enumerate(PLAIN.splitlines())
    ).encode(),
}


@pytest.mark.parametrize("name", SPELLINGS)
async def test_a_csv_file_means_the_same_however_it_is_written(
    mice: Api, tmp_path: Path, name: str
):
    """By each way that takes files: what the first imports, the others know already."""
    content = SPELLINGS[name]
    assert await sent_history(mice, "file", PLAIN.encode()) is None
    before = await mice.last_offset("file")
    assert await sent_history(mice, "file", content) is None
    path = tmp_path / "mice.csv"
    path.write_bytes(content)
    done = await imported(path, "file")
    assert "3 rounds with 3 rewards" in done.output
    assert "were already in file" in done.output
    transport = httpx.ASGITransport(asgi(mice.app, mice.services))
    async with AsyncClient("http://test", transport=transport) as client:
        again = await client.import_history("file", path, arm="dose", reward="gain")
    assert again.status == "already_recorded"
    assert await mice.last_offset("file") == before
    tables = FitTables(path, path, *ROUNDS)
    assert [each["name"] for each in surveyed(tables).context["columns"]] == list(NAMES)
