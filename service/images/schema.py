"""What an experiment declares of its images, frozen at creation."""

from dataclasses import dataclass

from msgspec import Struct
from msgspec.structs import replace

DIMENSIONS = 3
CHANNELS = (1, 3)  # grey, or red, green and blue


class ImageError(ValueError):
    """A file cannot be read as an image of the experiment; the text says why."""


@dataclass
class PixelBudget:
    """How many pixels the images of one request may have together, and how many are left."""

    most: int
    left: int

    def take(self, pixels: int) -> None:
        """Count an image that is about to be decoded."""
        self.left -= pixels
        if self.left < 0:
            raise ImageError(
                f"The images of a request have at most {self.most:,} pixels in all: send parts."
            )


class ImageSchema(Struct, frozen=True):
    """The shape of an image's numbers, and whether images of another size are resized to it.

    With a budget, as while a request is decoded, all images together are bounded.
    """

    channels: int
    height: int
    width: int
    resize: bool = False
    budget: PixelBudget | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        return self.channels, self.height, self.width

    @property
    def size(self) -> str:
        """Width and height, as people say them."""
        return size_text(self.width, self.height)

    @classmethod
    def of(cls, shape: tuple[int, ...], *, resize: bool) -> "ImageSchema":
        """The schema of images in this shape."""
        if len(shape) != DIMENSIONS or shape[0] not in CHANNELS:
            raise ImageError(
                "The shape of an image is [channels, height, width], with 1 channel (grey) or 3 (RGB)."
            )
        channels, height, width = shape
        return cls(channels, height, width, resize)

    def within(self, pixels: int) -> "ImageSchema":
        """The same for images that have so many pixels together, as their files hold them."""
        return replace(self, budget=PixelBudget(pixels, pixels))


def size_text(width: int, height: int) -> str:
    """The size of an image in pixels."""
    return f"{width} × {height}"
