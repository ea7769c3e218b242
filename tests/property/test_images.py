"""Pixels survive a PNG file, whatever way it is sent; damaged files are refused, never a crash."""

import base64
from io import BytesIO

import msgspec
import numpy as np
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays
from msgspec import Raw
from PIL import Image

from model import ContextKind, Domain
from service.codec.bodies import MediaType, TargetSelectBody
from service.codec.contexts import binary_side, decoded
from service.codec.decisions import stored_contexts
from service.codec.target_contexts import binary_target_rows, target_rows
from service.codec.uploads import decoder_for, zipped_contexts
from service.experiment_spec import ExperimentSpec
from service.images.decoding import decoded_image
from service.images.schema import ImageError, ImageSchema
from tests.support.images import colours, encoded, numbers, png, zipped
from tests.support.strategies import repeatable

BOUNDARY = "a boundary"
SIDES = st.integers(1, 9)
SETS = st.tuples(st.integers(1, 4), SIDES, SIDES).flatmap(
    lambda sizes: arrays(np.uint8, (*sizes, 3))
)
SAMPLES = [
    *(png(colours(1)[0]), encoded(Image.fromarray(colours(1)[0]), "JPEG")),
    encoded(Image.fromarray(colours(1)[0]).quantize(8), "PNG"),
]


def form(files: list[bytes]) -> bytes:
    head = 'Content-Disposition: form-data; name="image"; filename="a.png"'
    parts = [f"--{BOUNDARY}\r\n{head}\r\n\r\n".encode() + each + b"\r\n" for each in files]
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


def spec_of(pixels: np.ndarray) -> ExperimentSpec:
    shape = (3, *pixels.shape[1:3])
    image = ImageSchema.of(shape, resize=False)
    return ExperimentSpec("x", ("low", "high"), ContextKind.SHARED, shape, image=image)


def streamed(spec: ExperimentSpec, media: MediaType, content: bytes, size: int) -> np.ndarray:
    decoder = decoder_for(media, spec, f'multipart/form-data; boundary="{BOUNDARY}"')
    found: list[np.ndarray] = []
    for start in range(0, len(content), size):
        found += decoder.feed(content[start : start + size])
    found += decoder.finish()
    return np.concatenate(found)


@repeatable()
@given(SETS, st.integers(1, 4000))
def test_pixels_are_the_same_in_every_way_of_sending_them(pixels: np.ndarray, size: int):
    spec, expected = spec_of(pixels), numbers(pixels)
    files = [png(each) for each in pixels]
    packed = msgspec.msgpack.encode([{"image": each} for each in files])
    listed = [{"image": base64.b64encode(each).decode()} for each in files]
    lines = b"\n".join(map(msgspec.json.encode, listed))
    for media, body in (
        (MediaType.JSON, msgspec.json.encode(listed)),
        (MediaType.MSGPACK, packed),
    ):
        asked = TargetSelectBody(experiment="x", contexts=Raw(body))
        (group,) = target_rows(spec, asked, media)
        assert np.array_equal(group.contexts, expected)
    one = Raw(msgspec.json.encode(listed[0]))
    assert np.array_equal(decoded(spec, one, MediaType.JSON, "#"), expected[0])
    side = binary_side(spec, Domain.SOURCE, files[0], MediaType.PNG, None)
    assert np.array_equal(stored_contexts(side.content, spec.context_shape)[0], expected[0])
    (group,) = binary_target_rows(spec, files[0], MediaType.PNG, None)
    assert np.array_equal(group.contexts, expected[:1])
    assert np.array_equal(streamed(spec, MediaType.JSON_LINES, lines, size), expected)
    assert np.array_equal(streamed(spec, MediaType.FORM, form(files), size), expected)
    archive = BytesIO(zipped({f"{row:03}.png": each for row, each in enumerate(files)}))
    assert np.array_equal(np.concatenate([*zipped_contexts(spec, archive)]), expected)


@repeatable(300)
@given(
    st.sampled_from(SAMPLES),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=6),
    st.integers(0, 2000),
    st.booleans(),
)
def test_damage_is_refused_or_harmless(
    content: bytes, changes: list[tuple[int, int]], length: int, resize: bool
):
    damaged = bytearray(content)
    for place, value in changes:
        damaged[place % len(damaged)] = value
    schema = ImageSchema(3, 6, 8, resize)
    try:
        found = decoded_image(schema, bytes(damaged[: max(length, len(content) // 2)]))
    except ImageError:
        return
    assert found.shape == (3, 6, 8)
    assert np.isfinite(found).all()
    assert np.abs(found).max() <= 1
