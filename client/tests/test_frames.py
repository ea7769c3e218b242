"""Data frames as rows of a table, where the experiment's contexts are such rows."""

from typing import Any

import httpx
import msgspec
import pytest

from daband_client import Client, ContextError
from daband_client.frames import frame_rows, is_frame

COLUMNS: list[dict[str, Any]] = [
    {"name": "age", "type": "numeric", "missing": True},
    {"name": "site", "type": "categorical", "values": ["1", "2"], "missing": True},
    {"name": "strain", "type": "categorical", "values": ["B6", "BALB"]},
    {"name": "treated", "type": "boolean"},
]
ROWS: list[dict[str, Any]] = [
    {"age": 3.5, "site": 1, "strain": "B6", "treated": True},
    {"age": None, "site": None, "strain": "BALB", "treated": False},
]
DECLARED = {"name": "mice", "arms": ["low"], "method": "daband", "seed": 0, "config": {}}


class Service(httpx.BaseTransport):
    """Answers for one experiment and keeps what it was sent."""

    def __init__(self, context: dict[str, Any]) -> None:
        declared = {**DECLARED, "context": context}
        self.experiment = declared | {
            "experiment_id": "x", "recipe": 1, "declared": declared, "phase": "zero_shot",
            "status": "active", "created_at": "2026-01-01T00:00:00Z",
        }  # fmt: skip
        self.sent: list[httpx.Request] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, json=self.experiment)
        self.sent.append(request)
        stored = {
            "experiment": "mice", "request_id": "r", "status": "created", "contexts": 1, "offset": 1
        }  # fmt: skip
        selected = {
            "experiment": "mice", "policy_version": 1, "encoder_version": 1, "decisions": []
        }  # fmt: skip
        return httpx.Response(200, json=stored if "contexts" in request.url.path else selected)


def frame() -> Any:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    values: dict[str, Any] = {name: [row[name] for row in ROWS] for name in ROWS[0]}
    return pandas.DataFrame(values, index=[7, 8])


def test_a_frame_is_sent_as_rows_of_a_table() -> None:
    service = Service({"kind": "table", "shape": [8], "columns": COLUMNS})
    with Client("http://test", transport=service) as client:
        client.target_select("mice", frame())
        client.target_select("mice", frame().iloc[0])
        client.upload_contexts("mice", frame())
        client.upload_contexts("mice", frame().iloc[1])
    many, one = (msgspec.msgpack.decode(each.content)["contexts"] for each in service.sent[:2])
    assert (many, one) == (ROWS, ROWS[:1])
    lines = [each.content.splitlines() for each in service.sent[2:]]
    assert [[msgspec.json.decode(line) for line in each] for each in lines] == [ROWS, ROWS[1:]]


def test_a_frame_is_sent_as_numbers_where_contexts_are_vectors() -> None:
    service = Service({"kind": "shared", "shape": [2]})
    numbers = frame()[["age"]].fillna(0.0).assign(dose=1.0)
    with Client("http://test", transport=service) as client:
        client.target_select("mice", numbers)
    assert len(msgspec.msgpack.decode(service.sent[0].content)["contexts"]) == 16


def test_frames_of_polars_are_rows() -> None:
    polars = pytest.importorskip("polars")
    pytest.importorskip("pyarrow")
    assert frame_rows(polars.DataFrame(ROWS), COLUMNS) == ROWS
    assert not is_frame(polars.Series([1.0, 2.0]))


def test_what_arrow_reads_is_a_frame(without: Any) -> None:
    """As polars gives it: a stream of Arrow, and columns."""
    arrow = pytest.importorskip("pyarrow")

    class Frame:
        columns = tuple(ROWS[0])

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return arrow.Table.from_pylist(ROWS).__arrow_c_stream__(requested_schema)

    assert is_frame(Frame())
    assert frame_rows(Frame(), COLUMNS) == ROWS
    without("pyarrow")
    with pytest.raises(ContextError, match="when pyarrow is installed"):
        frame_rows(Frame(), COLUMNS)


def test_values_that_are_missing_in_pandas_are_none() -> None:
    pandas = pytest.importorskip("pandas")
    row = pandas.Series({"age": float("nan"), "site": pandas.NA, "strain": "B6", "treated": True})
    assert frame_rows(row, COLUMNS) == [
        {"age": None, "site": None, "strain": "B6", "treated": True}
    ]


@pytest.mark.parametrize("given", [[1.0], {"age": 1}, b"", [{"age": 1}]])
def test_all_else_is_no_frame(given: Any) -> None:
    assert not is_frame(given)
