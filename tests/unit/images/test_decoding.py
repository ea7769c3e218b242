"""What image files become numbers, how, and which are refused."""

from io import BytesIO

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngImageFile

from service.images.decoding import decoded_image
from service.images.schema import ImageError, ImageSchema
from tests.support.images import bomb, colours, deep_colours, encoded, numbers, png

(PIXELS,) = colours(1)  # 8 wide, 6 high
RGB, GREY = ImageSchema(3, 6, 8), ImageSchema(1, 6, 8)
RESIZED = ImageSchema(3, 6, 8, resize=True)
ORIENTATION = 0x0112
SIDEWAYS = 6  # shown after a quarter turn


def refusal(content: bytes, schema: ImageSchema = RGB) -> str:
    with pytest.raises(ImageError) as caught:
        decoded_image(schema, content)
    return str(caught.value)


def turned(image: Image.Image, kind: str) -> bytes:
    exif = image.getexif()
    exif[ORIENTATION] = SIDEWAYS
    return encoded(image, kind, exif=exif)


def test_pixels_go_from_black_to_white_as_minus_1_to_1():
    found = decoded_image(RGB, png(PIXELS))
    assert found.dtype == np.float32
    assert np.array_equal(found, numbers(PIXELS))
    black_white = np.array([[0] * 8, [255] * 8] * 3, dtype=np.uint8)
    assert set(decoded_image(GREY, png(black_white)).ravel().tolist()) == {-1.0, 1.0}


def test_jpeg_is_what_pillow_decodes():
    content = encoded(Image.fromarray(PIXELS), "JPEG", quality=90)
    shown = np.asarray(Image.open(BytesIO(content)))
    assert np.array_equal(decoded_image(RGB, content), numbers(shown))


def test_colours_become_grey_by_their_luma_and_grey_three_equal_channels():
    grey = np.asarray(Image.fromarray(PIXELS).convert("L"))
    found = decoded_image(GREY, png(PIXELS))
    assert found.shape == (1, 6, 8)
    assert np.array_equal(found[0], grey.astype(np.float32) / np.float32(127.5) - 1)
    tripled = decoded_image(RGB, png(grey))
    assert tripled.shape == (3, 6, 8)
    assert all(np.array_equal(each, found[0]) for each in tripled)


def test_black_and_white_files_and_palettes_have_the_colours_that_they_show():
    image = Image.fromarray(PIXELS).quantize(16)
    shown = np.asarray(image.convert("RGB"))
    assert np.array_equal(decoded_image(RGB, encoded(image, "PNG")), numbers(shown))
    two = Image.fromarray(PIXELS).convert("1")
    assert set(decoded_image(GREY, encoded(two, "PNG")).ravel().tolist()) == {-1.0, 1.0}


def test_16_bit_grey_keeps_its_precision():
    deep = np.arange(48, dtype=np.uint16).reshape(6, 8) * 1394
    found = decoded_image(GREY, png(deep))
    assert np.array_equal(found[0], deep.astype(np.float32) / np.float32(32767.5) - 1)
    assert len(np.unique(found)) == 48


def test_an_opaque_alpha_channel_is_dropped_and_transparency_refused():
    alpha = np.full((6, 8, 1), 255, dtype=np.uint8)
    assert np.array_equal(
        decoded_image(RGB, png(np.concatenate([PIXELS, alpha], axis=2))), numbers(PIXELS)
    )
    alpha[2, 3] = 254
    assert "transparent" in refusal(png(np.concatenate([PIXELS, alpha], axis=2)))
    palette = Image.fromarray(PIXELS).quantize(16)
    assert "transparent" in refusal(encoded(palette, "PNG", transparency=palette.getpixel((0, 0))))


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_an_image_is_turned_as_its_exif_says(kind: str):
    shown = Image.fromarray(PIXELS)
    lying = shown.transpose(Image.Transpose.ROTATE_90)  # what a camera writes
    found = decoded_image(RGB, turned(lying, kind))
    assert found.shape == (3, 6, 8)
    if kind == "PNG":
        assert np.array_equal(found, numbers(PIXELS))
    assert "6 × 8" in refusal(turned(shown, kind))


def test_another_size_is_refused_with_both_sizes_unless_it_is_resized():
    (large,) = colours(1, 12, 20)
    message = refusal(png(large))
    assert "20 × 12" in message
    assert "8 × 6" in message
    assert "`resize`" in message
    expected = Image.fromarray(large).resize((8, 6), Image.Resampling.BILINEAR)
    assert np.array_equal(decoded_image(RESIZED, png(large)), numbers(np.asarray(expected)))


def test_an_image_of_the_right_size_is_not_resampled():
    assert np.array_equal(decoded_image(RESIZED, png(PIXELS)), numbers(PIXELS))


def test_a_decompression_bomb_is_refused_by_its_header(monkeypatch: pytest.MonkeyPatch):
    def decode(*_: object) -> None:
        raise AssertionError("pixels were decoded")

    monkeypatch.setattr(PngImageFile, "load", decode)
    for schema in (RGB, RESIZED):
        assert "50000 × 50000" in refusal(bomb(), schema)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "PNG or JPEG"),
        (b"GIF89a" + bytes(20), "PNG or JPEG"),
        (b"BM" + bytes(60), "PNG or JPEG"),
        (np.zeros(144, np.float32).tobytes(), "PNG or JPEG"),
        (png(PIXELS)[:-40], "damaged"),
        (png(PIXELS)[:20], "damaged"),
        (encoded(Image.fromarray(PIXELS), "JPEG")[:-30], "damaged"),
        (b"\xff\xd8\xff", "damaged"),
        (deep_colours(), "16 bits"),
        (encoded(Image.new("CMYK", (8, 6)), "JPEG"), "CMYK"),
    ],
    ids=["empty", "gif", "bmp", "raw", "cut", "short", "cut jpeg", "bare jpeg", "deep", "cmyk"],
)
def test_what_is_no_whole_png_or_jpeg_of_plain_colours_is_refused(content: bytes, reason: str):
    assert reason in refusal(content)


def test_an_animation_is_refused():
    frames = [Image.fromarray(each) for each in colours(2)]
    moving = encoded(frames[0], "PNG", save_all=True, append_images=frames[1:])
    assert "animated" in refusal(moving)


def test_a_large_file_is_refused_unread():
    assert "16 MiB" in refusal(png(PIXELS) + bytes(16 << 20))


@pytest.mark.parametrize("shape", [(6, 8), (2, 6, 8), (4, 6, 8), (3, 6, 8, 1)])
def test_the_shape_of_images_is_channels_height_width(shape: tuple[int, ...]):
    with pytest.raises(ImageError, match="channels, height, width"):
        ImageSchema.of(shape, resize=False)
