"""One file of archived rounds: Parquet, named by its offsets and its hash, never changed."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from service.records import StoredEvent
from service.storage.archive.files import ArchiveFiles
from service.storage.events.rows import event_values, stored_event

COLUMNS = pa.schema(
    [
        ("experiment_id", pa.string()),
        ("event_offset", pa.int64()),
        ("kind", pa.string()),
        ("event_key", pa.string()),
        ("payload", pa.binary()),
        ("context", pa.binary()),
        ("request_id", pa.string()),
        ("request_hash", pa.string()),
        ("domain", pa.string()),
        ("arm", pa.string()),
        ("reward", pa.float64()),
        ("policy_version", pa.int64()),
        ("created_at", pa.timestamp("us", "UTC")),
        # The offset of a decision's reward, if it has one, and of a reward's decision.
        ("pair_offset", pa.int64()),
    ]
)
REPEATING = ["experiment_id", "kind", "domain", "arm", "policy_version"]
COMPRESSION_LEVEL = 6
KEPT_IN_MEMORY = 4  # tables of the last files that were read
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class Archived(NamedTuple):
    """An archived decision and the offset of its reward, or a reward and that of its decision."""

    event: StoredEvent
    pair_offset: int | None


class SegmentTable:
    """The decisions and rewards of one file, in the order of the log."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._offsets: np.ndarray[Any, np.dtype[np.int64]] = table["event_offset"].to_numpy()

    def between(self, after: int, up_to: int) -> list[Archived]:
        """The events with `after` < offset ≤ `up_to`."""
        first, end = np.searchsorted(self._offsets, [after, up_to], side="right").tolist()
        return _events(self._table.slice(first, end - first))

    def at(self, offsets: Sequence[int]) -> list[Archived]:
        """The events at these offsets, without those that are not here."""
        return _events(self._table.take(np.flatnonzero(np.isin(self._offsets, offsets))))

    def of_keys(self, kind: str, keys: Sequence[str]) -> list[Archived]:
        """The events of a kind that have one of these keys."""
        has_key = pc.is_in(self._table["event_key"], pa.array(keys, pa.string()))
        return _events(self._table.filter(pc.and_(has_key, pc.equal(self._table["kind"], kind))))

    def rewards_of(self, domain: str) -> dict[int, float]:
        """The rewards of a domain, by offset."""
        is_reward, is_of = pc.equal(self._table["kind"], "reward"), self._table["domain"]
        kept = self._table.filter(pc.and_(is_reward, pc.equal(is_of, domain)))
        return dict(zip(kept["event_offset"].to_pylist(), kept["reward"].to_pylist(), strict=True))


def _events(table: pa.Table) -> list[Archived]:
    columns = {name: table[name] for name in COLUMNS.names}
    moments = columns.pop("created_at").cast(pa.int64()).to_pylist()
    pairs = columns.pop("pair_offset").to_pylist()
    rows = zip(*(column.to_pylist() for column in columns.values()), moments, strict=True)
    return [
        Archived(stored_event((*row[:-1], EPOCH + row[-1] * MICROSECOND)), pair)
        for row, pair in zip(rows, pairs, strict=True)
    ]


def file_name(first_offset: int, last_offset: int, sha256: str) -> str:
    """The file's name: equal names mean equal bytes."""
    return f"{first_offset:012d}-{last_offset:012d}-{sha256[:16]}.parquet"


def first_offset_of(name: str) -> int | None:
    """The first offset of a file, by its name; None for other files."""
    first = name.rpartition("/")[2].partition("-")[0]
    return int(first) if first.isdecimal() else None


def encoded(events: Iterable[Archived]) -> bytes:
    """The bytes of a file."""
    rows = [(*event_values(each.event), each.pair_offset) for each in events]
    arrays = [
        pa.array(values, field.type)
        for values, field in zip(zip(*rows, strict=True), COLUMNS, strict=True)
    ]
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.Table.from_arrays(arrays, schema=COLUMNS),
        sink,
        compression="zstd",
        compression_level=COMPRESSION_LEVEL,
        use_dictionary=REPEATING,
        write_statistics=False,
    )
    content: bytes = sink.getvalue().to_pybytes()
    return content


def decoded(content: bytes) -> SegmentTable:
    """The events of a file's bytes."""
    return SegmentTable(pq.read_table(pa.BufferReader(content)))


@lru_cache(maxsize=KEPT_IN_MEMORY)
def read_segment(files: ArchiveFiles, name: str, sha256: str) -> SegmentTable:
    """The events of a file; raises `DamagedArchive` if its bytes are not those of this hash."""
    return decoded(files.read(name, sha256))
