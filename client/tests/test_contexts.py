"""Contexts of every kind become what the service reads."""

import struct
from array import array
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from daband_client import Client, ContextError, Round
from daband_client.contexts import Matrix, is_row, many, one
from daband_client.ids import new_id
from scripted import Script

NUMBERS = [1.0, 2.0, -0.5]
FLOAT32 = struct.pack("<3f", *NUMBERS)


class Frame:
    """What a frame of any library is, to the client: columns, given as an Arrow stream."""

    def __init__(self, arrow: Any) -> None:
        self._arrow = arrow
        self.columns = arrow.column_names

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._arrow.__arrow_c_stream__(requested_schema)


class Column:
    """The same for a Series."""

    def __init__(self, arrow: Any) -> None:
        self._arrow = arrow

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._arrow.__arrow_c_stream__(requested_schema)


def rows(given: Any) -> tuple[int, int, bytes]:
    """Count, bytes of a row and content of contexts that become a matrix."""
    found = many(given)
    assert isinstance(found, Matrix)
    return found.count, found.row_bytes, found.read(0, found.count)


def test_lists_and_bytes_are_sent_as_they_are() -> None:
    assert one(NUMBERS) is NUMBERS
    assert one(FLOAT32) is FLOAT32
    assert many([NUMBERS, tuple(NUMBERS)]) == [NUMBERS, tuple(NUMBERS)]
    assert rows(FLOAT32 * 2) == (1, 24, FLOAT32 * 2)


def test_a_list_of_numbers_is_one_context() -> None:
    assert many(NUMBERS) == [NUMBERS]


@pytest.mark.parametrize("code", ["f", "d"])
def test_buffers_become_float32_without_numpy(without: Any, code: Literal["f", "d"]) -> None:
    without("numpy")
    buffer = array(code, NUMBERS)
    assert one(buffer) == FLOAT32
    assert one(memoryview(buffer)) == FLOAT32
    assert rows(memoryview(buffer).cast("B").cast(code, [1, 3])) == (1, 12, FLOAT32)
    assert rows(memoryview(buffer).cast("B").cast(code, [3, 1])) == (3, 4, FLOAT32)


def test_what_is_no_context_says_what_would_help(without: Any) -> None:
    without("numpy")
    with pytest.raises(ContextError, match=r"SimpleNamespace is no context.*install numpy"):
        one(SimpleNamespace())


def test_arrays_become_float32() -> None:
    numpy = pytest.importorskip("numpy")
    assert one(numpy.array(NUMBERS)) == FLOAT32
    assert rows(numpy.array([NUMBERS, NUMBERS])) == (2, 12, FLOAT32 * 2)
    assert rows(numpy.asfortranarray([NUMBERS, NUMBERS])) == (2, 12, FLOAT32 * 2)
    assert rows(numpy.array(NUMBERS)) == (1, 12, FLOAT32)
    assert many([numpy.array(NUMBERS), NUMBERS]) == [NUMBERS, NUMBERS]
    assert rows(numpy.zeros((5, 2, 2)))[:2] == (5, 16)
    with pytest.raises(ContextError, match="object is no context"):
        one(numpy.array(["a", None]))


def test_values_beyond_float32_are_left_to_the_service() -> None:
    numpy = pytest.importorskip("numpy")
    assert one(numpy.array([1e39])) == struct.pack("<f", float("inf"))


def test_frames_become_matrices_through_arrow() -> None:
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table(
        {
            "age": [41, 38],
            "dose": arrow.chunked_array([[0.5], [1.5]]),
            "treated": [True, False],
        }
    )
    expected = struct.pack("<6f", 41, 0.5, 1, 38, 1.5, 0)
    assert rows(Frame(table)) == rows(table) == (2, 12, expected)
    assert rows(Frame(table.slice(1))) == (1, 12, expected[12:])


