"""Contexts of all encodings become validated arrays."""

import io
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, strategies as st

from model.config import ContextKind
from model.rounds import Domain
from service.codec.bodies import MediaType, SelectBody, decode
from service.codec.contexts import binary_side, npy_header, sides_of
from service.codec.decisions import Side
from service.errors import InvalidRequest
from service.experiment_spec import ExperimentSpec

ARMS = ("low", "mid", "high")
SHARED = ExperimentSpec("doses", ARMS, ContextKind.SHARED, (2,))
IMAGES = ExperimentSpec("images", ARMS, ContextKind.SHARED, (1, 2, 3))
OWN = ExperimentSpec("offers", ARMS, ContextKind.PER_ARM, (2,))
OPEN = ExperimentSpec("open", (), ContextKind.PER_ARM, (2,))


def sides(spec: ExperimentSpec, text: str) -> tuple[Side, ...]:
    body = decode(f'{{"experiment": "e", {text}}}'.encode(), SelectBody)
    return sides_of(spec, body, MediaType.JSON)


def numbers(side: Side) -> Any:
    return np.frombuffer(side.content, dtype="<f4")


def refused_at(spec: ExperimentSpec, text: str) -> str:
    with pytest.raises(InvalidRequest) as refused:
        sides(spec, text)
    return str(refused.value.members["errors"][0]["pointer"])


def test_both_sides_are_read_source_first():
    source, target = sides(SHARED, '"target": {"context": [1, 2]}, "source": {"context": [3, 4]}')
    assert (source.domain, target.domain) == (Domain.SOURCE, Domain.TARGET)
    assert (numbers(source).tolist(), numbers(target).tolist()) == ([3, 4], [1, 2])
    assert source.arms == ARMS


def test_images_are_nested():
    (side,) = sides(IMAGES, '"source": {"context": [[[1, 2, 3], [4, 5, 6]]]}')
    assert numbers(side).tolist() == [1, 2, 3, 4, 5, 6]


def test_arms_come_in_the_declared_order_or_by_name():
    (side,) = sides(OWN, '"source": {"contexts": {"high": [1, 2], "low": [3, 4]}}')
    assert (side.arms, numbers(side).tolist()) == (("low", "high"), [3, 4, 1, 2])
    (side,) = sides(OPEN, '"source": {"contexts": {"z": [1, 2], "a": [3, 4]}}')
    assert side.arms == ("a", "z")
    text = '"source": {"contexts": {"low": [1, 2], "mid": [3, 4]}}, "eligible_arms": ["mid"]'
    (side,) = sides(OWN, text)
    assert (side.arms, numbers(side).tolist()) == (("mid",), [3, 4])


@pytest.mark.parametrize(
    ("spec", "text", "pointer"),
    [
        (SHARED, '"source": null', "#"),
        (SHARED, '"source": {}', "#/source"),
        (SHARED, '"source": {"contexts": {"low": [1, 2]}}', "#/source"),
        (OWN, '"source": {"context": [1, 2]}', "#/source"),
        (OWN, '"source": {"contexts": {}}', "#/source/contexts"),
        (OWN, '"source": {"contexts": {"odd": [1, 2]}}', "#/source/contexts"),
        (OPEN, '"source": {"contexts": {"a\\u0000": [1, 2]}}', "#/source/contexts"),
        (
            OWN,
            '"source": {"contexts": {"low": [1, 2]}}, "eligible_arms": ["mid"]',
            "#/source/contexts",
        ),
        (SHARED, '"source": {"context": [1]}', "#/source/context"),
        (SHARED, '"source": {"context": []}', "#/source/context"),
        (SHARED, '"source": {"context": null}', "#/source/context"),
        (SHARED, '"source": {"context": [1, 2, 3]}', "#/source/context"),
        (SHARED, '"source": {"context": [[1, 2]]}', "#/source/context/0"),
        (SHARED, '"source": {"context": [1, "2"]}', "#/source/context/1"),
        (SHARED, '"target": {"context": [1, true]}', "#/target/context/1"),
        (SHARED, '"source": {"context": [1, null]}', "#/source/context/1"),
        (SHARED, '"source": {"context": [1, 1e39]}', "#/source/context"),
        (SHARED, '"source": {"context": [1, 1e999]}', "#/source/context/1"),
        (SHARED, '"source": {"context": [1, ' + "9" * 100_000 + "]}", "#/source/context/1"),
        (IMAGES, '"source": {"context": [[[1, 2, 3], [4, 5]]]}', "#/source/context"),
        (SHARED, '"source": {"context": [1, 2]}, "eligible_arms": []', "#/eligible_arms"),
        (SHARED, '"source": {"context": [1, 2]}, "eligible_arms": ["x"]', "#/eligible_arms"),
        (
            SHARED,
            '"source": {"context": [1, 2]}, "eligible_arms": ["low", "low"]',
            "#/eligible_arms",
        ),
    ],
)
def test_bad_contexts_are_refused_at_their_place(spec: ExperimentSpec, text: str, pointer: str):
    assert refused_at(spec, text) == pointer


