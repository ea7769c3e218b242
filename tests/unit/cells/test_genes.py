"""Which genes become columns, and what their values are."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from service.columns.schema import MAX_WIDTH, Column, ColumnType, TableError, TableSchema
from service.formats.cells.genes import LOG1P_CPM, CellOptions, read_orthologs
from service.formats.cells.tables import cell_table, shared_tables
from service.formats.surveying import surveyed_columns
from service.formats.tables import TableFile
from tests.support.cells import write_cells

MOUSE, HUMAN = ["Ins1", "Gcg", "Sst", "Xist"], ["SST", "GCG", "PPY", "INS"]
PAIRS = "mouse,human\nIns1,INS\nGcg,GCG\nSst,SST\nPpy,PPY\n"
COUNTS = np.array([[6, 2, 0, 2], [0, 1, 3, 0], [0, 0, 0, 0]], dtype=np.float32)


@pytest.fixture
def mouse(tmp_path: Path) -> Path:
    return write_cells(tmp_path / "mouse.h5ad", COUNTS, MOUSE, {"arm": ["a", "b", "a"]})


@pytest.fixture
def human(tmp_path: Path) -> Path:
    return write_cells(tmp_path / "human.h5ad", COUNTS[:, ::-1], HUMAN, None, "csc_matrix")


@pytest.fixture
def orthologs(tmp_path: Path) -> Path:
    path = tmp_path / "map.csv"
    path.write_text(PAIRS)
    return path


def columns(path: Path) -> dict[str, list[object]]:
    found: dict[str, list[object]] = pq.read_table(path).to_pydict()
    return found


def test_a_map_joins_genes_and_the_target_names_them(
    mouse: Path, human: Path, orthologs: Path, tmp_path: Path
):
    options = CellOptions(orthologs=read_orthologs(orthologs))
    source, target = shared_tables((mouse, ["arm"]), (human, ["_index"]), options, tmp_path)
    assert columns(source) == {
        "arm": ["a", "b", "a"],
        "SST": [0, 3, 0],
        "GCG": [2, 1, 0],
        "INS": [6, 0, 0],
    }
    found = columns(target)
    assert list(found) == ["_index", "SST", "GCG", "INS"]
    assert found["INS"] == [6, 0, 0]
    with pytest.raises(TableError, match="share no gene"):
        shared_tables((mouse, []), (human, []), CellOptions(), tmp_path)


def test_counts_are_divided_by_all_molecules_of_the_cell(mouse: Path, tmp_path: Path):
    options = CellOptions(genes=2, counts=True)
    found = columns(cell_table(mouse, [], None, options, tmp_path))
    expected = np.log1p(COUNTS * 1e6 / np.array([10, 4, 1])[:, None]).astype(np.float32)
    assert list(found) == ["Ins1", "Sst"]
    assert found["Ins1"] == expected[:, 0].tolist()
    assert found["Sst"] == expected[:, 2].tolist()


def test_the_most_variable_genes_are_chosen_within_each_file(tmp_path: Path):
    rng = np.random.default_rng(0)
    spread = rng.normal(0, 3, (40, 1))
    rest = rng.normal(0, 0.1, (40, 2))
    # `shift` differs between the files, but not within one.
    source = write_cells(tmp_path / "s.h5ad", np.c_[rest, spread], ["shift", "quiet", "loud"])
    target = write_cells(
        tmp_path / "t.h5ad", np.c_[np.add(rest, [50, 0]), spread], ["shift", "quiet", "loud"]
    )
    first, second = shared_tables((source, []), (target, []), CellOptions(genes=1), tmp_path)
    assert list(columns(first)) == list(columns(second)) == ["loud"]


def test_the_unit_is_declared_and_decides_how_later_files_are_read(mouse: Path, tmp_path: Path):
    made = TableFile(cell_table(mouse, [], None, CellOptions(counts=True), tmp_path))
    schema = surveyed_columns([(made, ())]).schema
    assert {each.unit for each in schema.columns} == {LOG1P_CPM}
    assert all(each.type is ColumnType.NUMERIC and each.width == 1 for each in schema.columns)
    again = cell_table(mouse, [], schema, CellOptions(), tmp_path / "again")
    assert columns(again) == columns(made.path)
    plain = TableSchema((Column("Gcg", ColumnType.NUMERIC),))
    raw = cell_table(mouse, [], plain, CellOptions(), tmp_path / "raw")
    assert columns(raw) == {"Gcg": [2, 1, 0]}
    other = TableSchema((Column("INS", ColumnType.NUMERIC), Column("GCG", ColumnType.NUMERIC)))
    with pytest.raises(TableError, match="lacks the gene `INS` and 1 more"):
        cell_table(mouse, [], other, CellOptions(), tmp_path)


@pytest.mark.parametrize("bad", [0.5, -1.0, np.nan])
def test_what_is_no_count_is_refused_with_its_cell(bad: float, tmp_path: Path):
    values = COUNTS.copy()
    values[1, 2] = bad
    path = write_cells(tmp_path / "a.h5ad", values, MOUSE)
    with pytest.raises(TableError, match="no counts in cell 2"):
        cell_table(path, [], None, CellOptions(counts=True), tmp_path)


def test_names_that_are_there_twice_are_left_out(tmp_path: Path):
    path = write_cells(tmp_path / "a.h5ad", COUNTS, ["x", "y", "x", "z"])
    assert list(columns(cell_table(path, [], None, CellOptions(), tmp_path))) == ["y", "z"]


def test_more_genes_than_a_table_has_slots_need_a_choice(tmp_path: Path):
    names = [f"g{place}" for place in range(MAX_WIDTH + 1)]
    path = write_cells(tmp_path / "a.h5ad", np.zeros((2, len(names))), names)
    with pytest.raises(TableError, match="--genes 2000"):
        cell_table(path, [], None, CellOptions(), tmp_path)


def test_a_column_with_the_name_of_a_gene_is_refused(tmp_path: Path):
    path = write_cells(tmp_path / "a.h5ad", COUNTS, MOUSE, {"Gcg": np.zeros(3)})
    with pytest.raises(TableError, match="`Gcg` of obs has the name of a gene"):
        cell_table(path, ["Gcg"], None, CellOptions(), tmp_path)


def test_only_one_to_one_pairs_of_a_map_count(tmp_path: Path):
    path = tmp_path / "map.tsv"
    path.write_text("\ufeffa\tA\nb\tB\nb\tBB\nc\tC\nd\tC\n\ne\t\na\tA\n")
    assert read_orthologs(path) == {"a": "A"}
    path.write_text("a,b,c\n")
    with pytest.raises(TableError, match="line 1: expected two names"):
        read_orthologs(path)
    path.write_text("")
    assert read_orthologs(path) == {}
