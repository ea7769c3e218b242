"""Cells as Parquet tables, which every command reads: columns of `obs`, then genes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from service.columns.schema import TableError, TableSchema
from service.formats.cells.genes import (
    LOG1P_CPM,
    CellOptions,
    Genes,
    chosen,
    genes_of,
    shared_genes,
    values_of,
)
from service.formats.cells.reading import SUFFIX, CellFile
from service.formats.rows.csv_rows import CsvOptions
from service.formats.tables import UNIT, TableFile


def is_cells(path: Path) -> bool:
    """Whether a file holds cells, by its name."""
    return path.suffix.lower() == SUFFIX


def shared_tables(
    source: tuple[Path, Sequence[str]],
    target: tuple[Path, Sequence[str]],
    options: CellOptions,
    folder: Path,
) -> tuple[Path, Path]:
    """Two files with the columns of `obs` to keep, as tables of the genes that both have."""
    with CellFile(source[0]) as first, CellFile(target[0]) as second:
        genes = genes_of(first, options.orthologs), genes_of(second, {})
        names = shared_genes(*genes)
        names = chosen([(first, genes[0]), (second, genes[1])], names, options)
        return (
            _written(first, source[1], genes[0].only(names), options.counts, folder / "source"),
            _written(second, target[1], genes[1].only(names), options.counts, folder / "target"),
        )


def cell_table(
    path: Path, obs: Sequence[str], schema: TableSchema | None, options: CellOptions, folder: Path
) -> Path:
    """A file as a table of its own genes, or of those that a schema declares.

    The unit of declared columns says whether they are made of counts.
    """
    with CellFile(path) as file:
        genes = genes_of(file, options.orthologs)
        if schema is None:
            names, is_counts = chosen([(file, genes)], genes.names, options), options.counts
        else:
            names = [each.name for each in schema.columns]
            is_counts = {each.unit for each in schema.columns} == {LOG1P_CPM}
        return _written(file, obs, genes.only(names), is_counts, folder)


@contextmanager
def opened_table(
    path: Path,
    obs: Sequence[str],
    schema: TableSchema | None,
    cells: CellOptions,
    csv: CsvOptions | None = None,
) -> Iterator[TableFile]:
    """A file as a table; of cells, columns of `obs` and the genes that the schema declares, if any."""
    options = csv or CsvOptions()
    if not is_cells(path):
        yield TableFile(path, options)
        return
    with TemporaryDirectory(prefix="daband-cells-") as folder:
        yield TableFile(cell_table(path, obs, schema, cells, Path(folder)), options)


def _written(
    file: CellFile, obs: Sequence[str], genes: Genes, is_counts: bool, folder: Path
) -> Path:
    for name in obs:
        if name in genes.names:
            raise TableError(f"Column `{name}` of obs has the name of a gene.", name)
    columns = {name: file.column(name) for name in obs}
    unit = {UNIT: LOG1P_CPM.encode()} if is_counts else None
    schema = pa.schema(
        [
            *(pa.field(name, values.type) for name, values in columns.items()),
            *(pa.field(name, pa.float32(), metadata=unit) for name in genes.names),
        ]
    )
    folder.mkdir(parents=True, exist_ok=True)
    path, start = folder / f"{file.path.name}.parquet", 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for rows in values_of(file, genes, is_counts):
            stop = start + len(rows)
            values = np.ascontiguousarray(rows.T, dtype=np.float32)
            kept = [each[start:stop] for each in columns.values()]
            writer.write_table(pa.table([*kept, *map(pa.array, values)], schema=schema))
            start = stop
    return path