@pytest.mark.parametrize("number", [1e-45, 3.4028235e38, -0.0, 1e6])
def test_every_float32_is_fine(number: float):
    (side,) = sides(SHARED, f'"source": {{"context": [0, {number!r}]}}')
    assert numbers(side)[1] == np.float32(number)


@given(st.binary(max_size=64))
def test_packed_bytes_are_float32_or_refused(content: bytes):
    packed = msgspec.msgpack.encode({"experiment": "e", "source": {"context": content}})
    body = decode(packed, SelectBody, MediaType.MSGPACK)
    try:
        (side,) = sides_of(SHARED, body, MediaType.MSGPACK)
    except InvalidRequest:
        return
    assert side.content == content
    assert np.isfinite(numbers(side)).all()


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["<f4", ">f4", "<f8", "<f2"])
def test_npy_files_of_floating_point_numbers_are_read(kind: str):
    side = binary_side(
        SHARED, Domain.SOURCE, npy(np.array([1, 2], dtype=kind)), MediaType.NPY, None
    )
    assert numbers(side).tolist() == [1, 2]
    columns = np.asfortranarray(np.arange(6, dtype="<f4").reshape(3, 2))
    own = binary_side(OWN, Domain.SOURCE, npy(columns), MediaType.NPY, None)
    assert numbers(own).tolist() == [0, 1, 2, 3, 4, 5]


def npy_with_header(text: str, version: int = 1) -> bytes:
    """An npy file of two numbers that says this of itself."""
    header = text.encode("latin-1") + b"\n"
    size = len(header).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes((version, 0)) + size + header + bytes(8)


HEADER = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }"


def test_the_header_of_an_npy_file_is_read():
    header = npy_header(npy_with_header(HEADER))
    assert (header.shape, header.is_fortran, header.kind) == ((1, 2), False, np.dtype("<f4"))


@pytest.mark.parametrize("shape", ["(True, 2)", "(1, True)", "(-1, 2)", "(1.0, 2)", "[1, 2]", "2"])
def test_the_shape_of_an_npy_file_is_of_whole_numbers(shape: str):
    with pytest.raises(InvalidRequest):
        npy_header(npy_with_header(HEADER.replace("(1, 2)", shape)))


@given(st.integers(0, len(HEADER)), st.sampled_from([*"{}()[]'\"\\,:#\n ", "'''"]))
def test_no_header_breaks_the_npy_reader(place: int, more: str):
    for version in (1, 2, 3):
        with suppress(InvalidRequest):
            npy_header(npy_with_header(HEADER[:place] + more + HEADER[place:], version))
        with suppress(InvalidRequest):
            npy_header(npy_with_header(HEADER[:place] + more + HEADER[place + 1 :], version))


LYING = npy(np.zeros(2, dtype="<f4")).replace(b"(2,)", b"(99,)")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x93NUMPY",
        b"PK\x03\x04 a zip bomb",
        npy(np.zeros(3, dtype="<f4")),
        npy(np.zeros((1, 2), dtype="<f4")),
        npy(np.zeros(2, dtype="<i4")),
        npy(np.array(["a", "b"])),
        npy(np.array([1.0, np.nan])),
        npy(np.array([1.0, 1e39])),
        npy(np.zeros(2, dtype="<f4"))[:-1],
        npy(np.zeros(2, dtype="<f4")) + b"\0",
        LYING,
    ],
)
def test_other_files_are_refused(content: bytes):
    with pytest.raises(InvalidRequest):
        binary_side(SHARED, Domain.SOURCE, content, MediaType.NPY, None)


@given(st.binary(max_size=200))
def test_no_bytes_break_the_npy_reader(content: bytes):
    header = npy(np.zeros(2, dtype="<f4"))[:10]
    with pytest.raises(InvalidRequest):
        binary_side(SHARED, Domain.SOURCE, header + content, MediaType.NPY, None)


def test_raw_rows_of_unnamed_arms_are_refused():
    rows = np.zeros(4, dtype="<f4").tobytes()
    with pytest.raises(InvalidRequest):
        binary_side(OPEN, Domain.SOURCE, rows, MediaType.BYTES, None)
    assert binary_side(OPEN, Domain.SOURCE, rows, MediaType.BYTES, ["b", "a"]).arms == ("a", "b")


def test_a_raw_body_is_checked_like_every_other():
    content = np.array([1.5, 2.5], dtype="<f4").tobytes()
    side = binary_side(SHARED, Domain.SOURCE, content, MediaType.BYTES, None)
    assert side.content == content
    not_finite = np.array([1.5, np.nan], dtype="<f4").tobytes()
    for spec, refused in ((SHARED, content[:-1]), (SHARED, not_finite), (OWN, not_finite * 3)):
        with pytest.raises(InvalidRequest):
            binary_side(spec, Domain.SOURCE, refused, MediaType.BYTES, None)
