"""Files that small uploads make large: bombs of each format, and what may be answered to each."""

import gzip
import io
import json
import pickle
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.images import PNG_SIGNATURE, colours, encoded, png, zipped

MEBIBYTE = 1 << 20
EXPERIMENTS: list[dict[str, Any]] = [
    {
        "name": "table",
        "arms": ["a", "b"],
        "context": {
            "kind": "table",
            "columns": [
                {"name": "age", "type": "numeric", "missing": True},
                {"name": "strain", "type": "categorical", "values": ["x", "y"], "missing": True},
            ],
        },
        "config": {"latent_size": 4, "hidden_sizes": [8], "episode_length": 1 << 16},
    },
    {"name": "vector", "arms": ["a", "b"], "context": {"kind": "shared", "shape": [4]}},
    {"name": "image", "arms": ["a", "b"], "context": {"kind": "image", "shape": [1, 4, 4]}},
]
REFUSED = frozenset({408, 413, 415, 422})
TAKEN = frozenset({200, 201})
QUEUED = frozenset({202}) | REFUSED  # an evaluation that fails says so in its job

Parameters = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Hostile:
    """A request, and the statuses that may answer it."""

    path: str
    media: str
    content: bytes
    params: Parameters = field(default_factory=dict)
    answers: frozenset[int] = REFUSED


EXECUTED = Path("/tmp/daband-hostile-pickle")  # noqa: S108 - it must not appear
Make = Callable[[], bytes]


class Touch:
    """Its pickle makes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._path,)


# ---- Parquet, as a history ----

ROUND: dict[str, Any] = {"arm": "arm", "reward": "reward"}


def columns(rows: int) -> dict[str, Any]:
    return {
        "age": np.zeros(rows),
        "arm": pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), ["a"]),
        "reward": np.zeros(rows),
    }


def parquet(table: pa.Table | dict[str, Any], **options: Any) -> bytes:
    stream = io.BytesIO()
    pq.write_table(table if isinstance(table, pa.Table) else pa.table(table), stream, **options)
    return stream.getvalue()


def repeated(rows: int, text: str | bytes) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), [text])


def with_dictionary(name: str, rows: int, length: int) -> bytes:
    """One long text in every row, which is there once."""
    found = columns(rows) | {name: repeated(rows, "x" * length)}
    # Without Arrow's schema, which would keep the dictionary, a reader makes a text of each row.
    return parquet(found, compression="zstd", write_statistics=False, store_schema=False)


def with_column(name: str, values: Any, rows: int = 64, **options: Any) -> bytes:
    found = columns(rows) | {name: values}
    return parquet(found, write_statistics=False, **options)


def shared_prefixes() -> bytes:
    texts = pa.array(["x" * 400_000] * 4096)
    encodings = {"strain": "DELTA_BYTE_ARRAY"}
    return with_column(
        "strain", texts, 4096, use_dictionary=["arm"], column_encoding=encodings, compression="zstd"
    )


def varint(value: int) -> bytes:
    found = b""
    while value > 0x7F:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def listed(count: int, item: bytes) -> bytes:
    """A list of structs in Thrift's compact protocol."""
    return b"\xfc" + varint(count) + item * count


def large_footer(groups: int, chunks: int) -> bytes:
    """A footer of so many row groups of so many columns, three bytes each."""
    root = b"\x48\x01r\x15\x02\0"
    leaf = b"\x15\x02\x25\0\x18\x01x\0"
    group = b"\x19" + listed(chunks, b"\x26\0\0") + b"\x16\0\x16\0\0"
    footer = b"\x15\x04\x19\x2c" + root + leaf + b"\x16\0\x19" + listed(groups, group) + b"\0"
    return b"PAR1" + footer + struct.pack("<I", len(footer)) + b"PAR1"


def nested_table() -> bytes:
    inner: pa.DataType = pa.int8()
    for _ in range(60):
        inner = pa.struct([("x", inner)])
    return with_column("age", pa.nulls(64, inner))


def flipped(seed: int) -> bytes:
    content = bytearray(parquet(columns(5000) | {"strain": repeated(5000, "x")}))
    rng = np.random.default_rng(seed)
    for place in rng.integers(4, len(content) - 8, 12):
        content[place] ^= int(rng.integers(1, 256))
    return bytes(content)


def pickled_type() -> bytes:
    table = pa.table(columns(8))
    place = table.schema.get_field_index("age")
    about = {
        "ARROW:extension:name": "arrow.py_extension_type",
        "ARROW:extension:metadata": pickle.dumps(Touch(EXECUTED)),
    }
    return parquet(
        table.cast(table.schema.set(place, table.schema.field(place).with_metadata(about)))
    )


