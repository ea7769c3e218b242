"""One durable JSON select on a real socket passes few files, and the documentation names them."""

import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from service.http.protocol import guarded_protocol
from tests.support.api import CONTEXT, DOSES, running_api
from tests.support.http.cases import Case
from tests.support.http.raw import serving

ROOT = Path(__file__).parents[3]
MOST_FILES = 25
FOREVER = 3600.0


class Passed:
    """The files of `service/` whose functions are called, in order, while it is on."""

    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        self.is_on = False

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if self.is_on and event == "call" and path.is_relative_to(ROOT / "service"):
            self.files.setdefault(str(path.relative_to(ROOT / "service")))


@contextmanager
def profiled() -> Iterator[Passed]:
    """Watches this thread and all that begin meanwhile."""
    passed = Passed()
    threading.setprofile(passed)
    sys.setprofile(passed)
    try:
        yield passed
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def posted(body: Any) -> Case:
    content = json.dumps(body).encode()
    head = b"POST /select HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
    return Case(0, (head + b"Content-Length: %d\r\n\r\n" % len(content) + content,))


async def traced(url: str) -> list[str]:
    """The files that a select passes whose experiment was asked for before."""
    with profiled() as passed:
        async with running_api(url, poll_seconds=FOREVER, key_poll_seconds=FOREVER) as api:
            assert (await api.http.post("/experiments", json=DOSES)).status_code == 201
            app = api.app
            protocol = guarded_protocol(FOREVER, app.shedding.early_refusal, app.fast_path)
            async with serving(app, protocol, {"services": api.services}) as server:
                select = posted({"experiment": "doses", "source": {"context": CONTEXT}})
                await server.answers(select)
                passed.is_on = True
                (answer,) = await server.answers(select)
                passed.is_on = False
    assert answer.status == 200
    return list(passed.files)


def documented() -> list[str]:
    """The files that the section on the fast path names, in order."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.partition("## The fast path")[2].partition("\n## ")[0]
    steps = [line for line in section.splitlines() if re.match(r"\d+\. ", line)]
    return [name for line in steps for name in re.findall(r"`([a-z0-9_/]+\.py)`", line)]


async def test_a_durable_select_passes_the_files_that_are_documented(postgres_url: str):
    files = await traced(postgres_url)
    assert len(files) <= MOST_FILES, files
    assert files == documented()
