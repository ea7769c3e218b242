"""Tables of past rounds: what is read of them, and what is said of bad ones."""

import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.columns.schema import TableError
from service.columns.seen import ColumnTypes
from service.formats.history import (
    HistoryColumns,
    HistoryShape,
    HistorySpool,
    PastRound,
    rounds_of,
    spooled,
)
from service.formats.rows.csv_rows import CsvOptions
from service.formats.surveying import SurveyedColumns, surveyed_columns, surveyed_rounds
from service.formats.table_pair import PairChoices, surveyed_pair
from service.formats.tables import TableFile
from service.records import RewardRange

ROWS: list[dict[str, Any]] = [
    {"id": "m1", "age": 3, "strain": "B6", "dose": "low", "gain": 10.0, "p": 0.5, "at": 3},
    {"id": "m2", "age": None, "strain": "BALB", "dose": "high", "gain": 30.0, "p": 0.25, "at": 1},
    {"id": "m3", "age": 5, "strain": "B6", "dose": "high", "gain": None, "p": None, "at": 2},
]
COLUMNS = HistoryColumns("dose", "gain", propensity="p", id="id", time="at")
UNIT = RewardRange(10.0, 30.0)


def as_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    lines = [",".join(rows[0])]
    lines += [",".join("" if each is None else str(each) for each in row.values()) for row in rows]
    path.write_text("\n".join(lines) + "\n")