def parquets() -> Iterator[tuple[str, Make, Parameters, frozenset[int]]]:
    either = TAKEN | REFUSED
    yield "long id", lambda: with_dictionary("id", 4096, 400_000), {"id": "id"}, REFUSED
    yield "ignored long text", lambda: with_dictionary("n", 4096, 400_000), {"ignore": "n"}, TAKEN
    yield "long context", lambda: with_dictionary("strain", 4096, 400_000), {}, REFUSED
    yield "many texts", lambda: with_dictionary("strain", 200_000, 60_000), {}, REFUSED
    yield "long arm", lambda: with_dictionary("arm", 4096, 400_000), {}, REFUSED
    yield "shared prefixes", shared_prefixes, {}, REFUSED
    yield (
        "a page of 300 MiB",
        lambda: with_column(
            "strain", ["x" * (300 * MEBIBYTE)], 1, use_dictionary=False, compression="zstd"
        ),
        {},
        REFUSED,
    )
    yield "a footer of 10^6 columns", lambda: large_footer(100, 10_000), {}, REFUSED
    yield "10,000 columns", lambda: parquet({f"c{n}": [0.0] for n in range(10_000)}), {}, REFUSED
    yield "lists", lambda: with_column("age", [[0] * 1000] * 64), {}, REFUSED
    yield "ignored lists", lambda: with_column("n", [[0] * 1000] * 64), {"ignore": "n"}, TAKEN
    yield "deep structs", nested_table, {}, REFUSED
    yield "two million rows", lambda: parquet(columns(2_000_000), compression="zstd"), {}, REFUSED
    yield "500 row groups", lambda: parquet(columns(500), row_group_size=1), {}, either
    yield (
        "long bytes of one width",
        lambda: with_column(
            "age", pa.array([b"x" * 400_000] * 2000, pa.binary(400_000)), 2000, compression="zstd"
        ),
        {},
        REFUSED,
    )
    yield "bytes", lambda: with_column("age", [b"x"] * 64), {}, REFUSED
    yield "cut", lambda: parquet(columns(5000))[:-100], {}, REFUSED
    yield "a footer beyond the file", lambda: b"PAR1\xff\xff\xff\x7fPAR1", {}, REFUSED
    yield "a pickled type", pickled_type, {}, either
    for seed in range(6):
        yield f"flipped bytes {seed}", lambda seed=seed: flipped(seed), {}, either  # type: ignore[misc]


# ---- CSV and JSON lines, as a history ----

HEAD = b"age,strain,arm,reward\n"
GOOD = b"1,x,a,0.5\n"


def csvs() -> Iterator[tuple[str, Make, Parameters, frozenset[int]]]:
    long = b"x" * (9 * MEBIBYTE)
    either = TAKEN | REFUSED
    yield "a quoted cell of 9 MiB", lambda: HEAD + b'1,"' + long + b'",a,0\n', {}, REFUSED
    yield "an open quote", lambda: HEAD + GOOD + b'1,"' + GOOD * 10**6, {}, REFUSED
    yield "a line of 9 MiB", lambda: HEAD + long + b"\n", {}, REFUSED
    yield "10^6 columns", lambda: b",".join(b"c%d" % n for n in range(10**6)), {}, REFUSED
    yield "10^6 cells in a row", lambda: HEAD + b"," * 10**6 + b"\n", {}, REFUSED
    yield "a header of 9 MiB", lambda: long + b"\n1\n", {}, REFUSED
    yield "NUL", lambda: HEAD + b"\0" * 100_000, {}, REFUSED
    yield "gzip as CSV", lambda: gzip.compress(HEAD + GOOD * 10**6), {}, REFUSED
    yield (
        "half UTF-16",
        lambda: b"\xff\xfe" + (HEAD + GOOD).decode().encode("utf-16-le")[:-1],
        {},
        (either),
    )
    yield "separated by quotes", lambda: HEAD + GOOD, {"separator": '"'}, REFUSED
    yield "separated by lines", lambda: HEAD + GOOD, {"separator": "\n"}, REFUSED
    for name in (*("zlib", "hex", "base64", "bz2", "rot13", "quopri", "uu"), "punycode", "idna"):
        yield f"encoding {name}", lambda: HEAD + GOOD, {"encoding": name}, REFUSED


def rows(*lines: str) -> bytes:
    return "\n".join(lines).encode() + b"\n"


def many_keys(count: int, start: int = 0) -> str:
    return "{" + ",".join(f'"k{key}":1' for key in range(start, start + count)) + "}"


