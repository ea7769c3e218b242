"""The server process around the app."""

import asyncio
import gc
import os
import signal
from collections.abc import Iterator

import pytest
import uvicorn
import uvloop

from service.http import server as http_server
from service.http.server import SIGNALS, DrainingServer, listen
from service.ops.supervisor import Readiness
from tests.support.waiting import eventually


async def nothing(scope, receive, send):
    """An app that is never asked."""


@pytest.fixture
def server() -> DrainingServer:
    """One that has not been started."""
    config = uvicorn.Config(nothing, lifespan="off", log_config=None)
    config.load()
    return DrainingServer(config, Readiness(), 0.0, lambda: None)


@pytest.fixture
def _signals() -> Iterator[None]:
    """Leaves the process's own way with signals as it was."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


async def test_what_start_up_made_is_not_looked_through_again(server: DrainingServer):
    listener = listen("127.0.0.1", 0)
    server.lifespan = server.config.lifespan_class(server.config)
    frozen_before = gc.get_freeze_count()
    try:
        await server.startup([listener])
        assert server.started
        assert gc.get_freeze_count() > frozen_before + 10_000
    finally:
        gc.unfreeze()
        await server.shutdown([listener])


async def test_what_start_up_made_is_looked_through_before_there_are_tasks(
    server: DrainingServer, monkeypatch: pytest.MonkeyPatch
):
    """Meanwhile the event loop stands still, and their deadlines would pass."""
    steps: list[str] = []
    listener = listen("127.0.0.1", 0)
    server.lifespan = server.config.lifespan_class(server.config)
    monkeypatch.setattr(http_server, "freeze_gc", lambda: steps.append("frozen"))

    async def opened() -> None:
        steps.append("opened")

    monkeypatch.setattr(server.lifespan, "startup", opened)
    await server.startup([listener])
    await server.shutdown([listener])
    assert steps == ["frozen", "opened"]


@pytest.mark.usefixtures("_signals")
@pytest.mark.parametrize(("sent", "is_forced"), [(1, False), (2, True)])
def test_one_ctrl_c_is_not_taken_for_two(server: DrainingServer, sent: int, is_forced: bool):
    server.started = True

    async def interrupt() -> None:
        with server.capture_signals():
            for _ in range(sent):
                os.kill(os.getpid(), signal.SIGINT)
                await asyncio.sleep(0.01)
            # The note that wakes the loop may come late, and with another signal between: then
            # the loop would tell of the first one again.
            wakeup = signal.set_wakeup_fd(-1)
            signal.set_wakeup_fd(wakeup)
            os.write(wakeup, bytes([signal.SIGINT]))
            await asyncio.sleep(0.01)
            assert server.should_exit
            assert server.force_exit is is_forced

    uvloop.run(interrupt())


@pytest.mark.usefixtures("_signals")
def test_a_late_signal_of_the_parent_does_not_change_the_exit(server: DrainingServer):
    server.started = True

    async def end() -> None:
        with server.capture_signals():
            os.kill(os.getpid(), signal.SIGTERM)

    uvloop.run(end())
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


@pytest.mark.usefixtures("_signals")
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_before_the_start_is_over_ends_the_process(
    server: DrainingServer, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
):
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)

    async def interrupt() -> None:
        with server.capture_signals():
            os.kill(os.getpid(), number)
            await eventually(lambda: bool(codes))

    uvloop.run(interrupt())
    assert codes == [0]
