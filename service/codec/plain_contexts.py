"""Stored contexts in the form in which callers send them."""

from base64 import b64encode
from typing import Any

from model import Floats
from service.columns.reading import row_of
from service.experiment_spec import ExperimentSpec
from service.images.encoding import png_of


def plain_context(spec: ExperimentSpec, context: Floats) -> Any:
    """One context: an object of columns, an image as a PNG in base64, or numbers."""
    if spec.table is not None:
        return row_of(spec.table, context.tolist())
    if spec.image is not None:
        return {"image": b64encode(png_of(context)).decode()}
    return context.tolist()