def json_tables() -> Iterator[tuple[str, Make, Parameters, frozenset[int]]]:
    good = '{"age":1,"strain":"x","arm":"a","reward":0.5}'
    either = TAKEN | REFUSED
    yield (
        "a text of 9 MiB",
        lambda: rows(good, '{"age":"' + "x" * (9 * MEBIBYTE) + '"}'),
        {},
        REFUSED,
    )
    yield "a row of 300,000 keys", lambda: rows(many_keys(300_000)), {}, REFUSED
    yield "keys beyond the sample", lambda: rows(*[good] * 1500, many_keys(300_000)), {}, REFUSED
    yield (
        "other keys in each row",
        lambda: rows(*(many_keys(1000, 1000 * row) for row in range(100))),
        {},
        REFUSED,
    )
    yield "deep arrays", lambda: rows('{"age":' + "[" * 100_000 + "]" * 100_000 + "}"), {}, REFUSED
    yield "a number of 10^6 digits", lambda: rows('{"age":' + "9" * 10**6 + "}"), {}, REFUSED
    yield "a key of 3 MiB", lambda: rows('{"' + "k" * (3 * MEBIBYTE) + '":1}'), {}, REFUSED
    yield "no UTF-8", lambda: b'{"age":"\xff\xfe"}\n', {}, REFUSED
    yield "beyond float64", lambda: rows(good.replace("1,", "1e999,")), {}, REFUSED
    yield (
        "an ignored text of 3 MiB",
        lambda: rows(good[:-1] + ',"n":"' + "x" * (3 * MEBIBYTE) + '"}'),
        {"ignore": "n"},
        either,
    )


# ---- Contexts ----


def npy(shape: Any, kind: str = "'<f4'", *, fortran: bool = False, data: bytes = b"") -> bytes:
    about = f"{{'descr': {kind}, 'fortran_order': {fortran}, 'shape': {shape}, }}".encode()
    about += b" " * (-(len(about) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(about)) + about + data


def pickled_array() -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.array([[Touch(EXECUTED)] * 4], dtype=object), allow_pickle=True)
    return stream.getvalue()


def npys() -> Iterator[tuple[str, Make]]:
    yield "a shape of 10^12 rows", lambda: npy((10**12, 4), data=bytes(64))
    yield "a shape of 2^64 numbers", lambda: npy((2**62, 4), data=bytes(64))
    yield "Fortran order", lambda: npy((4, 4), fortran=True, data=bytes(64))
    yield "pickled objects", pickled_array
    yield "a structure", lambda: npy((4, 4), "[('a', '<f4', (4000, 4000))]", data=bytes(64))
    yield "a negative shape", lambda: npy((-1, 4), data=bytes(64))
    yield "a header without an end", lambda: b"\x93NUMPY\x02\0\xff\xff\xff\x7f" + b" " * MEBIBYTE
    yield "a header of parentheses", lambda: npy("(" * 5000)


