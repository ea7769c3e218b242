"""What an experiment declares of its images, frozen at creation."""

from msgspec import Struct

DIMENSIONS = 3
CHANNELS = (1, 3)  # grey, or red, green and blue


class ImageError(ValueError):
    """A file cannot be read as an image of the experiment; the text says why."""


class ImageSchema(Struct, frozen=True):
    """The shape of an image's numbers, and whether images of another size are resized to it."""

    channels: int
    height: int
    width: int
    resize: bool = False

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


def size_text(width: int, height: int) -> str:
    """The size of an image in pixels."""
    return f"{width} × {height}"
