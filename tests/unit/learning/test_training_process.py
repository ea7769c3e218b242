"""The training process from one job to the next."""

import os
from typing import Any

import pytest

from model.state.jobs import Message
from service.learning import training_process
from service.learning.jobs import failure_reason


class EndError(Exception):
    """The process would go on for ever."""


def test_memory_is_given_back_once_a_job_is_answered(monkeypatch: pytest.MonkeyPatch):
    done: list[Any] = []

    def listen(pipe: Any, jobs: Any) -> None:
        for _ in range(2):
            jobs.put(Message({"kind": "unknown"}, {}))

    def send(pipe: Any, answer: Message) -> None:
        if done:
            raise EndError
        done.append(answer.header)

    monkeypatch.setattr(training_process, "_prepare", lambda: None)
    monkeypatch.setattr(training_process, "_listen", listen)
    monkeypatch.setattr(training_process, "send", send)
    monkeypatch.setattr(training_process, "give_back", lambda: done.append("given back"))
    with pytest.raises(EndError):
        training_process.main("cuda", 0, os.open(os.devnull, os.O_WRONLY))
    assert done == [{"failed": "it raised KeyError"}, "given back"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MemoryError(), "it ran out of memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 17"), "it ran out of memory"),
        (ValueError("a canary of 17"), "it raised ValueError"),
    ],
)
def test_reasons_quote_no_value(error: Exception, reason: str):
    assert failure_reason(error) == reason
