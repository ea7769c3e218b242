"""The metrics of one process, or of all serving processes together.

Serving processes share their metrics through files in a folder. The parent creates the folder and sets
PROMETHEUS_MULTIPROC_DIR before they start; prometheus_client reads it when it is imported.
"""

import os
from pathlib import Path

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

CONTENT_TYPE = CONTENT_TYPE_LATEST
_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


def share_in(folder: str) -> None:
    """Make all processes started from now on share their metrics in this folder."""
    os.environ[_VARIABLE] = folder


def shared_folder() -> Path | None:
    """The folder of shared metrics; None if this process is alone."""
    folder = os.environ.get(_VARIABLE)
    return None if folder is None else Path(folder)


def exposition(registry: CollectorRegistry) -> bytes:
    """All metrics in Prometheus's text format, including those of other processes."""
    if shared_folder() is None:
        return generate_latest(registry)
    merged = CollectorRegistry()
    MultiProcessCollector(merged)
    return generate_latest(merged)


def forget_process(process_id: int) -> None:
    """Drop the gauges of a dead process; its counters remain."""
    mark_process_dead(process_id)
