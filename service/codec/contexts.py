"""Decodes the contexts of request bodies into validated arrays, once the experiment is known."""

import io
import math
from collections.abc import Collection, Sequence
from tokenize import TokenError
from typing import Any, NamedTuple, NoReturn
from urllib.parse import quote

import numpy as np
from msgspec import Raw
from numpy.lib import format as npy

from model import MAX_ARMS, Domain, Floats, checked_contexts
from service.codec.bodies import (
    ABSENT,
    IMAGES,
    BinarySelect,
    ImageBody,
    MediaType,
    RoundBody,
    SideBody,
    decode,
    nested,
)
from service.codec.decisions import Side, context_bytes
from service.columns.schema import TableError
from service.errors import refuse, refuse_numbers
from service.experiment_spec import ExperimentSpec
from service.images.decoding import decoded_image
from service.images.schema import ImageError, ImageSchema
from service.records import CONTEXT_TYPE, check_identifier

MSGPACK_BINARY = (0xC4, 0xC5, 0xC6)  # first bytes of msgpack's three kinds of binary
LEAST_IMAGES = 64  # that a request may have, however large they are
MAX_IMAGE_NUMBERS = 1 << 24  # of all images of a request, if they are more
MSGPACK_MAP = frozenset((*range(0x80, 0x90), 0xDE, 0xDF))  # and of its maps


def sides_of(
    spec: ExperimentSpec, body: RoundBody | BinarySelect, media: MediaType, pointer: str = "#"
) -> tuple[Side, ...]:
    """The sides of a round, source first; at least one."""
    if isinstance(body, BinarySelect):
        return (binary_side(spec, body.domain, body.content, media, body.eligible_arms),)
    eligible = body.eligible_arms
    check_image_count(spec, context_count(body), pointer)
    if eligible is not None:
        check_eligible(spec, eligible, f"{pointer}/eligible_arms")
    sides: list[Side] = []
    if body.source is not None:
        sides.append(_side(spec, Domain.SOURCE, body.source, eligible, media, f"{pointer}/source"))
    if body.target is not None:
        sides.append(_side(spec, Domain.TARGET, body.target, eligible, media, f"{pointer}/target"))
    if not sides:
        refuse("A round needs a source side, a target side or both.", pointer)
    return tuple(sides)


def context_count(body: RoundBody) -> int:
    """How many contexts a round brings."""
    sides = (each for each in (body.source, body.target) if each is not None)
    return sum(1 if each.contexts is None else len(each.contexts) for each in sides)


def offered_arms(spec: ExperimentSpec, body: RoundBody) -> list[Collection[str]]:
    """The arms that each side of a round offers, before its contexts are decoded."""
    sides = (each for each in (body.source, body.target) if each is not None)
    return [body.eligible_arms or each.contexts or spec.arms for each in sides]


def binary_side(
    spec: ExperimentSpec, domain: Domain, body: bytes, media: MediaType, arms: Sequence[str] | None
) -> Side:
    """The side of a binary body, which is its contexts; `arms` names the rows of per-arm contexts."""
    named = named_arms(spec, arms)
    shape = (len(named), *spec.context_shape) if spec.is_per_arm else spec.context_shape
    if media in IMAGES:
        contexts = lone_image(spec, body, shape)
    else:
        array = _npy_array(body, shape) if media is MediaType.NPY else _raw_array(body, shape)
        contexts = _checked(array, shape, "#")
    if not spec.is_per_arm:
        return Side(domain, in_order(spec, named), context_bytes(contexts))
    return _per_arm_side(spec, domain, dict(zip(named, contexts, strict=True)))


def named_arms(spec: ExperimentSpec, arms: Sequence[str] | None) -> tuple[str, ...]:
    """The arms of a binary body, in the order of its rows."""
    if arms is not None:
        check_eligible(spec, list(arms), "#/eligible_arms")
        return tuple(arms)
    if spec.is_per_arm and not spec.arms:
        refuse("The arms of the contexts must be named.", "#/eligible_arms")
    return spec.arms


