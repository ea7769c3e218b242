"""Which genes become columns: those that both files have, by an ortholog map, or the most variable."""

import csv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from service.columns.schema import MAX_WIDTH, TableError
from service.formats.cells.reading import CellFile, Rows

LOG1P_CPM = "log1p(CPM)"  # the unit of columns that are made of counts
_MILLION = 1e6


@dataclass(frozen=True, slots=True)
class CellOptions:
    """How cells become rows: how many genes, whether `X` holds counts, other names of genes."""

    genes: int | None = None
    counts: bool = False
    orthologs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Genes:
    """Genes of a file: their places there, and the names of their columns."""

    places: Sequence[int]
    names: Sequence[str]

    def only(self, names: Sequence[str]) -> "Genes":
        """Those of these names, in their order; `TableError` names one that is not there."""
        found = dict(zip(self.names, self.places, strict=True))
        absent = [name for name in names if name not in found]
        if absent:
            more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
            raise TableError(
                f"The file lacks the gene `{absent[0]}`{more}. An ortholog map gives genes other names.",
                absent[0],
            )
        return Genes([found[name] for name in names], names)


def read_orthologs(path: Path) -> dict[str, str]:
    """Name in the file → name of the column, from two columns; only pairs without a second partner."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        text = file.read()
    separator = "\t" if "\t" in text.partition("\n")[0] else ","
    pairs: dict[tuple[str, str], None] = {}
    for number, row in enumerate(csv.reader(text.splitlines(), delimiter=separator), start=1):
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        if len(cells) != len(("name", "other name")):
            raise TableError(f"{path.name}, line {number}: expected two names.")
        if all(cells):
            pairs[cells[0], cells[1]] = None
    first, second = (Counter(each) for each in zip(*pairs, strict=True)) if pairs else ({}, {})
    return {one: other for one, other in pairs if first[one] == 1 == second[other]}


def genes_of(file: CellFile, orthologs: Mapping[str, str]) -> Genes:
    """All genes of a file whose names are unique, under the names that the map gives them."""
    names = [orthologs.get(name, name) for name in file.genes]
    counts = Counter(names)
    places = [place for place, name in enumerate(names) if counts[name] == 1]
    return Genes(places, [names[place] for place in places])


def shared_genes(source: Genes, target: Genes) -> list[str]:
    """The names that both have, in the target's order."""
    both = set(source.names)
    found = [name for name in target.names if name in both]
    if not found:
        raise TableError("The files share no gene. An ortholog map gives genes other names.")
    return found


def chosen(
    files: Sequence[tuple[CellFile, Genes]], names: Sequence[str], options: CellOptions
) -> list[str]:
    """The most variable genes, in the given order; variances are within the files, without rewards."""
    most = options.genes
    if most is None and len(names) > MAX_WIDTH:
        raise TableError(
            f"There are {len(names)} genes; a table has at most {MAX_WIDTH}. Choose the most variable "
            "ones: --genes 2000."
        )
    if most is None or most >= len(names):
        return list(names)
    spread = sum(_variances(file, genes.only(names), options.counts) for file, genes in files)
    ranked = np.argsort(-np.asarray(spread), kind="stable")[:most]
    return [names[place] for place in np.sort(ranked)]


def values_of(file: CellFile, genes: Genes, is_counts: bool) -> Iterator[Rows]:
    """The values of the genes (m, genes); counts become log1p(CPM) over all genes of the cell."""
    first_cell = 0
    for rows, sums in file.rows(genes.places):
        yield _log1p_cpm(file, rows, sums, first_cell) if is_counts else rows
        first_cell += len(rows)


def _log1p_cpm(file: CellFile, rows: Rows, sums: np.ndarray, first_cell: int) -> Rows:
    is_bad = ((rows < 0) | (rows != np.floor(rows))).any(axis=1) | ~np.isfinite(sums)
    if is_bad.any():
        cell = first_cell + int(np.argmax(is_bad))
        raise TableError(f"{file.path.name}: X holds no counts in cell {cell + 1}.")
    return np.log1p(rows * (_MILLION / np.where(sums > 0, sums, 1.0))[:, None])


def _variances(file: CellFile, genes: Genes, is_counts: bool) -> np.ndarray:
    total, squares = np.zeros(len(genes.names)), np.zeros(len(genes.names))
    for rows in values_of(file, genes, is_counts):
        total += rows.sum(axis=0)
        squares += (rows**2).sum(axis=0)
    mean = total / max(1, file.cells)
    return squares / max(1, file.cells) - mean**2
