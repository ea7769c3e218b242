"""Decodes the bodies of `/target/select` into validated arrays of many contexts."""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec import Raw

from model import Domain, Floats
from service.codec.bodies import IMAGES, MAX_BATCH, MediaType, TargetSelectBody, decode, nested
from service.codec.contexts import (
    MSGPACK_BINARY,
    check_eligible,
    check_image_count,
    checked_batch,
    decoded,
    in_order,
    lone_image,
    named_arms,
    npy_header,
    numbers_from,
    side_by_arm,
)
from service.codec.decisions import stored_contexts
from service.columns.schema import TableError
from service.errors import refuse
from service.experiment_spec import ExperimentSpec
from service.records import CONTEXT_TYPE


class TargetRows(NamedTuple):
    """Contexts with the same arms: (n, *shape), or (n, arms, *shape) for per-arm contexts.

    `rows` are their indexes in the request.
    """

    arms: tuple[str, ...]
    contexts: Floats
    rows: Sequence[int]


def target_rows(spec: ExperimentSpec, body: TargetSelectBody, media: MediaType) -> list[TargetRows]:
    """The contexts of a structured body, grouped by their arms."""
    one, many = bytes(body.context), bytes(body.contexts)
    if bool(one) == bool(many):
        refuse("Send either `context` or `contexts`.")
    if body.eligible_arms is not None:
        check_eligible(spec, body.eligible_arms, "#/eligible_arms")
    pointer = "#/contexts" if many else "#/context"
    if spec.is_per_arm:
        return _rows_by_arm(spec, many or b"", one, body.eligible_arms, media)
    arms = in_order(spec, spec.arms if body.eligible_arms is None else body.eligible_arms)
    contexts = _shared(spec, many or one, bool(many), media, pointer)
    return [TargetRows(arms, contexts, range(len(contexts)))]


def binary_target_rows(
    spec: ExperimentSpec, body: bytes, media: MediaType, arms: Sequence[str] | None
) -> list[TargetRows]:
    """The contexts of a binary body, one after the other; per-arm contexts have a row for each arm."""
    named = named_arms(spec, arms)
    shape = (len(named), *spec.context_shape) if spec.is_per_arm else spec.context_shape
    if media in IMAGES:
        contexts = lone_image(spec, body, shape)[None]
    else:
        array = _npy_rows(body, shape) if media is MediaType.NPY else _raw_rows(body, shape, "#")
        contexts = checked_batch(array, shape, "#")
    order = in_order(spec, named)
    if spec.is_per_arm:
        contexts = np.ascontiguousarray(contexts[:, [named.index(arm) for arm in order]])
    return [TargetRows(order, contexts, range(len(contexts)))]


def _shared(
    spec: ExperimentSpec, content: bytes, is_many: bool, media: MediaType, pointer: str
) -> Floats:
    shape = spec.context_shape
    if media is MediaType.MSGPACK and content[0] in MSGPACK_BINARY:
        array = _raw_rows(decode(content, bytes, media, pointer), shape, pointer)
        if not is_many and len(array) != 1:
            refuse(f"Expected one context of shape {list(shape)}.", pointer)
        return checked_batch(array, shape, pointer)
    if not is_many:
        return decoded(spec, Raw(content), media, pointer)[None]
    if spec.takes_objects:
        return _objects(spec, content, media)
    rows = decode(content, nested(float, len(shape) + 1), media, pointer)
    _check_count(len(rows), pointer)
    return checked_batch(rows, shape, pointer)


def _objects(spec: ExperimentSpec, content: bytes, media: MediaType) -> Floats:
    if spec.row_plan is not None:
        try:
            rows = spec.row_plan.rows(content, is_msgpack=media is MediaType.MSGPACK)
        except TableError:
            pass  # the row that does not fit is named below, and rows may be numbers as well
        else:
            _check_count(len(rows), "#/contexts")
            return rows
    given = decode(content, list[Raw], media, "#/contexts")
    _check_count(len(given), "#/contexts")
    check_image_count(spec, len(given), "#/contexts")
    found = np.empty((len(given), *spec.context_shape), dtype=np.float32)
    for row, raw in enumerate(given):
        found[row] = decoded(spec, raw, media, f"#/contexts/{row}")
    return found


def _rows_by_arm(
    spec: ExperimentSpec, many: bytes, one: bytes, eligible: list[str] | None, media: MediaType
) -> list[TargetRows]:
    kind: Any = dict[str, Raw]
    if many:
        given = decode(many, list[kind], media, "#/contexts")
        _check_count(len(given), "#/contexts")
        pointers = [f"#/contexts/{index}" for index in range(len(given))]
    else:
        given, pointers = [decode(one, kind, media, "#/context")], ["#/context"]
    check_image_count(spec, sum(map(len, given)), "#/contexts")
    groups: defaultdict[tuple[str, ...], list[tuple[int, Floats]]] = defaultdict(list)
    for index, (raw, pointer) in enumerate(zip(given, pointers, strict=True)):
        side = side_by_arm(spec, Domain.TARGET, raw, eligible, media, pointer)
        groups[side.arms].append((index, stored_contexts(side.content, spec.context_shape)))
    return [
        TargetRows(arms, np.stack([each for _, each in some]), [index for index, _ in some])
        for arms, some in groups.items()
    ]


def _raw_rows(body: bytes, shape: tuple[int, ...], pointer: str) -> Floats:
    size = math.prod(shape) * CONTEXT_TYPE.itemsize
    count, rest = divmod(len(body), size)
    if rest:
        refuse(
            f"Expected a multiple of {size} bytes: float32 numbers of shape {list(shape)}.", pointer
        )
    _check_count(count, pointer)
    # No copy: these bodies are large, and nothing writes to the array.
    rows = np.frombuffer(body, dtype=CONTEXT_TYPE).astype(np.float32, copy=False)
    return rows.reshape(count, *shape)


def _npy_rows(body: bytes, shape: tuple[int, ...]) -> Floats:
    header = npy_header(body)
    count = header.shape[0] if len(header.shape) == len(shape) + 1 else 1
    if header.shape not in ((count, *shape), shape):
        refuse(f"Expected an npy file of contexts of shape {list(shape)}.")
    _check_count(count, "#")
    return numbers_from(header, body, (count, *shape))


def _check_count(count: int, pointer: str) -> None:
    if not 1 <= count <= MAX_BATCH:
        refuse(f"A request must have 1 to {MAX_BATCH} contexts.", pointer)
