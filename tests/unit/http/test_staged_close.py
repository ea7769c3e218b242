"""The stages of closing a connection, with a transport and a clock of our own."""

import asyncio
from collections.abc import Callable

import pytest

from service.http.rfc9112 import DISCARDING_SECONDS, StagedTransport
from tests.support.http.connections import RecordingTransport

MAX_BYTES = 100


class Timer:
    """A timer that goes off when the test says so."""

    def __init__(self, seconds: float, callback: Callable[[], None]) -> None:
        self.seconds = seconds
        self.go_off = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Clock:
    """The part of an event loop that makes timers."""

    def __init__(self) -> None:
        self.timers: list[Timer] = []

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        self.timers.append(Timer(seconds, callback))
        return self.timers[-1]


class Staged:
    """A transport with the socket and the clock below it."""

    def __init__(self) -> None:
        self.socket = RecordingTransport()
        self.clock = Clock()
        loop: asyncio.AbstractEventLoop = self.clock  # type: ignore[assignment]
        self.transport = StagedTransport(self.socket, loop, MAX_BYTES)


@pytest.fixture
def staged() -> Staged:
    return Staged()


def test_the_answer_is_sent_before_the_sending_side_is_closed(staged: Staged):
    staged.transport.write(b"answer")
    staged.transport.close()
    assert (staged.socket.sent, staged.socket.has_sent_eof) == (b"answer", True)
    assert staged.transport.is_closing()
    assert not staged.socket.is_closed  # the client may still send


def test_what_is_written_afterwards_is_dropped(staged: Staged):
    staged.transport.close()
    staged.transport.write(b"late")
    assert staged.socket.sent == b""


def test_a_paused_connection_is_read_again(staged: Staged):
    staged.transport.pause_reading()
    staged.transport.close()
    assert not staged.socket.is_paused
    staged.transport.pause_reading()
    assert not staged.socket.is_paused


def test_time_ends_the_reading(staged: Staged):
    staged.transport.close()
    (timer,) = staged.clock.timers
    assert timer.seconds == DISCARDING_SECONDS
    timer.go_off()
    assert staged.socket.is_closed


def test_too_many_bytes_end_the_reading(staged: Staged):
    staged.transport.close()
    staged.transport.discard(MAX_BYTES)
    assert not staged.socket.is_closed
    staged.transport.discard(1)
    assert staged.socket.is_closed
    assert staged.clock.timers[0].is_cancelled


def test_a_client_that_sends_no_more_is_not_waited_for(staged: Staged):
    staged.transport.note_eof()
    staged.transport.close()
    assert staged.socket.is_closed
    assert staged.clock.timers == []


def test_closing_twice_is_closing_once(staged: Staged):
    staged.transport.close()
    staged.transport.close()
    assert len(staged.clock.timers) == 1


def test_a_lost_connection_leaves_no_timer(staged: Staged):
    staged.transport.close()
    staged.transport.note_lost()
    assert staged.clock.timers[0].is_cancelled


def test_an_idle_connection_is_closed_at_once(staged: Staged):
    staged.transport.close_at_once()
    assert staged.socket.is_closed
    assert not staged.socket.has_sent_eof
