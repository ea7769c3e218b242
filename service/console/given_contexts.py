"""Contexts as people give them: pasted JSON or CSV, a dropped CSV file or an image."""

import csv
import io
import json

from msgspec import Raw

from service.codec.bodies import MAX_BATCH, MediaType, TargetSelectBody
from service.codec.target_contexts import TargetRows, binary_target_rows, target_rows
from service.columns.schema import TableError
from service.errors import refuse
from service.experiment_spec import ExperimentSpec
from service.formats.tables import TableFile
from service.ops.unnamed_files import unnamed_file

PASTED = "pasted.csv"
IMAGES = {"png": MediaType.PNG, "jpg": MediaType.JPEG, "jpeg": MediaType.JPEG}


def given_contexts(spec: ExperimentSpec, text: str, name: str, content: bytes) -> list[TargetRows]:
    """The contexts of a file if there is one, else of the text."""
    if content:
        suffix = name.rpartition(".")[2].lower()
        if suffix in IMAGES:
            return binary_target_rows(spec, content, IMAGES[suffix], None)
        text = _decoded(content)
    text = text.strip()
    if not text:
        refuse("Paste a context, or choose a file.")
    return _from_json(spec, text) if text[0] in "[{" else _from_csv(spec, text)


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        refuse("The file is neither an image nor text in UTF-8.")


def _from_json(spec: ExperimentSpec, text: str) -> list[TargetRows]:
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        refuse("This is not valid JSON.")
    # A list of numbers is one vector, a list of anything else many contexts.
    is_one = isinstance(given, dict) or not isinstance(given[0] if given else None, list | dict)
    raw = Raw(text.encode())
    body = TargetSelectBody(experiment=spec.name)
    setattr(body, "context" if is_one else "contexts", raw)
    return target_rows(spec, body, MediaType.JSON)


def _from_csv(spec: ExperimentSpec, text: str) -> list[TargetRows]:
    if spec.table is None:
        return _from_numbers(spec, text)
    with unnamed_file() as (stream, path):
        stream.write(text.encode())
        stream.flush()
        try:
            return _from_table(spec, TableFile(path, sent_as=PASTED))
        except TableError as error:
            said = str(error).replace(PASTED, "the table")
            raise TableError(said, error.column) from None


def _from_table(spec: ExperimentSpec, file: TableFile) -> list[TargetRows]:
    assert spec.table is not None  # noqa: S101
    known = {each.name for each in spec.table.columns}
    others = [each for each in file.names if each not in known]  # such as ids and outcomes
    found = list(file.encoded(spec.table, MAX_BATCH, (), others))
    if len(found) != 1:
        refuse(f"The table needs 1 to {MAX_BATCH:,} rows; `daband score` takes any number.")
    rows = found[0][1].reshape(-1, *spec.context_shape)
    return [TargetRows(spec.arms, rows, range(len(rows)))]


def _from_numbers(spec: ExperimentSpec, text: str) -> list[TargetRows]:
    """Rows of numbers; a first row of names is left out."""
    rows = [row for row in csv.reader(io.StringIO(text)) if row]
    numbers = [_numbers(row) for row in rows]
    found = numbers[1:] if numbers and numbers[0] is None else numbers
    if None in found:
        refuse(f"Row {found.index(None) + 1} has something that is no number.")
    body = TargetSelectBody(experiment=spec.name, contexts=Raw(json.dumps(found).encode()))
    return target_rows(spec, body, MediaType.JSON)


def _numbers(row: list[str]) -> list[float] | None:
    try:
        return [float(each) for each in row]
    except ValueError:
        return None
