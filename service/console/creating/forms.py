"""Forms and their files: spooled to disk while they arrive, so that memory is bounded."""

import shutil
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.datastructures import FormData, UploadFile
from starlette.requests import ClientDisconnect

from service.errors import InvalidRequest, UploadStalled, refuse
from service.formats.tables import TableFile
from service.http.problems import refused_parameters
from service.ops.unnamed_files import unnamed_file
from service.records import Actor

Query = TypeVar("Query", bound=BaseModel)

MOST_FILES = 2
MOST_FIELDS = 2000
MOST_FIELD_BYTES = 1 << 14
MAX_REMARK = 500
TABLES = (".csv", ".tsv", ".txt", ".parquet", ".jsonl", ".ndjson")


@asynccontextmanager
async def form_of(request: Request) -> AsyncIterator[FormData]:
    """The form of a request, with its files until the end."""
    limits = {"max_files": MOST_FILES, "max_fields": MOST_FIELDS}
    reading = request.form(**limits, max_part_size=MOST_FIELD_BYTES)
    try:
        form = await reading
    except (TimeoutError, ClientDisconnect):
        raise UploadStalled from None
    try:
        yield form
    finally:
        await form.close()


def text_of(form: FormData, name: str) -> str:
    """A field's text without the spaces around it; empty if it is not there."""
    found = form.get(name, "")
    return found.strip() if isinstance(found, str) else ""


def texts_of(form: FormData, name: str) -> list[str]:
    """The texts of all fields of a name, in order."""
    return [each.strip() for each in form.getlist(name) if isinstance(each, str)]


def has_file(form: FormData, name: str) -> bool:
    """Whether a file was chosen."""
    found = form.get(name)
    return isinstance(found, UploadFile) and bool(found.filename)


def suffix_of(form: FormData, name: str, suffixes: Sequence[str] = TABLES) -> str:
    """The end of the chosen file's name; refused unless it is one of these."""
    upload = form[name]
    assert isinstance(upload, UploadFile)  # noqa: S101 - `has_file` was asked
    suffix = Path(upload.filename or "").suffix.lower()
    if suffix not in suffixes:
        refuse(f"Choose a file: {', '.join(suffixes)}.", f"#/{name}")
    return suffix


def save(form: FormData, name: str, file: IO[bytes]) -> None:
    """Copy the chosen file."""
    upload = form[name]
    assert isinstance(upload, UploadFile)  # noqa: S101 - `has_file` was asked
    shutil.copyfileobj(upload.file, file, 1 << 20)
    file.flush()


@contextmanager
def sent_table(form: FormData, name: str) -> Iterator[TableFile]:
    """The chosen table, called after its field: its own name is not shown."""
    suffix = suffix_of(form, name)
    with unnamed_file() as (file, path):
        save(form, name, file)
        yield TableFile(path, sent_as=f"{name}{suffix}")


def actor_of(form: FormData, key_id: str | None) -> Actor:
    """Who does it and why; the reason must be given."""
    by, reason = text_of(form, "by"), text_of(form, "reason")
    for name, text in (("by", by), ("reason", reason)):
        if len(text) > MAX_REMARK:
            refuse(f"At most {MAX_REMARK} characters.", f"#/{name}")
    if not reason:
        refuse("Say why; it goes into the audit trail.", "#/reason")
    return Actor(by or None, reason, key_id)


def number_of(form: FormData, name: str) -> float | None:
    """A field's number; None if it is empty."""
    text = text_of(form, name)
    try:
        return float(text) if text else None
    except ValueError:
        refuse("This is no number.", f"#/{name}")


def integer_of(form: FormData, name: str) -> int:
    """A field's whole number."""
    text = text_of(form, name)
    if not text.removeprefix("-").isdecimal() or len(text) > 20:
        refuse("This is no whole number.", f"#/{name}")
    return int(text)


def range_of(form: FormData) -> list[float] | None:
    """The range of the rewards; None if it is left empty."""
    low, high = number_of(form, "low"), number_of(form, "high")
    if low is None and high is None:
        return None
    if low is None or high is None:
        refuse("Give both ends of the range, or none.", "#/reward_range")
    return [low, high]


def query_of(kind: type[Query], given: Mapping[str, Any]) -> Query:
    """The API's query that a form means, refused as the API refuses it."""
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise refused_parameters(error.errors()) from None


def errors_by_field(error: InvalidRequest) -> dict[str, str]:
    """What is wrong, by the field that it belongs to; `form` is for the form as a whole."""
    found: dict[str, str] = {}
    for each in error.members.get("errors") or [{"pointer": "#", "detail": error.detail}]:
        field, detail = _placed(str(each["pointer"]), str(each["detail"]))
        found[field] = f"{found[field]} {detail}" if field in found else detail
    return found


def _placed(pointer: str, detail: str) -> tuple[str, str]:
    steps = pointer.removeprefix("#").strip("/").split("/")
    if steps[0] == "arms" and len(steps) > 1:
        return "arms", f"Line {int(steps[1]) + 1}: {detail}"
    if steps[0] == "context":
        return ("size" if steps[-1] == "shape" else "columns"), detail
    known = ("name", "arms", "seed", "method", "size", "reason", "by", "source", "target", "file")
    if steps[0] in ("low", "high", "reward_range"):
        return "range", detail
    return (steps[0] if steps[0] in known else "form"), detail
