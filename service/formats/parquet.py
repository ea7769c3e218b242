"""Our own Parquet: one row per decision; the header is in the schema's metadata under `daband`."""

from collections.abc import Iterable
from itertools import islice
from typing import IO, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from model import Domain
from service.formats.records import LogFormatError, LoggedDecision, LogHeader, LogReader, reason_of
from service.records import CONTEXT_TYPE

ROWS = 8192  # of a row group; bounds memory
KEY = b"daband"
COLUMNS = pa.schema(
    [
        ("decision_id", pa.string()),
        ("time", pa.string()),
        ("domain", pa.string()),
        ("policy_version", pa.int64()),
        ("segment", pa.string()),
        ("arm", pa.string()),
        ("propensity", pa.float64()),
        ("reward", pa.float64()),
        ("arms", pa.list_(pa.string())),
        ("probabilities", pa.list_(pa.float64())),
        ("context", pa.list_(pa.float32())),
        ("extra", pa.string()),
    ]
)


def read(file: IO[bytes], skip_bad: bool = False) -> LogReader:
    """A log from Parquet; rows are numbered from 1."""
    try:
        table = pq.ParquetFile(file)
    except (pa.ArrowException, OSError) as error:
        raise LogFormatError(f"not a Parquet file: {reason_of(error)}") from error
    content = (table.schema_arrow.metadata or {}).get(KEY)
    if content is None or not set(COLUMNS.names) <= set(table.schema_arrow.names):
        raise LogFormatError("not a daband log: its header or a column is missing")
    header = msgspec.json.decode(content, type=LogHeader)
    batches = table.iter_batches(batch_size=ROWS, columns=COLUMNS.names)
    rows = (row for batch in batches for row in batch.to_pylist())
    return LogReader(header, rows, _decision, skip_bad)


def write(file: IO[bytes], header: LogHeader, decisions: Iterable[LoggedDecision]) -> int:
    """Write a log; returns the number of decisions."""
    schema = COLUMNS.with_metadata({KEY: msgspec.json.encode(header)})
    remaining, count = iter(decisions), 0
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        while rows := [_row(each) for each in islice(remaining, ROWS)]:
            writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=schema))
            count += len(rows)
    return count


def _row(decision: LoggedDecision) -> dict[str, Any]:
    fields = {name: getattr(decision, name) for name in LoggedDecision.__struct_fields__}
    fields["domain"] = decision.domain.value
    fields["context"] = np.frombuffer(decision.context, CONTEXT_TYPE)
    fields["extra"] = msgspec.json.encode(decision.extra).decode() if decision.extra else None
    return fields


def _decision(row: dict[str, Any]) -> LoggedDecision:
    row["domain"] = Domain(row["domain"])
    row["arms"] = tuple(row["arms"])
    row["probabilities"] = None if row["probabilities"] is None else tuple(row["probabilities"])
    row["context"] = np.asarray(row["context"], dtype=CONTEXT_TYPE).tobytes()
    row["extra"] = {} if row["extra"] is None else msgspec.json.decode(row["extra"])
    return LoggedDecision(**row)