def as_json(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def as_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    pq.write_table(pa.Table.from_pylist(rows), path)


WRITERS = {".csv": as_csv, ".jsonl": as_json, ".parquet": as_parquet}


def written(folder: Path, suffix: str, rows: list[dict[str, Any]]) -> TableFile:
    path = folder / f"mice{suffix}"
    WRITERS[suffix](path, rows)
    return TableFile(path)


def shape(file: TableFile, apart: HistoryColumns = COLUMNS) -> HistoryShape:
    """What an experiment takes that was declared for the file."""
    found = surveyed_columns([(file, {*apart.apart, *apart.ignore})])
    arms = surveyed_rounds(file, apart.arm, apart.reward).arms
    return HistoryShape(arms, found.schema, found.schema.width, UNIT)


def read(file: TableFile, columns: HistoryColumns = COLUMNS) -> list[PastRound]:
    with spooled(file, columns, shape(file, columns)) as spool:
        return rounds(spool)


def rounds(spool: HistorySpool) -> list[PastRound]:
    return [each for _, part in spool.parts() for each in rounds_of(part)]


def digest(file: TableFile) -> str:
    with spooled(file, COLUMNS, shape(file)) as spool:
        return spool.digest()


@pytest.mark.parametrize("suffix", WRITERS)
def test_rounds_are_read_in_the_order_of_their_times(tmp_path: Path, suffix: str):
    found = read(written(tmp_path, suffix, ROWS))
    assert [each.row_id for each in found] == ["m2", "m3", "m1"]
    assert [each.reward for each in found] == [1.0, None, 0.0]
    assert [each.propensity for each in found] == [0.25, None, 0.5]
    assert [each.arm for each in found] == ["high", "high", "low"]
    # Age with its marker, three slots of the strain.
    slots = np.frombuffer(found[2].context, "<f4").tolist()
    assert slots == [3.0, 0.0, 1.0, 0.0, 0.0]


def test_the_digest_is_of_the_rounds_and_not_of_the_file(tmp_path: Path):
    digests = {digest(written(tmp_path, suffix, ROWS)) for suffix in WRITERS}
    assert len(digests) == 1
    other = written(tmp_path, ".csv", [*ROWS[:2], {**ROWS[2], "dose": "low"}])
    assert digest(other) not in digests


def test_iso_times_order_rounds(tmp_path: Path):
    times = ["2020-02-01", "2020-01-01T10:00:00+02:00", "2020-01-01T09:00:00"]
    rows = [{**row, "at": at} for row, at in zip(ROWS, times, strict=True)]
    found = read(written(tmp_path, ".csv", rows))
    assert [each.row_id for each in found] == ["m2", "m3", "m1"]


def changed(row: int, **values: Any) -> list[dict[str, Any]]:
    return [{**each, **values} if at == row else each for at, each in enumerate(ROWS)]


BAD: list[tuple[list[dict[str, Any]], int, str, str]] = [
    (changed(1, dose=None), 1, "dose", "may not be missing"),
    (changed(1, dose="secret"), 1, "dose", "names an arm that is not declared"),
    (changed(0, gain=31.5), 0, "gain", "must lie between 10 and 30"),
    (changed(2, p=1.5), 2, "p", "at most 1"),
    (changed(2, p=0), 2, "p", "above 0"),
    (changed(1, at=None), 1, "at", "may not be missing"),
    (changed(1, at="soon"), 1, "at", "takes times"),
    (changed(1, id="x" * 129), 1, "id", "at most 128 bytes"),
    (changed(2, strain=""), 2, "strain", "may not be missing"),
]


@pytest.mark.parametrize(("rows", "row", "column", "detail"), BAD)
def test_a_bad_row_is_named_but_not_its_value(
    tmp_path: Path, rows: list[dict[str, Any]], row: int, column: str, detail: str
):
    expected = shape(written(tmp_path, ".csv", ROWS))
    with pytest.raises(TableError, match=detail) as caught:
        spooled(written(tmp_path, ".csv", rows), COLUMNS, expected)
    assert (caught.value.row, caught.value.column) == (row, column)
    assert "secret" not in str(caught.value)
    assert "31.5" not in str(caught.value)


def test_a_row_far_down_is_named_by_its_number(tmp_path: Path):
    many = [{**ROWS[0], "at": at} for at in range(10_000)]
    expected = shape(written(tmp_path, ".csv", ROWS))
    with pytest.raises(TableError, match="row 9001: Column `gain` holds no number here"):
        spooled(
            written(tmp_path, ".csv", [*many[:9000], {**many[0], "gain": "much"}, *many[9000:]]),
            COLUMNS,
            expected,
        )


WRONG_NAMES: list[tuple[HistoryColumns, str]] = [
    (HistoryColumns("treatment", "gain"), "no column `treatment`"),
    (HistoryColumns("dose", "gain", ignore=("tail",)), "no column `tail`"),
    (HistoryColumns("dose", "dose"), "cannot be two things"),
    (HistoryColumns("dose", "gain", id="id", time="at"), "Unknown column `p`"),
]


@pytest.mark.parametrize(("columns", "detail"), WRONG_NAMES)
def test_wrong_names_are_refused(tmp_path: Path, columns: HistoryColumns, detail: str):
    file = written(tmp_path, ".csv", ROWS)
    with pytest.raises(TableError, match=detail):
        spooled(file, columns, shape(file))


def test_a_missing_column_is_refused(tmp_path: Path):
    expected = shape(written(tmp_path, ".csv", ROWS))
    rows = [{name: value for name, value in row.items() if name != "strain"} for row in ROWS]
    with pytest.raises(TableError, match="Column `strain` is missing"):
        spooled(written(tmp_path, ".csv", rows), COLUMNS, expected)


def test_rewards_outside_0_and_1_need_a_range(tmp_path: Path):
    file = written(tmp_path, ".csv", ROWS)
    found = shape(file)
    unscaled = HistoryShape(found.arms, found.table, found.width)
    with pytest.raises(TableError, match="declare the experiment's `reward_range`"):
        spooled(file, COLUMNS, unscaled)


def test_the_columns_of_a_vector_are_taken_in_their_order(tmp_path: Path):
    rows = [{"b": 2, "arm": "x", "a": 1, "reward": 1}, {"b": 4, "arm": "y", "a": 3, "reward": 0}]
    file = written(tmp_path, ".csv", rows)
    columns = HistoryColumns("arm", "reward")
    with spooled(file, columns, HistoryShape(("x", "y"), None, 2)) as spool:
        contexts = [np.frombuffer(each.context, "<f4").tolist() for each in rounds(spool)]
        assert contexts == [[2, 1], [4, 3]]
    with pytest.raises(TableError, match="A context has 3 numbers; there are 2 columns"):
        spooled(file, columns, HistoryShape(("x", "y"), None, 3))


def test_json_rows_are_checked(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    for text, detail in (
        ("[1]\n", "row 1: Not a JSON object"),
        ('{"a": 1}\n{"a": [1]}\n', "row 2: Not a JSON object"),
        ('{"a": 1}\n{"a": "text"}\n', "row 2: Column `a` mixes types"),
        ("\n", "has no row"),
    ):
        path.write_text(text)
        with pytest.raises(TableError, match=detail):
            list(TableFile(path).batches())


def survey(
    folder: Path, *texts: str, types: ColumnTypes | None = None, keep: Collection[str] | None = None
) -> Callable[[], SurveyedColumns]:
    files = []
    for number, text in enumerate(texts):
        path = folder / f"{number}.csv"
        path.write_text(text)
        files.append((TableFile(path, CsvOptions()), ("id",) if text.startswith("id") else ()))
    return lambda: surveyed_columns(files, types, keep)


def test_columns_are_those_of_all_rows_of_all_files(tmp_path: Path):
    first = "id,age,site,empty\n" + "1,5,A,\n" * 1500 + "2,,C,\n"
    found = survey(tmp_path, first, "age,empty,site\n7,,B\n9,NA,A\n")()
    age, site = found.schema.columns
    assert (age.type, age.missing, age.fill) == ("numeric", True, 5.0)
    assert (site.type, site.values, site.missing) == ("categorical", ("A", "B", "C"), False)
    assert found.left_out == ("empty",)


BAD_SURVEYS: list[tuple[tuple[str, ...], str]] = [
    (("a,b\n1,2\n", "a\n1\n"), "Column `b` is in 0.csv, but not in 1.csv"),
    (("a\n1\n", "a,b\n1,2\n"), "Column `b` is in 1.csv, but not in 0.csv"),
    (("a,A,b\n1,1,1\n", "b\n1\n"), "Columns `a`, `A` are in 0.csv, but not in 1.csv"),
    (("a\n1\n", "A\n1\n"), "Does `A` mean `a`"),
    (("a\n1\n", "a\nx\n"), "row 1: Column `a` of 1.csv holds a text among numbers"),
    (("a\n\n",), "has no rows"),
    (("id\n1\n",), "no column left"),
    (("a\n" + "".join(f"x{n}\n" for n in range(1001)),), "more than 1000 levels"),
    (("a\n" + "x" * 200 + "\n",), "Column `a`: A level has 1 to 128 characters"),
    ((",".join(f"c{n}" for n in range(10_000)) + "\n",), "10000 columns"),
    (("a,a\n1,2\n",), "must be unique"),
]


@pytest.mark.parametrize(("texts", "detail"), BAD_SURVEYS)
def test_tables_that_cannot_be_declared_say_why(
    tmp_path: Path, texts: tuple[str, ...], detail: str
):
    with pytest.raises(TableError, match=detail):
        survey(tmp_path, *texts)()


def test_numbers_may_be_declared_to_be_names(tmp_path: Path):
    found = survey(tmp_path, "site\n1\n12\n2\n", types=ColumnTypes(categorical=("site",)))()
    assert found.schema.columns[0].values == ("1", "12", "2")
    with pytest.raises(TableError, match="no column `tail`"):
        survey(tmp_path, "site\n1\n", types=ColumnTypes(categorical=("tail",)))()


def test_ranges_are_in_their_order(tmp_path: Path):
    text = "age\n" + "\n".join(["20 - 29", "90+", "<10", "10 - 19", "NA", "10 - 19"]) + "\n"
    column = survey(tmp_path, text)().schema.columns[0]
    assert (column.type, column.fill) == ("ordinal", "10 - 19")
    assert column.values == ("<10", "10 - 19", "20 - 29", "90+")
    named = survey(tmp_path, text, types=ColumnTypes(categorical=("age",)))()
    assert named.schema.columns[0].type == "categorical"
    # In one file all are numbers, in the other they are not.
    assert survey(tmp_path, "n\n0\n1\n", "n\n2+\n")().schema.columns[0].values == ("0", "1", "2+")


def test_two_levels_are_one_number_where_no_others_can_come(tmp_path: Path):
    text = "sex\nM\nF\n"
    column = survey(tmp_path, text, text, keep=())().schema.columns[0]
    assert (column.type, column.values, column.width) == ("ordinal", ("F", "M"), 1)
    named = ColumnTypes(categorical=("sex",))
    for found in (survey(tmp_path, text), survey(tmp_path, text, text, types=named, keep=())):
        assert found().schema.columns[0].type == "categorical"


def test_an_order_is_declared(tmp_path: Path):
    types = ColumnTypes(ordinal={"dose": ("low", "mid", "high")})
    column = survey(tmp_path, "dose\nhigh\nlow\n", types=types)().schema.columns[0]
    assert (column.type, column.values) == ("ordinal", ("low", "mid", "high"))
    with pytest.raises(TableError, match="other levels than low, mid, high"):
        survey(tmp_path, "dose\nnone\n", types=types)()


def test_a_column_of_numbers_says_where_it_has_another_value(tmp_path: Path):
    types = ColumnTypes(numeric=("age",))
    assert survey(tmp_path, "age\n1\n2\n", types=types)().schema.columns[0].type == "numeric"
    with pytest.raises(TableError, match="row 2: Column `age` takes a finite number"):
        survey(tmp_path, "age\n1\nold\n", types=types)()
    with pytest.raises(TableError, match="cannot be of two types"):
        survey(tmp_path, "age\n1\n", types=ColumnTypes(numeric=("age",), categorical=("age",)))()


def rows(*cells: str) -> str:
    return "\n".join(cells) + "\n"


SOURCE = rows("x,lab,site,note,crp", *(f"1,{n % 5 or ''},A,n{n},{n}" for n in range(30)))
TARGET = rows("x,lab,site,note,crp", *(f"1,,B,m{n},{n if n % 3 else ''}" for n in range(30)))


def test_columns_that_cannot_transfer_are_left_out(tmp_path: Path):
    found = survey(tmp_path, SOURCE, TARGET, keep=())()
    assert [each.name for each in found.schema.columns] == ["x", "crp"]
    assert found.left_out == ("lab", "site", "note")
    assert found.remarks == (
        "column lab is missing in 20% of 0.csv and 100% of 1.csv and cannot transfer: it is left out",
        "column site has no level that both tables have: it is left out",
        "column note has another text in most rows, as free text and identifiers do, is left out",
        "column crp is missing in 0% of 0.csv and 33% of 1.csv, which tells the tables apart",
    )
    kept = survey(tmp_path, SOURCE, TARGET, keep=("lab", "note", "site"))()
    assert len(kept.schema.columns) == 5
    assert survey(tmp_path, SOURCE, TARGET)().remarks == ()
    with pytest.raises(TableError, match="no column `tail` to keep"):
        survey(tmp_path, SOURCE, TARGET, keep=("tail",))()


def test_measurements_with_a_bad_cell_are_not_taken_for_free_text(tmp_path: Path):
    bad = rows("crp", "low", *(f"{n}.5" for n in range(30)))
    for other in (rows("crp", "high", "77.5"), rows("crp", "7.5", "8.5")):
        with pytest.raises(TableError, match=r"row 1: Column `crp` of 0\.csv holds a text"):
            survey(tmp_path, bad, other, keep=())()
    named = ColumnTypes(categorical=("crp",))
    assert survey(tmp_path, bad, bad, types=named, keep=("crp",))().schema.columns


NO_NUMBERS = {
    "a limit of detection": [f"{n % 25}.5" for n in range(100)] + ["<0.5"] * 30,
    "thousands": [f"{n},200.5" for n in range(30)],
    "per cent": [f"{n}.5 %" for n in range(30)],
}


@pytest.mark.parametrize("name", NO_NUMBERS)
def test_numbers_that_are_written_as_texts_are_not_left_out(tmp_path: Path, name: str):
    text = rows("crp;x", *(f"{cell};1" for cell in NO_NUMBERS[name]))
    with pytest.raises(TableError, match="holds a text among numbers"):
        survey(tmp_path, text, text, keep=())()


DATES = ("2024-03-0{}", "2024-03-0{} 12:30", "0{}.03.2024", "3/{}/24")


@pytest.mark.parametrize("date", DATES)
def test_dates_are_left_out(tmp_path: Path, date: str):
    text = rows("visit,x", *(f"{date.format(1 + n % 5)},1" for n in range(100)))
    found = survey(tmp_path, text, text, keep=())()
    assert found.remarks == ("column visit holds dates: it is left out",)
    with pytest.raises(TableError, match=r"Column `visit` holds dates\. Leave it out"):
        survey(tmp_path, text)()
    named = ColumnTypes(categorical=("visit",))
    assert survey(tmp_path, text, types=named)().schema.columns[0].type == "categorical"


def test_levels_that_the_first_table_lacks_are_remarked(tmp_path: Path):
    one, other = rows("site", *"ABAB"), rows("site", *"AACA")
    (remark,) = survey(tmp_path, one, other, keep=())().remarks
    assert remark == (
        "column site has levels in 25% of the rows of 1.csv that 0.csv does not have: "
        "they cannot transfer"
    )


def test_a_table_without_a_useful_column_says_why(tmp_path: Path):
    with pytest.raises(TableError, match="no column left to be a context: `a` has no level"):
        survey(tmp_path, rows("a", "x"), rows("a", "y"), keep=())()


def test_arms_that_are_numbers_are_in_their_order(tmp_path: Path):
    path = tmp_path / "rounds.csv"
    path.write_text("dose,gain\n10,3\n9,-1\n10,\n100,7\n")
    found = surveyed_rounds(TableFile(path), "dose", "gain")
    assert found.arms == ("9", "10", "100")
    assert (found.rewards, found.mean, found.rows) == (RewardRange(-1.0, 7.0), 3.0, 4)
    assert found.range_to_declare == RewardRange(-1.0, 7.0)


@pytest.mark.parametrize("words", [("yes", "no"), ("TRUE", "FALSE"), ("1", " False ")])
def test_rewards_may_be_yes_and_no(tmp_path: Path, words: tuple[str, str]):
    path = tmp_path / "rounds.csv"
    path.write_text("dose,gain\na,{}\nb,{}\nb,\n".format(*words))
    assert surveyed_rounds(TableFile(path), "dose", "gain").rewards == RewardRange(0.0, 1.0)
    as_parquet(
        tmp_path / "rounds.parquet", [{"dose": "a", "gain": True}, {"dose": "b", "gain": False}]
    )
    found = surveyed_rounds(TableFile(tmp_path / "rounds.parquet"), "dose", "gain")
    assert (found.rewards, found.mean) == (RewardRange(0.0, 1.0), 0.5)


BAD_ROUNDS = {
    "improved": (
        "a,1\nb,improved\n",
        "row 2: Column `gain` holds no number here. A reward is a number",
    ),
    "one arm": ("a,1\na,2\n", "`dose` names one arm"),
    "equal rewards": ("a,1\nb,1\n", "All rewards of column `gain` are equal"),
    "no arm": ("a,1\n,2\n", "row 2: Column `dose` may not be missing"),
    "no reward": ("a,\nb,\n", "no row with an arm and a reward"),
}


@pytest.mark.parametrize("name", BAD_ROUNDS)
def test_rounds_that_teach_nothing_say_why(tmp_path: Path, name: str):
    text, detail = BAD_ROUNDS[name]
    path = tmp_path / "rounds.csv"
    path.write_text(f"dose,gain\n{text}")
    with pytest.raises(TableError, match=detail):
        surveyed_rounds(TableFile(path), "dose", "gain")


def test_a_column_that_is_not_there_is_beside_those_that_are(tmp_path: Path):
    path = tmp_path / "rounds.csv"
    path.write_text("Dose,gain\na,1\n")
    with pytest.raises(
        TableError, match=r"no column `dose` in rounds\.csv\. Its columns: Dose, gain\."
    ):
        surveyed_rounds(TableFile(path), "dose", "gain")


def test_remarks_of_a_pair_that_may_mislead(tmp_path: Path):
    source, target = tmp_path / "mice.csv", tmp_path / "humans.csv"
    source.write_text(
        rows("id,x,dose,gain", *(f"m{n % 25},{n},{n % 4},{n % 2}" for n in range(30)))
    )
    target.write_text(rows("id,x", "h1,1", "h2,2", "h1,3"))
    found = surveyed_pair(PairChoices(source, target, "dose", "gain", "id"))
    assert [each.text for each in found.remarks] == [
        "column dose names 4 arms for 30 past rounds: bring more, or join arms that are alike, such "
        "as doses",
        "rows of humans.csv with the id of an earlier row: 1",
        "rows of mice.csv with the id of an earlier row: 5. Where they differ, some are learned from "
        "and others held out: the expected reward may be too high",
    ]


def test_a_column_of_rare_levels_is_remarked(tmp_path: Path):
    source, target = tmp_path / "mice.csv", tmp_path / "humans.csv"
    source.write_text(rows("x,dose,gain", *(f"z{n % 40},{n % 2},{n % 3}" for n in range(300))))
    target.write_text(rows("x", *(f"z{n % 40}" for n in range(100))))
    found = surveyed_pair(PairChoices(source, target, "dose", "gain"))
    assert [each.text for each in found.remarks][1] == (
        "column x has 40 levels for 300 past rounds: most are too rare to be learned from"
    )


def test_rewards_between_0_and_1_need_no_range(tmp_path: Path):
    path = tmp_path / "rounds.csv"
    path.write_text("dose,gain\na,0.2\nb,1\n")
    assert surveyed_rounds(TableFile(path), "dose", "gain").range_to_declare is None
