"""One PNG or JPEG file to the numbers that the model sees, by pillow.

The size in the file's header is checked before a pixel is decoded. Whatever a file may mean in two ways is
refused: transparency, several frames, 16-bit colour, CMYK. Images are turned as their orientation says.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from typing import IO

import numpy as np
from PIL import Image, ImageOps
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile

from model import Floats
from service.images.schema import ImageError, ImageSchema, size_text

MAX_IMAGE_BYTES = 16 << 20
MAX_PIXELS = 1 << 24  # decoded, 64 MiB
# Of all images of a request: some seconds of a thread, and minutes for an upload.
MAX_REQUEST_PIXELS = 1 << 28
MAX_UPLOAD_PIXELS = 1 << 34
# By their first bytes: pillow's own choice would try dozens of formats.
READERS: Mapping[bytes, Callable[[IO[bytes]], ImageFile]] = {
    b"\x89PNG\r\n\x1a\n": PngImageFile,
    b"\xff\xd8\xff": JpegImageFile,
}
_PNG_DEPTH = 24  # the byte that says how many bits a channel has
_DEEP_GREY = "I;16"
_PLAIN_MODES = frozenset({"1", "L", "P", "RGB", "LA", "RGBA", _DEEP_GREY})


def decoded_image(schema: ImageSchema, content: bytes) -> Floats:
    """The numbers of an image, (channels, height, width) from -1 to 1."""
    if len(content) > MAX_IMAGE_BYTES:
        raise ImageError(f"An image has at most {MAX_IMAGE_BYTES >> 20} MiB.")
    with _opened(content) as image:
        _check_header(schema, image, content)
        if schema.budget is not None:
            schema.budget.take(image.width * image.height)
        image.load()
        return _numbers(schema, ImageOps.exif_transpose(image))


def size_of(content: bytes) -> tuple[int, int]:
    """Width and height of an image as it is shown, by its header."""
    with _opened(content) as image:
        if image.width * image.height <= MAX_PIXELS:
            return ImageOps.exif_transpose(image).size
        return image.size


@contextmanager
def _opened(content: bytes) -> Iterator[ImageFile]:
    """An image, whose pixels are not read yet; `ImageError` if it is damaged."""
    read = next((read for start, read in READERS.items() if content.startswith(start)), None)
    if read is None:
        raise ImageError("Expected a PNG or JPEG file.")
    try:
        with read(BytesIO(content)) as image:
            yield image
    except ImageError:
        raise
    except Exception:  # noqa: BLE001 - pillow raises many kinds for damaged files
        raise ImageError("The image is damaged or incomplete.") from None


def _check_header(schema: ImageSchema, image: ImageFile, content: bytes) -> None:
    """Refuse what the header shows to be wrong, before anything is decoded."""
    if image.width * image.height > MAX_PIXELS:
        raise ImageError(
            f"The image has {size_text(*image.size)} pixels; there may be {MAX_PIXELS:,} in all."
        )
    # The orientation, which may lie behind the pixels, can exchange the two.
    if not schema.resize and sorted(image.size) != sorted((schema.width, schema.height)):
        raise _wrong_size(schema, image)
    if getattr(image, "is_animated", False):
        raise ImageError("The image is animated: send one frame.")
    if image.mode not in _PLAIN_MODES:
        raise ImageError(f"The image has the colours {image.mode}; expected grey or RGB.")
    is_deep = isinstance(image, PngImageFile) and content[_PNG_DEPTH] == 16
    if is_deep and image.mode != _DEEP_GREY:
        raise ImageError(
            "The image has 16 bits a channel and colours or transparency: save it with 8 bits, or as grey."
        )


def _numbers(schema: ImageSchema, image: Image.Image) -> Floats:
    image, white = _in_colours(schema, _opaque(image))
    size = (schema.width, schema.height)
    if image.size != size:
        if not schema.resize:
            raise _wrong_size(schema, image)
        image = image.resize(size, Image.Resampling.BILINEAR)
    values = np.asarray(image, dtype=np.float32) / np.float32(white / 2) - 1
    if values.ndim == 2:
        return np.repeat(values[None], schema.channels, axis=0)
    return np.ascontiguousarray(values.transpose(2, 0, 1))


def _opaque(image: Image.Image) -> Image.Image:
    """The image without its alpha channel, which hides nothing."""
    if not image.has_transparency_data:
        return image
    if image.mode == _DEEP_GREY or image.convert("RGBA").getchannel("A").getextrema() != (255, 255):
        raise ImageError("The image is transparent in places: flatten it on a background.")
    return image.convert("RGBA").convert("RGB")


def _in_colours(schema: ImageSchema, image: Image.Image) -> tuple[Image.Image, int]:
    """Grey or RGB, and the value of white. Grey stays grey here: all channels will be equal."""
    if image.mode == _DEEP_GREY:
        return Image.fromarray(np.asarray(image, dtype=np.float32)), 65535
    is_grey = schema.channels == 1 or image.mode in ("1", "L")
    return image.convert("L" if is_grey else "RGB"), 255


def _wrong_size(schema: ImageSchema, image: Image.Image) -> ImageError:
    return ImageError(
        f"The image has {size_text(*image.size)} pixels; the experiment takes {schema.size}. "
        "Resize it, or declare the experiment with `resize`."
    )
