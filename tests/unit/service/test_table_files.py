"""Tables out of CSV and Parquet files: the shapes that labs send, and a clear message for the rest."""

import gzip
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.columns.resolving import resolved
from service.columns.schema import ColumnType, DeclaredColumn, TableError
from service.formats.rows import csv_rows
from service.formats.rows.csv_rows import CsvOptions
from service.formats.tables import TableFile
from tests.support.tables import MICE

ROWS = [
    [41.5, 0, 1, 0, 0, 1, 0.5, 0],
    [40, 1, 0, 0, 1, 0, 0.5, 1],
]
PLAIN = "age,strain,treated_before,stage\n41.5,B6,yes,II\nNA,wild,False,\n"
SPELLINGS = {
    "plain": PLAIN.encode(),
    "BOM": b"\xef\xbb\xbf" + PLAIN.encode(),
    "CRLF": PLAIN.replace("\n", "\r\n").encode(),
    "no last line end": PLAIN.removesuffix("\n").encode(),
    "semicolons and decimal commas": PLAIN.replace(",", ";").replace(".", ",").encode(),
    "tabs": PLAIN.replace(",", "\t").encode(),
    "spaces": PLAIN.replace(",", " , ").encode(),
    "quotes": b'"age","strain","treated_before","stage"\n"41.5","B6","1","II"\n"","wild","0",""\n',
    "a line break in a cell": b'age,strain,treated_before,stage\n41.5,B6,t,II\n,"wi\nld",f,\n',
    "UTF-16, tabs": PLAIN.replace(",", "\t").encode("utf-16"),
    "empty columns and rows of Excel": b"\xef\xbb\xbfage,strain,treated_before,stage,,\r\n"
    b"41.5,B6,yes,II,,\r\nNA,wild,False,,,\r\n,,,,,\r\n,,,,,\r\n",
    "row numbers of pandas and R": b",age,strain,treated_before,stage\n0,41.5,B6,1,II\n1,?,wild,0,.\n",
    "another order": b"stage,age,treated_before,strain\nII,41.5,TRUE,B6\n,,false,wild\n",
}


def encoded(path: Path, **options: str) -> list[list[float]]:
    found = TableFile(path, CsvOptions(**options)).encoded(MICE, 1000)
    return [row for _, slots in found for row in slots.tolist()]


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_table_is_read_however_it_is_written(tmp_path: Path, name: str):
    path = tmp_path / "mice.csv"
    path.write_bytes(SPELLINGS[name])
    assert encoded(path) == ROWS


def test_a_compressed_table_and_parquet_are_read(tmp_path: Path):
    (tmp_path / "mice.csv.gz").write_bytes(gzip.compress(PLAIN.encode()))
    assert encoded(tmp_path / "mice.csv.gz") == ROWS
    columns = {"age": [41.5, None], "strain": ["B6", "wild"], "treated_before": [True, False]}
    pq.write_table(pa.table({**columns, "stage": ["II", None]}), tmp_path / "mice.parquet")
    assert encoded(tmp_path / "mice.parquet") == ROWS


def test_an_encoding_can_be_named(tmp_path: Path):
    path = tmp_path / "mice.csv"
    path.write_bytes(PLAIN.replace("wild", "größe").encode("latin-1"))
    assert encoded(path, encoding="latin-1") == ROWS
    with pytest.raises(TableError, match="not UTF-8"):
        encoded(path)


def test_columns_are_set_apart_and_left_out(tmp_path: Path):
    path = tmp_path / "mice.csv"
    lines = PLAIN.splitlines()
    path.write_text("\n".join([f"id,{lines[0]},dose", f"m1,{lines[1]},3", f"m2,{lines[2]},4"]))
    ((ids, rows),) = TableFile(path).encoded(MICE, 10, ["id"], ["dose"])
    assert (ids.column("id").to_pylist(), rows.tolist()) == (["m1", "m2"], ROWS)
    with pytest.raises(TableError, match="no column `number`"):
        list(TableFile(path).encoded(MICE, 10, ["number"]))


