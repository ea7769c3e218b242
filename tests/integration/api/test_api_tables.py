"""Contexts as rows of a table, in every call that takes a context."""

import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
import sqlalchemy as sa

from service.storage import tables
from tests.support.api import DOSES, Api, running_api
from tests.support.storage import sqlite_url
from tests.support.tables import BAD_ROWS, COLUMNS, ENCODED, MICE, MOUSE, SAMPLE

TABLE: dict[str, Any] = {**DOSES, "context": {"kind": "table", "columns": COLUMNS}}
OTHER = {**MOUSE, "age": None, "strain": "wild"}
LINES = {"content-type": "application/x-ndjson"}
PACKED = {"content-type": "application/msgpack"}


@pytest.fixture
async def api(sqlite_template: Path, tmp_path: Path) -> AsyncIterator[Api]:
    """The app without experiments; the kind of database makes no difference to rows."""
    path = tmp_path / "service.db"
    shutil.copy(sqlite_template, path)
    async with running_api(sqlite_url(path)) as running:
        yield running


@pytest.fixture
async def mice(api: Api) -> Api:
    """The API with an experiment of mice."""
    answer = await api.http.post("/experiments", json=TABLE)
    assert answer.status_code == 201, answer.text
    return api


async def declared(api: Api, **context: Any) -> httpx.Response:
    body = {**DOSES, "context": {"kind": "table", **context}}
    return await api.http.post("/experiments", json=body)


async def stored(api: Api) -> list[list[float]]:
    """The contexts that the log keeps, as the model sees them."""
    query = sa.select(tables.events.c.context).order_by(tables.events.c.event_offset)
    found = await api.services.database.read(lambda connection: connection.execute(query))
    contents = [each.context for each in found if each.context]
    return [row.tolist() for each in contents for row in np.frombuffer(each, "<f4").reshape(-1, 8)]


def error(answer: httpx.Response) -> tuple[str, str]:
    assert answer.status_code == 422, answer.text
    (found,) = answer.json()["errors"]
    return found["pointer"], found["detail"]


async def test_the_schema_is_complete_in_the_experiment(mice: Api):
    shown = (await mice.http.get("/experiments/doses")).json()
    context = {"kind": "table", "per_arm": False, "shape": [8], "columns": MICE.plain()}
    assert shown["context"] == shown["declared"]["context"] == context
    assert shown["config"]["slot_kinds"] == "mbbbbbmb"
    again = {**shown["declared"], "name": "copy"}
    assert (await mice.http.post("/experiments", json=again)).status_code == 201
    assert (await mice.http.get("/experiments/copy")).json()["context"] == context


async def test_a_schema_cannot_be_declared_again(mice: Api):
    other = {**TABLE, "context": {"kind": "table", "columns": COLUMNS[:2]}}
    assert (await mice.http.post("/experiments", json=other)).status_code == 409
    assert (await mice.http.get("/experiments/doses")).json()["context"]["shape"] == [8]


async def test_levels_and_fills_are_taken_from_a_sample_that_is_not_stored(api: Api):
    answer = await declared(api, sample=SAMPLE)
    assert answer.status_code == 201, answer.text
    columns = answer.json()["context"]["columns"]
    assert [each["name"] for each in columns] == ["age", "strain", "treated_before"]
    assert columns[0]["fill"] == 35.0
    assert columns[1]["values"] == ["B6", "BALB"]
    assert "sample" not in (await api.services.experiments.get("doses")).spec
    side = {"context": {"strain": "B6", "treated_before": True}}
    assert (await api.select(source=side)).status_code == 200


async def test_select_takes_rows_and_numbers_alike(mice: Api):
    answers = [
        await mice.select("a", source={"context": MOUSE}, target={"context": OTHER}),
        await mice.select("b", source={"context": ENCODED}),
    ]
    body = {"experiment": "doses", "request_id": "c", "target": {"context": MOUSE}}
    answers.append(
        await mice.http.post("/select", content=msgspec.msgpack.encode(body), headers=PACKED)
    )
    raw = np.array(ENCODED, "<f4").tobytes()
    query = {"experiment": "doses", "request_id": "d"}
    headers = {"content-type": "application/octet-stream"}
    answers.append(await mice.http.post("/select", params=query, content=raw, headers=headers))
    assert [each.status_code for each in answers] == [200] * 4
    assert await stored(mice) == [
        ENCODED,
        [40.0, 1.0, 0.0, 0.0, 1.0, *ENCODED[5:]],
        *[ENCODED] * 3,
    ]


async def test_the_same_row_under_the_same_id_is_answered_the_same(mice: Api):
    first = await mice.select("a", source={"context": MOUSE})
    again = await mice.select("a", source={"context": dict(reversed(MOUSE.items()))})
    assert first.json() == again.json()
    assert (await mice.select("a", source={"context": OTHER})).status_code == 409


async def test_a_batch_takes_rows(mice: Api):
    rounds = [{"source": {"context": row}} for row in (MOUSE, OTHER, ENCODED)]
    answer = await mice.http.post("/select/batch", json={"experiment": "doses", "rounds": rounds})
    assert answer.status_code == 200
    assert (await stored(mice))[::2] == [ENCODED] * 2


