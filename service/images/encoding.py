"""The numbers of an image back to a PNG file."""

from io import BytesIO

import numpy as np
from PIL import Image

from model import Floats

WHITE = 255


def png_of(numbers: Floats) -> bytes:
    """A PNG of (channels, height, width) from -1 to 1, in 8 bits a channel."""
    pixels = np.rint((np.clip(numbers, -1, 1) + 1) * (WHITE / 2)).astype(np.uint8)
    shown = pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)
    content = BytesIO()
    Image.fromarray(shown).save(content, "PNG")
    return content.getvalue()
