"""The images of an HTML form: `multipart/form-data`, each file one context."""

from collections.abc import Iterator

from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header

from model import Floats
from service.codec.contexts import image_of
from service.errors import refuse
from service.experiment_spec import ExperimentSpec
from service.images.decoding import MAX_IMAGE_BYTES


class FormImages:
    """Decodes the files of a form in their order, whatever their names."""

    def __init__(self, spec: ExperimentSpec, header: str) -> None:
        self._spec = spec
        boundary = parse_options_header(header)[1].get(b"boundary")
        if not boundary:
            refuse("The Content-Type of a form names its boundary.")
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_data": self._add,
                "on_part_end": self._end_part,
                "on_end": self._end,
            },
        )
        self._part = bytearray()
        self._files: list[bytes] = []
        self._count = 0
        self._is_whole = False

    def feed(self, piece: bytes) -> Iterator[Floats]:
        """The images that are complete now."""
        try:
            self._parser.write(piece)
        except MultipartParseError:
            refuse("The form is malformed.", f"#/{self._count}")
        files, self._files = self._files, []
        for content in files:
            self._count += 1
            yield image_of(self._spec, content, f"#/{self._count - 1}")[None]

    def finish(self) -> Iterator[Floats]:
        """No images; refuses an incomplete form."""
        if not self._is_whole:
            refuse("The form ends before its last boundary.", f"#/{self._count}")
        yield from ()

    def _add(self, data: bytes, start: int, end: int) -> None:
        self._part += data[start:end]
        if len(self._part) > MAX_IMAGE_BYTES:
            # Before the rest of it is in memory.
            place = self._count + len(self._files)
            refuse(f"An image has at most {MAX_IMAGE_BYTES >> 20} MiB.", f"#/{place}")

    def _end_part(self) -> None:
        self._files.append(bytes(self._part))
        self._part.clear()

    def _end(self) -> None:
        self._is_whole = True
