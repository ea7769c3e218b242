"""Where the service is, what it lets a client in with, and how much it takes at once."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import httpx

from daband_client.errors import ProblemError

URL_VARIABLE = "DABAND_URL"
KEY_VARIABLE = "DABAND_API_KEY"
DEFAULT_URL = "http://127.0.0.1:8000"
__version__ = "0.1.0"
CONNECT_SECONDS = 5.0
MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that goes into one request; larger batches are split.

    A service takes `rows` rounds, rewards or contexts, 8 MiB in all, unless it is set up otherwise
    (`DABAND_MAX_BODY_BYTES`), and uploads of `upload_rows` contexts. It takes larger uploads than
    `upload_bytes`, but a client has to hold one in memory and send it again after a failure.
    Of `images`, which grow when they are decoded, it takes so many of any size.
    """

    rows: int = 1000
    images: int = 64
    body_bytes: int = 7 * MEBIBYTE
    upload_rows: int = 1_000_000
    upload_bytes: int = 256 * MEBIBYTE

    def after(self, problem: ProblemError) -> "Limits":
        """The limits for batches as the service stated when it refused one; raises any other problem again."""
        largest = problem.problem.get("largest_batch")
        if problem.slug != "batch-too-large" or not isinstance(largest, int):
            raise problem
        if not 1 <= largest < self.rows:
            raise problem
        return replace(self, rows=largest)

    def rows_with(self, images: Iterable[int]) -> int:
        """How many rows a request may have, of which each has so many images."""
        most = max(images, default=0)
        return max(1, min(self.rows, self.images // most)) if most else self.rows


def address(url: str | None) -> httpx.URL:
    """The service's address: as given, of `DABAND_URL`, or this machine's port 8000."""
    text = url or os.environ.get(URL_VARIABLE) or DEFAULT_URL
    try:
        found = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise ValueError(f"{text!r} is no address of a service: {error}") from None
    if found.scheme not in ("http", "https") or not found.host:
        raise ValueError(f"{text!r} is no address of a service: write {DEFAULT_URL}, say")
    return found


def headers(api_key: str | None, further: Mapping[str, str] | None = None) -> dict[str, str]:
    """The headers of every request, with the key as given or of `DABAND_API_KEY`; "" is none."""
    key = os.environ.get(KEY_VARIABLE) if api_key is None else api_key
    found = {"User-Agent": f"daband-client/{__version__}"}
    if key:
        found["Authorization"] = f"Bearer {key}"
    return {**found, **(further or {})}


def timeout(seconds: float) -> httpx.Timeout:
    """For each step of a request; a connection is there soon or not at all."""
    return httpx.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS))
