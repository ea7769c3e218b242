"""Scores contexts with a policy file, without a service: the endpoint's decisions bit for bit.

Batches have the size of a request, because batches of other sizes may round differently.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np
from msgspec import Raw
from numpy.lib.format import open_memmap

from model import ContextKind, ExportedPolicy, SnapshotError, open_exported
from service.cli.options import TABLES
from service.codec.bodies import MAX_BATCH, MediaType, TargetSelectBody
from service.codec.contexts import most_images
from service.codec.target_contexts import TargetRows, binary_target_rows, target_rows
from service.columns.schema import TableError, UnknownColumnError
from service.deciding.scored import Scored, csv_lines
from service.deciding.target import TargetAnswer, selected, sliced
from service.errors import InvalidRequest
from service.experiment_spec import ExperimentSpec, image_schema_of, range_of, table_of
from service.formats.cells.genes import CellOptions
from service.formats.cells.tables import opened_table
from service.formats.rows.csv_rows import CsvOptions
from service.images.files import ImageFileError, decoded_images, is_images
from service.records import CONTEXT_TYPE

HINT = "--id names the column of ids, --ignore leaves a column out."


class ScoringError(Exception):
    """The policy file or the contexts are no good; the message says why."""


@dataclass(frozen=True, slots=True)
class TableOptions:
    """How a table of contexts is read: the column of ids, columns to leave out, its text or its cells."""

    id: str | None = None
    ignore: Sequence[str] = ()
    csv: CsvOptions = field(default_factory=CsvOptions)
    cells: CellOptions = field(default_factory=CellOptions)


def scored_lines(
    policy: Path,
    contexts: Path,
    floor: float | None,
    options: TableOptions,
    *,
    as_csv: bool,
) -> Iterator[bytes]:
    """The decisions for the contexts of a file, as JSON lines or CSV."""
    try:
        batches = scored(open_exported(policy.read_bytes()), contexts, floor, options)
        yield from csv_lines(batches) if as_csv else json_lines(batches)
    except UnknownColumnError as error:
        raise ScoringError(f"{error} {HINT}") from error
    except TableError as error:
        place = "" if error.column is None or error.column != options.id else "--id: "
        raise ScoringError(f"{place}{error}") from error
    except (SnapshotError, ValueError, LookupError) as error:
        raise ScoringError(str(error)) from error
    except InvalidRequest as refusal:
        places = (f"{each['pointer']} {each['detail']}" for each in refusal.members["errors"])
        raise ScoringError("; ".join(places)) from refusal


def write_atomically(path: Path, pieces: Iterable[bytes]) -> None:
    """Write all of a file or nothing."""
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as stream:
            stream.writelines(pieces)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def scored(
    found: ExportedPolicy,
    contexts: Path,
    floor: float | None = None,
    options: TableOptions | None = None,
) -> Iterator[Scored]:
    """The decision of each context: npy, JSON lines, a table as CSV or Parquet, a folder or zip of images."""
    spec = _spec(found)
    for groups, ids in _batches(spec, contexts, options or TableOptions()):
        slices = sliced(spec, groups)
        selections = [selected(found.policy, spec, each) for each in slices]
        yield Scored(TargetAnswer(spec, slices, selections, floor, None), ids)


def json_lines(batches: Iterable[Scored]) -> Iterator[bytes]:
    """A decision a line, as the endpoint writes it, with its `id` in front if it has one."""
    for answer, ids in batches:
        lines = [msgspec.json.encode(each) for each in answer.decisions()]
        if ids is not None:
            lines = [
                b'{"id":%b,%b' % (msgspec.json.encode(each), line[1:])
                for each, line in zip(ids, lines, strict=True)
            ]
        yield b"".join(line + b"\n" for line in lines)


def _spec(found: ExportedPolicy) -> ExperimentSpec:
    manifest = found.manifest
    return ExperimentSpec(
        name=manifest["experiment"],
        arms=tuple(manifest["arms"]),
        context_kind=ContextKind(manifest["context"]["kind"]),
        context_shape=tuple(manifest["context"]["shape"]),
        fallback_arm=manifest["fallback_arm"],
        table=table_of(manifest["context"]),
        image=image_schema_of(manifest["context"]),
        reward_range=range_of(manifest.get("reward_range")),
    )


_Batch = tuple[list[TargetRows], Sequence[str] | None]


def _batches(spec: ExperimentSpec, contexts: Path, options: TableOptions) -> Iterator[_Batch]:
    if contexts.suffix.lower() in TABLES:
        yield from _of_table(spec, contexts, options)
        return
    if options.id is not None:
        raise TableError("Only a table has a column of ids: images have names.", options.id)
    if is_images(contexts):
        yield from _of_images(spec, contexts)
        return
    if contexts.suffix == ".npy":
        array = open_memmap(contexts, mode="r")  # no objects, no archive
        for start in range(0, len(array), MAX_BATCH):
            with np.errstate(over="ignore"):  # values beyond float32 are refused later
                rows = np.ascontiguousarray(array[start : start + MAX_BATCH], dtype=CONTEXT_TYPE)
            yield binary_target_rows(spec, rows.tobytes(), MediaType.BYTES, None), None
        return
    with contexts.open("rb") as stream:
        lines = (line.strip() for line in stream)
        full = (line for line in lines if line)
        while some := list(islice(full, MAX_BATCH)):
            body = TargetSelectBody(
                experiment=spec.name, contexts=Raw(b"[" + b",".join(some) + b"]")
            )
            yield target_rows(spec, body, MediaType.JSON), None


def _of_images(spec: ExperimentSpec, path: Path) -> Iterator[_Batch]:
    """Images, whose names are the ids."""
    if spec.image is None or spec.is_per_arm:
        raise ImageFileError("The policy takes no images.")
    for names, rows in decoded_images(spec.image, path, min(MAX_BATCH, most_images(spec))):
        yield [TargetRows(spec.arms, rows, range(len(rows)))], names


def _of_table(spec: ExperimentSpec, path: Path, options: TableOptions) -> Iterator[_Batch]:
    if spec.table is None or spec.is_per_arm:
        raise TableError("The policy takes no rows of a table: its contexts have no columns.")
    apart = () if options.id is None else (options.id,)
    with opened_table(path, apart, spec.table, options.cells, options.csv) as file:
        for name in apart:
            file.require_values(name)
        for ids, rows in file.encoded(spec.table, MAX_BATCH, apart, options.ignore):
            groups = [TargetRows(spec.arms, rows, range(len(rows)))]
            yield groups, None if options.id is None else list(map(str, ids.column(0).to_pylist()))
