"""What a scrape gets: the numbers of one process, or of all that serve together.

Serving processes share their numbers through the files of a folder. Its parent makes the folder
and names it in PROMETHEUS_MULTIPROC_DIR before they start, which prometheus_client reads when it
is imported.
"""

import os
from pathlib import Path

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

CONTENT_TYPE = CONTENT_TYPE_LATEST
_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


def share_in(folder: str) -> None:
    """Have all processes that are started from now on share their numbers there."""
    os.environ[_VARIABLE] = folder


def shared_folder() -> Path | None:
    """Where this process shares its numbers; none if it is alone."""
    folder = os.environ.get(_VARIABLE)
    return None if folder is None else Path(folder)


def exposition(registry: CollectorRegistry) -> bytes:
    """All metrics in Prometheus's text format, those of the other processes included."""
    if shared_folder() is None:
        return generate_latest(registry)
    merged = CollectorRegistry()
    MultiProcessCollector(merged)
    return generate_latest(merged)


def forget_process(process_id: int) -> None:
    """Drop the gauges of a process that has died; what it counted stays counted."""
    mark_process_dead(process_id)
