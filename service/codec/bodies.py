"""Request bodies: strict decoding of JSON and msgpack, with errors that name the field.

These structs define what a request may contain; `requests` describes them for OpenAPI. Strings and
booleans are not numbers, and unknown fields are refused. Contexts stay undecoded until the experiment,
and so their shape, is known.
"""

import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Meta, Raw, Struct

from service import DEFAULT_METHOD
from service.columns.resolving import MAX_SAMPLE
from service.columns.schema import DeclaredColumn
from service.errors import MAX_QUOTED_NAME, InvalidRequest, UnsupportedMediaType, refuse
from service.records import Domain, check_identifier, uuid7

MAX_BATCH = 1000
ABSENT = Raw()

T = TypeVar("T")
Identifier = Annotated[str, Meta(min_length=1, max_length=128)]
Finite = Annotated[float, Meta(ge=0, le=1)]
Remark = Annotated[str, Meta(max_length=500)]
SampleRow = dict[str, bool | float | int | str | None]


class MediaType(StrEnum):
    """The media types that the service reads."""

    JSON = "application/json"
    MSGPACK = "application/msgpack"
    BYTES = "application/octet-stream"
    NPY = "application/x-npy"
    JSON_LINES = "application/x-ndjson"
    CSV = "text/csv"
    PARQUET = "application/vnd.apache.parquet"
    PNG = "image/png"
    JPEG = "image/jpeg"
    ZIP = "application/zip"
    FORM = "multipart/form-data"


STRUCTURED = (MediaType.JSON, MediaType.MSGPACK)
IMAGES = (MediaType.PNG, MediaType.JPEG)
BINARY = (MediaType.BYTES, MediaType.NPY, *IMAGES)
FILES = (MediaType.FORM, MediaType.ZIP)
STREAMED = (MediaType.JSON_LINES, MediaType.NPY, MediaType.BYTES, *FILES)
TABLES = (MediaType.CSV, MediaType.PARQUET, MediaType.JSON_LINES)
HISTORIES = (*TABLES, MediaType.ZIP)


class SideBody(Struct, forbid_unknown_fields=True):
    """One domain's contexts: a shared `context`, or `contexts` by arm."""

    context: Raw = ABSENT
    contexts: dict[Identifier, Raw] | None = None


class RoundBody(Struct, forbid_unknown_fields=True, kw_only=True):
    """One round: either side may be absent, not both."""

    request_id: Identifier | None = None
    source: SideBody | None = None
    target: SideBody | None = None
    eligible_arms: list[Identifier] | None = None


class SelectBody(RoundBody, forbid_unknown_fields=True, kw_only=True):
    """POST /select."""

    experiment: Identifier


class BinarySelect(Struct, frozen=True):
    """POST /select with the context as its whole body; the query has the other fields."""

    experiment: str
    request_id: str | None
    domain: Domain
    eligible_arms: list[str] | None
    content: bytes


class SelectBatchBody(Struct, forbid_unknown_fields=True):
    """POST /select/batch."""

    experiment: Identifier
    rounds: Annotated[list[RoundBody], Meta(min_length=1, max_length=MAX_BATCH)]


class RewardBody(Struct, forbid_unknown_fields=True):
    """POST /reward."""

    decision_id: Identifier
    reward: Finite


class ReportedReward(Struct, forbid_unknown_fields=True):
    """One reward of a batch; its value is judged by itself."""

    decision_id: Identifier
    reward: Raw


class RewardBatchBody(Struct, forbid_unknown_fields=True):
    """POST /reward/batch."""

    rewards: Annotated[list[ReportedReward], Meta(min_length=1, max_length=MAX_BATCH)]


class TargetSelectBody(Struct, forbid_unknown_fields=True, kw_only=True):
    """POST /target/select: one `context` or many `contexts`."""

    experiment: Identifier
    context: Raw = ABSENT
    contexts: Raw = ABSENT
    confidence_floor: Finite | None = None
    store: bool = False
    request_id: Identifier | None = None
    eligible_arms: list[Identifier] | None = None


class ImageBody(Struct, forbid_unknown_fields=True):
    """A context that is an image: the bytes of a PNG or JPEG file, in base64 if this is JSON."""

    image: bytes


class ContextBody(Struct, forbid_unknown_fields=True):
    """The contexts of an experiment: kind and shape, or the columns of a table."""

    kind: str
    shape: list[int] | None = None
    columns: list[DeclaredColumn] | None = None
    sample: Annotated[list[SampleRow], Meta(max_length=MAX_SAMPLE)] | None = None
    per_arm: bool = False
    resize: bool = False