def test_a_series_is_one_context() -> None:
    arrow = pytest.importorskip("pyarrow")
    series = Column(arrow.chunked_array([NUMBERS[:1], NUMBERS[1:]]))
    assert one(series) == FLOAT32
    assert rows(series) == (1, 12, FLOAT32)
    assert many([series, series]) == [NUMBERS, NUMBERS]


def test_large_integers_are_rounded_as_numpy_does() -> None:
    arrow = pytest.importorskip("pyarrow")
    assert one(Column(arrow.chunked_array([[16_777_217]]))) == struct.pack("<f", 16_777_216)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (["B6", "BALB"], "column 'strain' is of type string: only numbers can be sent"),
        ([1.0, None], "column 'strain' has 1 missing values: fill or drop them"),
    ],
)
def test_a_column_that_cannot_be_sent_is_named(column: list[Any], message: str) -> None:
    arrow = pytest.importorskip("pyarrow")
    with pytest.raises(ContextError, match=message):
        many(Frame(arrow.table({"age": [1, 2], "strain": column})))


def test_a_frame_without_arrow_says_what_to_install(without: Any) -> None:
    without("pyarrow", "numpy")
    with pytest.raises(ContextError, match="Frame can be sent when pyarrow is installed"):
        many(Frame(SimpleNamespace(column_names=["a"])))


@pytest.mark.parametrize("hidden", [(), ("pyarrow",)])
def test_frames_and_series_of_pandas(without: Any, hidden: tuple[str, ...]) -> None:
    pandas = pytest.importorskip("pandas")
    without(*hidden)
    ids = [7, 8, 9]  # an index, which Arrow would append as a column
    frame = pandas.DataFrame({"age": [41, 12, 38], "dose": [0.5, 9.0, 1.5]}, index=ids)
    chosen = frame[frame["age"] > 20]
    expected = struct.pack("<4f", 41, 0.5, 38, 1.5)
    assert rows(chosen) == (2, 8, expected)
    assert rows(chosen.iloc[0]) == (1, 8, expected[:8])
    assert one(frame["dose"]) == struct.pack("<3f", 0.5, 9, 1.5)
    with pytest.raises(ContextError, match=r"object|string"):
        many(pandas.DataFrame({"age": [41], "strain": ["B6"]}))
    with pytest.raises(ContextError, match=r"Series .*is no context"):
        one(pandas.DataFrame({"age": [41], "strain": ["B6"]}).iloc[0])


def test_a_round_keeps_its_id() -> None:
    body = Round(source=array("d", NUMBERS), target=NUMBERS, eligible_arms=("low",)).body()
    assert len(body["request_id"]) == 36
    assert body["source"] == {"context": FLOAT32}
    assert body["target"] == {"context": NUMBERS}
    assert body["eligible_arms"] == ["low"]
    assert Round(source=NUMBERS, request_id="mine").body("batch/0")["request_id"] == "mine"
    assert Round(source=NUMBERS).body("batch/0")["request_id"] == "batch/0"


def test_a_bare_context_is_no_round() -> None:
    with Client("http://test", transport=Script()) as client:
        for ask in (client.select, lambda name, each: client.select_many(name, [each])):
            with pytest.raises(ContextError, match=r"a dict is no round: write Round\(source=…\)"):
                ask("mice", {"age": 41})  # type: ignore[arg-type]


def test_a_mapping_is_a_context_for_each_arm_or_a_row_of_a_table() -> None:
    row = {"age": 41, "strain": "B6", "treated_before": None}
    assert Round({"low": NUMBERS}).body()["source"] == {"contexts": {"low": NUMBERS}}
    assert Round({"low": array("f", NUMBERS)}).body()["source"] == {"contexts": {"low": FLOAT32}}
    assert Round(row).body()["source"] == {"context": row}
    assert Round({"low": row}).body()["source"] == {"contexts": {"low": row}}
    assert many(row) == many([row]) == [row]
    assert is_row(row)


def test_ids_sort_by_the_time_they_were_made() -> None:
    ids = [new_id() for _ in range(3)]
    assert [each[14] for each in ids] == ["7"] * 3
    assert len(set(ids)) == 3