def _side(
    spec: ExperimentSpec,
    domain: Domain,
    body: SideBody,
    eligible: list[str] | None,
    media: MediaType,
    pointer: str,
) -> Side:
    has_shared, has_own = body.context is not ABSENT, body.contexts is not None
    if spec.is_per_arm and (has_shared or not has_own):
        refuse("This experiment takes `contexts`, one for each arm.", pointer)
    if not spec.is_per_arm and (has_own or not has_shared):
        refuse("This experiment takes one shared `context`.", pointer)
    if body.contexts is not None:
        return side_by_arm(spec, domain, body.contexts, eligible, media, f"{pointer}/contexts")
    context = decoded(spec, body.context, media, f"{pointer}/context")
    arms = spec.arms if eligible is None else in_order(spec, eligible)
    return Side(domain, arms, context_bytes(context))


def side_by_arm(
    spec: ExperimentSpec,
    domain: Domain,
    raw: dict[str, Raw],
    eligible: list[str] | None,
    media: MediaType,
    pointer: str,
) -> Side:
    """A side with per-arm contexts."""
    if not 1 <= len(raw) <= MAX_ARMS:
        refuse(f"A round offers 1 to {MAX_ARMS} arms.", pointer)
    for arm in raw:
        _check_arm(spec, arm, pointer)
    names = raw.keys() if eligible is None else eligible
    if not raw.keys() >= set(names):
        refuse("An eligible arm has no context.", pointer)
    places = dict.fromkeys(names, pointer)
    if spec.takes_objects:
        places = {arm: f"{pointer}/{escaped(arm)}" for arm in names}
    contexts = {arm: decoded(spec, raw[arm], media, places[arm]) for arm in names}
    return _per_arm_side(spec, domain, contexts)


def _per_arm_side(spec: ExperimentSpec, domain: Domain, contexts: dict[str, Floats]) -> Side:
    arms = in_order(spec, contexts)
    return Side(domain, arms, b"".join([context_bytes(contexts[arm]) for arm in arms]))


def in_order(spec: ExperimentSpec, arms: Sequence[str] | dict[str, Any]) -> tuple[str, ...]:
    """The arms in declared order, or by name; the caller's order has no meaning."""
    if arms is spec.arms:
        return spec.arms
    return tuple(sorted(arms, key=lambda arm: (spec.arm_indexes.get(arm, 0), arm)))


def check_eligible(spec: ExperimentSpec, arms: list[str], pointer: str) -> None:
    """Refuse invalid eligible arms."""
    if not arms:
        refuse("At least one arm must be eligible.", pointer)
    if len(set(arms)) != len(arms):
        refuse("Eligible arms must be unique.", pointer)
    for arm in arms:
        _check_arm(spec, arm, pointer)


def _check_arm(spec: ExperimentSpec, arm: str, pointer: str) -> None:
    if spec.arms and arm not in spec.arm_indexes:
        refuse("The experiment has no arm of this name.", pointer)
    check_identifier(arm, pointer)


def decoded(spec: ExperimentSpec, raw: Raw, media: MediaType, pointer: str) -> Floats:
    """One context, *shape: a row of the declared columns, an image, or numbers."""
    content, shape = bytes(raw), spec.context_shape
    if spec.takes_objects and _is_object(content, media):
        return _of_object(spec, content, media, pointer)
    if media is MediaType.MSGPACK and content[0] in MSGPACK_BINARY:
        array = _raw_array(decode(content, bytes, media, pointer), shape, pointer)
        return _checked(array, shape, pointer)
    values = decode(content, nested(float, len(shape)), media, pointer)
    return _checked(values, shape, pointer)


def _of_object(spec: ExperimentSpec, content: bytes, media: MediaType, pointer: str) -> Floats:
    if spec.row_plan is None:
        return image_of(spec, decode(content, ImageBody, media, pointer).image, f"{pointer}/image")
    try:
        return spec.row_plan.row(content, is_msgpack=media is MediaType.MSGPACK)
    except TableError as error:
        refuse_column(error, pointer)


def image_schema(spec: ExperimentSpec, pointer: str = "#") -> ImageSchema:
    """How images are read; refuses those of an experiment that takes none."""
    if spec.image is None:
        refuse("This experiment takes no images.", pointer)
    return spec.image


def image_of(spec: ExperimentSpec, content: bytes, pointer: str = "#") -> Floats:
    """The numbers of one image file, *shape."""
    try:
        return decoded_image(image_schema(spec, pointer), content)
    except ImageError as error:
        refuse(str(error), pointer)


