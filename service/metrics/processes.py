"""The metrics of one process, or of all serving processes together.

Serving processes share their metrics through files in a folder. The parent creates the folder and sets
PROMETHEUS_MULTIPROC_DIR before they start; prometheus_client reads it when it is imported.
"""

import os
from pathlib import Path

_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


def share_in(folder: str) -> None:
    """Make all processes started from now on share their metrics in this folder."""
    os.environ[_VARIABLE] = folder


def shared_folder() -> Path | None:
    """The folder of shared metrics; None if this process is alone."""
    folder = os.environ.get(_VARIABLE)
    return None if folder is None else Path(folder)