BAD = {
    "unknown column": ("age,strain,treated_before,tail\n1,B6,yes,3\n", "Unknown column `tail`"),
    "missing column": ("age,strain\n1,B6\n", "`treated_before` is missing"),
    "wrong type": (PLAIN + "secret,B6,yes,I\n", "row 3: Column `age` takes a finite number"),
    "not finite": (PLAIN + "inf,B6,yes,I\n", "row 3: Column `age` takes a finite number"),
    "no boolean": (PLAIN + "1,B6,maybe,I\n", "row 3: Column `treated_before` takes true or false"),
    "unknown level": (PLAIN + "1,B6,yes,IV\n", "row 3: Column `stage` takes one of I, II, III"),
    "may not be missing": (PLAIN + "1,NA,yes,I\n", "row 3: Column `strain` may not be missing"),
    "all missing": (
        "age,strain,treated_before\nNA,,\n,NA,\n",
        "Column `strain` may not be missing",
    ),
    "duplicate names": ("age,age,strain,treated_before\n1,1,B6,yes\n", "`age` is not"),
    "10^4 columns": (",".join(f"c{n}" for n in range(10_000)) + "\n", "10000 columns"),
    "uneven": (PLAIN + "1,B6\n", "line 4: 2 cells where 4 belong"),
    "empty": ("", "no header line"),
    "blank": ("\n\n", "no header line"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_table_is_refused_with_a_reason(tmp_path: Path, name: str):
    text, reason = BAD[name]
    path = tmp_path / "mice.csv"
    path.write_text(text)
    with pytest.raises(TableError) as caught:
        encoded(path)
    assert reason in str(caught.value)
    assert "secret" not in str(caught.value)


def test_what_is_no_parquet_file_is_refused(tmp_path: Path):
    (tmp_path / "mice.parquet").write_bytes(b"PAR1")
    with pytest.raises(TableError, match="no Parquet file"):
        TableFile(tmp_path / "mice.parquet")


def test_rows_that_hold_nothing_stay_between_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Rows without an id are matched by their place."""
    monkeypatch.setattr(csv_rows, "BLOCK_BYTES", 64)
    path = tmp_path / "mice.csv"
    path.write_text("a,b\n" + ",\n" * 60 + "1,2\n" + ",\n" * 90)
    assert sum(each.num_rows for each in TableFile(path).batches()) == 61
    path.write_text('a\n""\n""\n')
    assert sum(each.num_rows for each in TableFile(path).batches()) == 2


def test_names_may_be_broken_into_lines(tmp_path: Path):
    path = tmp_path / "mice.csv"
    path.write_text('"weight\n(kg)";Größe  (cm)\n70,5;1\n')
    file = TableFile(path)
    assert file.names == ["weight (kg)", "Größe  (cm)"]
    assert file.guessed(next(file.batches())).to_pylist() == [
        {"weight (kg)": 70.5, "Größe  (cm)": 1.0}
    ]


def test_a_semicolon_means_decimal_commas_where_no_point_is(tmp_path: Path):
    """The first comma may come late."""
    path = tmp_path / "mice.csv"
    path.write_text("a;b\n" + "1;2\n" * 300 + "1,5;2\n")
    assert csv_rows.read_header(path, path.name, CsvOptions()).decimal == ","
    path.write_text("a;b\n1.5;2\n")
    assert csv_rows.read_header(path, path.name, CsvOptions()).decimal == "."


NO_TEXT = {
    "a workbook": (b"PK\x03\x04" + bytes(40), "is a workbook or an archive: save its sheet as CSV"),
    "an old workbook": (b"\xd0\xcf\x11\xe0" + bytes(40), "save its sheet as CSV"),
    "binary": (b"a,b\n\0\0\n", "is no CSV file"),
    "a name in latin-1": ("größe\n1\n".encode("latin-1"), "is not UTF-8: name its encoding"),
}


@pytest.mark.parametrize("name", NO_TEXT)
def test_what_is_no_text_is_refused_at_once(tmp_path: Path, name: str):
    content, reason = NO_TEXT[name]
    path = tmp_path / "mice.xlsx"
    path.write_bytes(content)
    with pytest.raises(TableError, match=reason):
        TableFile(path)


def test_the_index_of_a_frame_is_no_column(tmp_path: Path):
    frame = pd.DataFrame({"age": [1.0, 2.0]}, index=[7, 3])
    frame.to_parquet(tmp_path / "mice.parquet")
    file = TableFile(tmp_path / "mice.parquet")
    assert file.names == ["age"]
    assert next(file.batches()).to_pylist() == [{"age": 1.0}, {"age": 2.0}]


def test_repeated_values_are_counted_whatever_their_type(tmp_path: Path):
    path = tmp_path / "mice.csv"
    path.write_text("id,x\na,1\n a,2\nNA,3\nNA,4\n")
    assert TableFile(path).repeats("id") == 1
    pq.write_table(pa.table({"id": [1.5, 2.5, 1.5, None]}), tmp_path / "mice.parquet")
    assert TableFile(tmp_path / "mice.parquet").repeats("id") == 1


@pytest.mark.parametrize("second", [None, float("nan")])
def test_a_row_without_a_needed_value_is_named(tmp_path: Path, second: float | None):
    path = tmp_path / "mice.parquet"
    pq.write_table(pa.table({"id": [1.0, second]}), path)
    with pytest.raises(TableError, match=r"^row 2: Column `id` may not be missing.$"):
        TableFile(path).require_values("id")


def test_images_and_files_that_are_not_there_are_no_tables(tmp_path: Path):
    archive = tmp_path / "mice.zip"
    archive.write_bytes(b"PK")
    for path in (tmp_path, archive):
        with pytest.raises(TableError, match=f"{path.name} holds images or other files"):
            TableFile(path)
    with pytest.raises(FileNotFoundError) as caught:
        TableFile(tmp_path / "mice.csv")
    assert caught.value.filename == str(tmp_path / "mice.csv")


def test_rows_are_counted_over_all_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(csv_rows, "BLOCK_BYTES", 1 << 12)
    path = tmp_path / "mice.csv"
    path.write_text("age,strain,treated_before\n" + "1,B6,yes\n" * 2500 + "x,B6,yes\n")
    batches = TableFile(path).encoded(MICE, 1000)
    assert [len(next(batches)[1]) for _ in range(2)] == [1000, 1000]
    with pytest.raises(TableError, match="row 2501: Column `age`"):
        next(batches)


def test_a_sample_has_the_types_that_its_columns_look_like(tmp_path: Path):
    path = tmp_path / "mice.csv"
    path.write_text("age;strain;blind;never\n1,5;B6;true;\n;7x;FALSE;NA\n")
    rows = TableFile(path).sample(1000)
    assert rows == [
        {"age": 1.5, "strain": "B6", "blind": True, "never": None},
        {"age": None, "strain": "7x", "blind": False, "never": None},
    ]
    found = resolved([DeclaredColumn("age"), DeclaredColumn("strain")], rows)
    assert [each.type for each in found.columns] == [ColumnType.NUMERIC, ColumnType.CATEGORICAL]


def test_a_large_table_is_read_in_bounded_memory(tmp_path: Path):
    path = tmp_path / "mice.csv"
    with path.open("w") as stream:
        stream.write("age,strain,treated_before\n")
        for _ in range(100):
            stream.write("41,B6,yes\n" * 10_000)
    pool = pa.default_memory_pool()
    before, most, count = pool.bytes_allocated(), 0, 0
    tracemalloc.start()
    for _, rows in TableFile(path).encoded(MICE, 1000):
        count += len(rows)
        most = max(most, pool.bytes_allocated() - before)
    python_most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 1_000_000
    assert most < 16 * csv_rows.BLOCK_BYTES
    assert python_most < 8 * csv_rows.BLOCK_BYTES
    assert np.isfinite(rows).all()


@pytest.mark.parametrize("is_ignored", [True, False])
def test_a_long_text_of_many_rows_is_not_unpacked(tmp_path: Path, is_ignored: bool):
    path = tmp_path / "mice.parquet"
    notes = pa.DictionaryArray.from_arrays(np.zeros(1000, np.int32), ["x" * 100_000])
    # Without Arrow's schema, which would keep the dictionary, a reader makes a text of each row.
    table = pa.table({"age": np.zeros(1000), "notes": notes})
    pq.write_table(table, path, compression="zstd", store_schema=False)
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        file, age = TableFile(path), resolved([DeclaredColumn("age", ColumnType.NUMERIC)])
        if is_ignored:
            assert [len(rows) for _, rows in file.encoded(age, 1000, (), ["notes"])] == [1000]
        else:
            with pytest.raises(TableError, match="`notes` has a text of 100,000 bytes"):
                list(file.batches())
        assert pool.max_memory() < 16 << 20
    finally:
        pa.set_memory_pool(before)