def lone_image(spec: ExperimentSpec, content: bytes, shape: tuple[int, ...]) -> Floats:
    """The numbers of a body that is one image, in the shape of a side's contexts."""
    if math.prod(shape) != math.prod(spec.context_shape):
        refuse("An image alone is the context of one arm: name it in `eligible_arms`.")
    return image_of(spec, content).reshape(shape)


def check_image_count(spec: ExperimentSpec, count: int, pointer: str) -> None:
    """Refuse more images than may be in memory at once: small files can hold many pixels."""
    if spec.image is not None and count > most_images(spec):
        refuse(f"A request has at most {most_images(spec)} images of this shape.", pointer)


def most_images(spec: ExperimentSpec) -> int:
    """How many images a request may have."""
    return max(LEAST_IMAGES, MAX_IMAGE_NUMBERS // math.prod(spec.context_shape))


def refuse_column(error: TableError, pointer: str) -> NoReturn:
    """Refuse a row at its column."""
    place = pointer if error.column is None else f"{pointer}/{escaped(error.column)}"
    refuse(error.detail, place)


def escaped(name: str) -> str:
    """A name as a step of a JSON pointer in a fragment (RFC 6901)."""
    return quote(name.replace("~", "~0").replace("/", "~1"), safe="~")


def _is_object(content: bytes, media: MediaType) -> bool:
    first = content[:1]
    return first[0] in MSGPACK_MAP if media is MediaType.MSGPACK else first == b"{"


def _raw_array(body: bytes, shape: tuple[int, ...], pointer: str = "#") -> Floats:
    size = math.prod(shape) * CONTEXT_TYPE.itemsize
    if len(body) != size:
        refuse(f"Expected {size} bytes: float32 numbers of shape {list(shape)}.", pointer)
    return np.frombuffer(body, dtype=CONTEXT_TYPE).astype(np.float32, copy=False).reshape(shape)


class NpyHeader(NamedTuple):
    """The header of an npy file, and the offset of its numbers."""

    shape: tuple[int, ...]
    is_fortran: bool
    kind: np.dtype[Any]
    size_bytes: int


def npy_header(body: bytes) -> NpyHeader:
    """The header of an npy file, read without allocating its array."""
    stream = io.BytesIO(body)
    try:
        version = npy.read_magic(stream)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, is_fortran, kind = read(stream)
    except (ValueError, TypeError, SyntaxError, TokenError, RecursionError, MemoryError):
        refuse("The body is not an npy file.")
    if any(type(size) is not int or size < 0 for size in shape):  # numpy accepts True as 1
        refuse("The body is not an npy file.")
    return NpyHeader(shape, is_fortran, kind, stream.tell())


def numbers_from(header: NpyHeader, body: bytes, shape: tuple[int, ...]) -> Floats:
    """The numbers of an npy file in this shape."""
    size = math.prod(shape) * header.kind.itemsize
    content = body[header.size_bytes :]
    if header.kind.kind != "f" or len(content) != size:
        refuse(f"Expected an npy file of floating-point numbers of shape {list(shape)}.")
    values = np.frombuffer(content, dtype=header.kind)
    with np.errstate(over="ignore"):
        array = values.reshape(shape, order="F" if header.is_fortran else "C").astype(np.float32)
    return np.ascontiguousarray(array)


def _npy_array(body: bytes, shape: tuple[int, ...]) -> Floats:
    header = npy_header(body)
    if header.shape != shape:
        refuse(f"Expected an npy file of floating-point numbers of shape {list(shape)}.")
    return numbers_from(header, body, shape)


def _checked(values: object, shape: tuple[int, ...], pointer: str) -> Floats:
    array = _finite(values, shape, pointer)
    if array.shape != shape:
        refuse_numbers(shape, pointer)
    return array


def checked_batch(values: object, shape: tuple[int, ...], pointer: str) -> Floats:
    """Contexts (n, *shape)."""
    array = _finite(values, shape, pointer)
    if array.ndim != len(shape) + 1:
        refuse_numbers(shape, pointer)
    return array


def _finite(values: object, shape: tuple[int, ...], pointer: str) -> Floats:
    """Check the numbers of a body after the cast to float32."""
    try:
        with np.errstate(over="ignore"):
            array = np.asarray(values, dtype=np.float32)
        checked_contexts(array, shape)  # the log keeps huge values that its result clips
    except ValueError:
        refuse_numbers(shape, pointer)
    return array