class ExperimentBody(Struct, forbid_unknown_fields=True, kw_only=True):
    """POST /experiments."""

    name: str
    arms: list[str] = []
    context: ContextBody
    method: str = DEFAULT_METHOD
    seed: int = 0
    config: dict[str, Any] = {}
    fallback_arm: Identifier | None = None
    durability: str = "durable"
    reward_range: Annotated[list[float], Meta(min_length=2, max_length=2)] | None = None


class StatusBody(Struct, forbid_unknown_fields=True):
    """PATCH /experiments/{name}."""

    status: str
    by: Remark | None = None
    reason: Remark | None = None


class PhaseBody(Struct, forbid_unknown_fields=True):
    """POST /experiments/{name}/phase."""

    phase: str
    best_reward: Finite = 1.0
    by: Remark | None = None
    reason: Remark | None = None


class AuditBody(Struct, forbid_unknown_fields=True):
    """POST …/restore, …/promote and …/train: a manual act, with its author and reason."""

    request_id: Identifier | None = None
    by: Remark | None = None
    reason: Remark | None = None


def media_type(header: str | None, accepted: tuple[MediaType, ...] = STRUCTURED) -> MediaType:
    """The media type of a Content-Type header; JSON if there is none."""
    named = (header or MediaType.JSON).partition(";")[0].strip().lower()
    if named not in accepted:
        raise UnsupportedMediaType(accepted=[each.value for each in accepted])
    return MediaType(named)


def request_id_or_new(given: str | None, pointer: str = "#") -> str:
    """The validated request id of a body, or a new one."""
    return uuid7() if given is None else check_identifier(given, f"{pointer}/request_id")


def decode(body: bytes, kind: type[T], media: MediaType = MediaType.JSON, pointer: str = "#") -> T:
    """The body as `kind`; `InvalidRequest` names the field and the rule, never the value."""
    try:
        found: T = _decoder(kind, media)(body)  # type: ignore[arg-type]  # hashable
    except (ValueError, RecursionError) as error:
        if not body:
            refuse("The body is empty.", pointer)
        raise _refusal(error, pointer, kind) from None
    return found


@cache
def _decoder(kind: Any, media: MediaType) -> Callable[[bytes], Any]:
    """A strict decoder, made once."""
    if media is MediaType.MSGPACK:
        return msgspec.msgpack.Decoder(kind).decode
    return msgspec.json.Decoder(kind).decode


def nested(kind: Any, depth: int) -> Any:
    """The type of lists in lists, `depth` levels, of a kind."""
    for _ in range(depth):
        kind = list[kind]
    return kind


_PLACE = re.compile(r" - at .*?`\$(?P<path>[^`]*)`$")
_STEP = re.compile(r"\.(?P<name>[A-Za-z_]+)|\[(?P<index>\d+)\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*)`", re.DOTALL)


def _refusal(error: Exception, pointer: str, kind: Any) -> InvalidRequest:
    message = str(error)
    place = _PLACE.search(message)
    detail = _PLACE.sub("", message)
    steps: list[str] = []
    if place:
        steps = [match["name"] or match["index"] for match in _STEP.finditer(place["path"])]
    errors = [
        {"detail": _detail(error, detail, kind, steps), "pointer": "/".join((pointer, *steps))}
    ]
    return InvalidRequest(errors=errors)


def _detail(error: Exception, message: str, kind: Any, steps: Sequence[str]) -> str:
    """msgspec's message, which never quotes a value."""
    if isinstance(error, RecursionError):
        return "Nested too deeply."
    if isinstance(error, UnicodeError):
        return "The text is not valid UTF-8."
    if unknown := _UNKNOWN.fullmatch(message):
        name = unknown["name"][:MAX_QUOTED_NAME]
        return f"Unknown field `{name}`. Allowed: {', '.join(_fields_at(kind, steps))}."
    return f"{message}."


def _fields_at(kind: Any, steps: Sequence[str]) -> tuple[str, ...]:
    """The fields of the struct at the end of a path through `kind`."""
    for step in (*steps, None):
        while not (isinstance(kind, type) and issubclass(kind, Struct)):
            kind = get_args(kind)[0]  # X of `list[X]`, of `X | None` or of `Annotated[X, …]`
        if step is not None and not step.isdigit():
            kind = get_type_hints(kind)[step]
    names: tuple[str, ...] = kind.__struct_fields__
    return names