def lines_of_contexts() -> Iterator[tuple[str, str, Make]]:
    yield "a line of 9 MiB", "vector", lambda: b"[" + b"1," * (9 * MEBIBYTE // 2) + b"1]\n"
    yield "deep arrays", "vector", lambda: b"[" * 10**6 + b"\n"
    yield "a row of 300,000 keys", "table", lambda: rows(many_keys(300_000))


def png_claiming(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = zlib.compress(bytes(1 << 20))
    return PNG_SIGNATURE + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def tall_jpeg() -> bytes:
    content = encoded(_image(), "JPEG")
    place = content.index(b"\xff\xc0") + 5
    return content[:place] + b"\xff\xff\xff\xff" + content[place + 4 :]


def _image() -> Any:
    from PIL import Image

    return Image.fromarray(colours(1, 4, 4)[0])


def duplicated() -> bytes:
    stream = io.BytesIO()
    with ZipFile(stream, "w", ZIP_DEFLATED) as archive:
        for name in ("a.png", "b.png"):
            archive.writestr(name, png(colours(1, 4, 4)[0]))
    return stream.getvalue().replace(b"b.png", b"a.png")


def lying(size: int) -> bytes:
    """An archive whose directory claims another unpacked size."""
    content = bytearray(zipped({"a.png": bytes(4096)}))
    place = content.rindex(b"PK\x01\x02") + 24
    content[place : place + 4] = struct.pack("<I", size)
    return bytes(content)


def pictures() -> Iterator[tuple[str, str, Make]]:
    kind = "application/zip"
    yield "nested archives", kind, lambda: zipped({"a.zip": zipped({"b.zip": b""})})
    yield "a name twice", kind, duplicated
    yield "a size of 4 GiB", kind, lambda: lying(0xFFFFFFF0)
    yield "a size that is too small", kind, lambda: lying(8)
    yield "outside", kind, lambda: zipped({"../a.png": b""})
    yield "objects of numpy", kind, lambda: zipped({"a.npz": zipped({"x.npy": pickled_array()})})
    yield "zeros", kind, lambda: zipped({"a.png": bytes(64 * MEBIBYTE)})
    yield "PNG of 2^32 pixels", kind, lambda: zipped({"a.png": png_claiming(1 << 16, 1 << 16)})
    yield "JPEG of 2^32 pixels", kind, lambda: zipped({"a.jpg": tall_jpeg()})
    yield "TIFF", kind, lambda: zipped({"a.png": encoded(_image(), "TIFF")})


# ---- Logs ----


def log_header(**fields: Any) -> bytes:
    header = {
        "format": "daband-log",
        "arms": ["a", "b"],
        "context_kind": "shared",
        "context_shape": [2],
    }
    return json.dumps(header | fields).encode() + b"\n"


def dsjson(context: str) -> bytes:
    fields = '"EventId":"1","_label_Action":1,"_label_cost":0,"_label_probability":1'
    return ("{" + fields + ',"c":' + context + "}\n").encode()


def logs() -> Iterator[tuple[str, str, Make]]:
    yield "a line of 9 MiB", "jsonl", lambda: log_header() + b" " * (9 * MEBIBYTE)
    yield "a header of 9 MiB", "jsonl", lambda: b"{" + b" " * (9 * MEBIBYTE)
    yield "a shape of 10^12", "jsonl", lambda: log_header(context_shape=[10**6, 10**6])
    yield "deep contexts", "jsonl", lambda: log_header() + b'{"context":' + b"[" * 10**5 + b"\n"
    yield "gzip", "jsonl", lambda: gzip.compress(bytes(64 * MEBIBYTE))
    yield (
        "features times actions",
        "dsjson",
        lambda: dsjson(
            '{"f":[' + ",".join(['"x"'] * 100_000) + '],"_multi":[' + ",".join(["{}"] * 9000) + "]}"
        ),
    )
    yield (
        "a long name of many features",
        "dsjson",
        lambda: dsjson(
            '{"' + "n" * (3 * MEBIBYTE) + '":[' + ",".join(["1"] * 100_000) + '],"_multi":[{}]}'
        ),
    )
    yield "10^6 actions", "dsjson", lambda: dsjson('{"_multi":[' + ",".join(["{}"] * 10**6) + "]}")
    yield "deep features", "dsjson", lambda: dsjson('{"f":' + '{"f":' * 900 + "1" + "}" * 901)
    yield "a row without an end", "csv", lambda: b'"\n",' * (4 * MEBIBYTE)


def histories() -> Iterator[tuple[str, Callable[[], Hostile]]]:
    def made(media: str, make: Make, params: Parameters, answers: frozenset[int]) -> Hostile:
        return Hostile("/experiments/table/history", media, make(), ROUND | params, answers)

    kinds = {
        "application/vnd.apache.parquet": parquets(),
        "text/csv": csvs(),
        "application/x-ndjson": json_tables(),
    }
    for media, cases in kinds.items():
        for name, make, params, answers in cases:
            yield f"{media.rpartition('.')[2]}: {name}", partial(made, media, make, params, answers)


def uploads() -> Iterator[tuple[str, Callable[[], Hostile]]]:
    def made(experiment: str, media: str, make: Make) -> Hostile:
        return Hostile("/target/contexts", media, make(), {"experiment": experiment})

    for name, make in npys():
        yield f"npy: {name}", partial(made, "vector", "application/x-npy", make)
    for name, kind, make in lines_of_contexts():
        yield f"contexts: {name}", partial(made, kind, "application/x-ndjson", make)
    for name, media, make in pictures():
        yield f"images: {name}", partial(made, "image", media, make)


def sent_logs() -> Iterator[tuple[str, Callable[[], Hostile]]]:
    def made(kind: str, make: Make) -> Hostile:
        params = {"experiment": "vector", "candidate": "uniform", "format": kind}
        return Hostile("/evaluations/file", "application/octet-stream", make(), params, QUEUED)

    for name, kind, make in logs():
        yield f"log: {name}", partial(made, kind, make)


def hostile_files() -> Iterator[tuple[str, Callable[[], Hostile]]]:
    """The name of each file, and how it is made."""
    yield from (*histories(), *uploads(), *sent_logs())
