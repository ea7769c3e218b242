"""Batches of any size as calls that each fit the service's limits, and their answers joined.

A split batch is whole or nothing only part by part. The first part has the id of the batch, the
others ids made of it: the same batch under the same id counts once, wherever it broke off.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Raw
from msgspec.structs import replace

from daband_client.answers import (
    ContextsStored,
    NearestRounds,
    RewardedBatch,
    SelectedBatch,
    TargetSelected,
)
from daband_client.calls import BYTES, JSON_LINES, LONG_SECONDS, ZIP, Call, json_line, packed, path
from daband_client.contexts import Matrix, Round, as_round, many
from daband_client.ids import new_id, part_id
from daband_client.images import ARCHIVE, image_count, read
from daband_client.settings import Limits

T = TypeVar("T")

TABLES: Mapping[str, str] = {
    ".csv": "text/csv",
    ".tsv": "text/csv",
    ".txt": "text/csv",
    ".parquet": "application/vnd.apache.parquet",
    ".jsonl": JSON_LINES,
    ".ndjson": JSON_LINES,
    ARCHIVE: ZIP,  # of images and one table that names them
}


def select_calls(
    experiment: str, rounds: Iterable[Round], request_id: str | None, limits: Limits
) -> Iterator[Call[SelectedBatch]]:
    """Rounds to decide; those without an id get one of the batch's."""
    whole, given = request_id or new_id(), [as_round(each) for each in rounds]
    counts = (image_count(each.source) + image_count(each.target) for each in given)
    bodies = (packed(each.body(part_id(whole, place))) for place, each in enumerate(given))
    for _, group in _grouped(bodies, limits.rows_with(counts), limits.body_bytes):
        body = {"experiment": experiment, "rounds": [Raw(each) for each in group]}
        yield Call("POST", "/select/batch", SelectedBatch, body)


def reward_calls(rewards: Mapping[str, float], limits: Limits) -> Iterator[Call[RewardedBatch]]:
    """Rewards by decision id."""
    bodies = (
        packed({"decision_id": decision_id, "reward": float(value)})
        for decision_id, value in rewards.items()
    )
    for _, group in _grouped(bodies, limits.rows, limits.body_bytes):
        body = {"rewards": [Raw(each) for each in group]}
        yield Call("POST", "/reward/batch", RewardedBatch, body)


def target_calls(
    contexts: Any, fields: Mapping[str, Any], request_id: str, limits: Limits
) -> Iterator[Call[TargetSelected]]:
    """Contexts for the target policy; `fields` are the rest of the body."""
    found = many(contexts)
    most = limits.rows if isinstance(found, Matrix) else limits.rows_with(map(image_count, found))
    for start, rows in _parts(found, most, limits.body_bytes, packed):
        listed = rows if isinstance(rows, bytes) else [Raw(each) for each in rows]
        body = {**fields, "contexts": listed, "request_id": _id_at(request_id, start)}
        yield Call("POST", "/target/select", TargetSelected, body)


def nearest_call(experiment: str, contexts: Any, fields: Mapping[str, Any]) -> Call[NearestRounds]:
    """Contexts in one request, whose number the service limits; `fields` are the rest of the body."""
    found = many(contexts)
    listed = found.read(0, found.count) if isinstance(found, Matrix) else found
    to = path("experiments", experiment, "nearest")
    return Call("POST", to, NearestRounds, {**fields, "contexts": listed})


def upload_calls(
    experiment: str, contexts: Any, request_id: str, limits: Limits
) -> Iterator[Call[ContextsStored]]:
    """Unlabeled contexts to store: float32 for a matrix, a zip archive as it is, else a line of JSON each."""
    if isinstance(contexts, Path) and contexts.suffix.lower() == ARCHIVE:
        to = path("target", "contexts", experiment=experiment, request_id=request_id)
        yield Call("POST", to, ContextsStored, read(contexts), ZIP, LONG_SECONDS)
        return
    for start, rows in _parts(many(contexts), limits.upload_rows, limits.upload_bytes, json_line):
        to = path("target", "contexts", experiment=experiment, request_id=_id_at(request_id, start))
        media, body = (BYTES, rows) if isinstance(rows, bytes) else (JSON_LINES, b"".join(rows))
        yield Call("POST", to, ContextsStored, body, media, LONG_SECONDS)


def table_body(
    table: Path | bytes, media: str | None, from_file: Callable[[Path], T]
) -> tuple[bytes | T, str]:
    """A table and its media type, by the file's name unless it is given."""
    if isinstance(table, bytes):
        if media is None:
            raise ValueError(f"bytes need their media type: one of {', '.join(TABLES.values())}")
        return table, media
    kind = media or TABLES.get(Path(table.name.lower().removesuffix(".gz")).suffix)
    if kind is None:
        raise ValueError(f"{table.name}: the name of a table ends in one of {', '.join(TABLES)}")
    table.stat()  # a file that is not there is no failure to retry
    return from_file(table), kind


def joined_targets(parts: Sequence[TargetSelected], request_id: str) -> TargetSelected:
    """The decisions of all parts; the versions are the last part's."""
    stored = [each.stored for each in parts if each.stored is not None]
    return replace(
        parts[-1],
        decisions=[decision for part in parts for decision in part.decisions],
        stored=joined_uploads(stored, request_id) if stored else None,
    )


def joined_uploads(parts: Sequence[ContextsStored], request_id: str) -> ContextsStored:
    """All parts as one upload, `created` if any part was; the offset is the last part's."""
    statuses = {each.status for each in parts}
    return replace(
        parts[-1],
        request_id=request_id,
        status="created" if "created" in statuses else parts[-1].status,
        contexts=sum(each.contexts for each in parts),
    )


def _parts(
    found: Matrix | list[Any], most: int, most_bytes: int, encoded: Any
) -> Iterator[tuple[int, bytes | list[bytes]]]:
    """Float32 bytes or encoded contexts, each part with the place of its first context."""
    if isinstance(found, Matrix):
        yield from _slices(found, most, most_bytes)
    elif found:
        yield from _grouped(map(encoded, found), most, most_bytes)
    else:
        raise ValueError("there are no contexts to send")


def _slices(matrix: Matrix, most: int, most_bytes: int) -> Iterator[tuple[int, bytes]]:
    if not matrix.count:
        raise ValueError("there are no contexts to send")
    step = max(1, min(most, most_bytes // max(matrix.row_bytes, 1)))
    for start in range(0, matrix.count, step):
        yield start, matrix.read(start, min(start + step, matrix.count))


def _grouped(
    encoded: Iterable[bytes], most: int, most_bytes: int
) -> Iterator[tuple[int, list[bytes]]]:
    """Encoded items in groups that fit into a request, each with the place of its first item."""
    group: list[bytes] = []
    start = size = 0
    for place, item in enumerate(encoded):
        if group and (len(group) == most or size + len(item) > most_bytes):
            yield start, group
            group, start, size = [], place, 0
        group.append(item)
        size += len(item)
    if group:
        yield start, group


def _id_at(request_id: str, start: int) -> str:
    return part_id(request_id, start) if start else request_id