@pytest.mark.parametrize("is_packed", [False, True])
async def test_the_target_policy_takes_one_row_and_many(mice: Api, is_packed: bool):
    async def ask(**fields: Any) -> Any:
        body = {"experiment": "doses", **fields}
        content = msgspec.msgpack.encode(body) if is_packed else json.dumps(body).encode()
        headers = PACKED if is_packed else {"content-type": "application/json"}
        answer = await mice.http.post("/target/select", content=content, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()["decisions"]

    vectors = await ask(contexts=[ENCODED, ENCODED])
    assert await ask(contexts=[MOUSE, MOUSE]) == vectors
    assert await ask(contexts=[MOUSE, ENCODED]) == vectors
    assert await ask(context=MOUSE) == vectors[:1]
    await ask(contexts=[MOUSE, OTHER], store=True)
    assert (await stored(mice))[0] == ENCODED


async def test_an_upload_takes_rows_as_json_lines(mice: Api):
    content = b"\n\n".join(json.dumps(row).encode() for row in [MOUSE, OTHER, ENCODED] * 200)
    answer = await mice.http.post(
        "/target/contexts", params={"experiment": "doses"}, content=content, headers=LINES
    )
    assert (answer.status_code, answer.json()["contexts"]) == (201, 600)
    assert (await stored(mice))[::3] == [ENCODED] * 200


async def test_each_arm_may_have_a_row_of_its_own(api: Api):
    answer = await declared(api, columns=COLUMNS, per_arm=True)
    assert answer.status_code == 201, answer.text
    assert answer.json()["context"]["per_arm"] is True
    rows: dict[str, Any] = {"low": MOUSE, "mid": OTHER, "high": ENCODED}
    assert (await api.select(source={"contexts": rows})).status_code == 200
    assert (await stored(api))[::2] == [ENCODED] * 2
    body = {"experiment": "doses", "contexts": [rows, rows]}
    assert (await api.http.post("/target/select", json=body)).status_code == 200
    bad = {**rows, "mid": {**MOUSE, "tail": 3}}
    pointer, detail = error(await api.select(source={"contexts": bad}))
    assert (pointer, "Unknown column `tail`" in detail) == ("#/source/contexts/mid/tail", True)


@pytest.mark.parametrize(("row", "column", "reason"), BAD_ROWS)
async def test_a_bad_row_is_refused_by_every_call(mice: Api, row: Any, column: str, reason: str):
    rounds = [{"source": {"context": MOUSE}}, {"target": {"context": row}}]
    batch = {"experiment": "doses", "rounds": rounds}
    target = {"experiment": "doses", "contexts": [MOUSE, row]}
    lines = b"\n".join(json.dumps(each).encode() for each in [MOUSE, MOUSE, row])
    answers = {
        "#/source/context": await mice.select(source={"context": row}),
        "#/rounds/1/target/context": await mice.http.post("/select/batch", json=batch),
        "#/contexts/1": await mice.http.post("/target/select", json=target),
        "#/context": await mice.http.post(
            "/target/select", json={"experiment": "doses", "context": row}
        ),
        "#/2": await mice.http.post(
            "/target/contexts", params={"experiment": "doses"}, content=lines, headers=LINES
        ),
    }
    for place, answer in answers.items():
        pointer, detail = error(answer)
        assert pointer == f"{place}/{column}"
        assert reason in detail
    assert await stored(mice) == []


@pytest.mark.parametrize("context", ["mouse", 3, [1.0, 2.0], [[1.0] * 8], None, True])
async def test_what_is_neither_a_row_nor_numbers_is_refused(mice: Api, context: Any):
    assert error(await mice.select(source={"context": context}))[0].startswith("#/source")


async def test_a_column_is_a_step_of_the_pointer(api: Api):
    name = "a/b ~ c"
    columns = [{"name": name, "type": "numeric"}]
    assert (await declared(api, columns=columns)).status_code == 201
    pointer, _ = error(await api.select(source={"context": {name: "x"}}))
    assert pointer == "#/source/context/a~1b%20~0%20c"


@pytest.mark.parametrize(
    ("context", "place", "reason"),
    [
        ({}, "#/context/columns", "declares `columns`"),
        ({"columns": []}, "#/context/columns", "1 to 4096 columns"),
        ({"columns": [COLUMNS[0]] * 2}, "#/context/columns/age", "must be unique"),
        ({"columns": [{"name": "age"}]}, "#/context/columns/age", "no value in the sample"),
        ({"columns": [{"name": "age", "type": "date"}]}, "#/context/columns/0/type", "Invalid"),
        ({"columns": COLUMNS, "shape": [9]}, "#/context/shape", "follows from its columns"),
        ({"columns": COLUMNS[:1], "sample": SAMPLE}, "#/context/sample/0/strain", "Unknown column"),
        ({"sample": [{"a": 1}, {"a": "x"}]}, "#/context/columns/a", "mixes types"),
        ({"sample": [{"a": 1}] * 1001}, "#/context/sample", "length <= 1000"),
        (
            {"sample": [{f"c{n}": n for n in range(10_000)}]},
            "#/context/columns",
            "there are 10000",
        ),
        (
            {"columns": COLUMNS[:1], "sample": [{"age": 1}, {"age": "x"}]},
            "#/context/sample/1/age",
            "takes a finite number",
        ),
    ],
)
async def test_a_bad_table_is_not_created(api: Api, context: Any, place: str, reason: str):
    pointer, detail = error(await declared(api, **context))
    assert pointer == place
    assert reason in detail
    assert (await api.http.get("/experiments")).json()["experiments"] == []


@pytest.mark.parametrize(
    ("context", "place"),
    [
        ({"kind": "shared"}, "#/context/shape"),
        ({"kind": "shared", "shape": [4], "columns": COLUMNS}, "#/context/columns"),
        ({"kind": "per_arm", "shape": [4], "sample": SAMPLE}, "#/context/sample"),
        ({"kind": "shared", "shape": [4], "per_arm": True}, "#/context/per_arm"),
        ({"kind": "tables", "columns": COLUMNS}, "#/context/kind"),
    ],
)
async def test_other_contexts_have_no_columns(api: Api, context: Any, place: str):
    answer = await api.http.post("/experiments", json={**DOSES, "context": context})
    assert error(answer)[0] == place
