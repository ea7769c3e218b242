"""The training process's turn from a job to the next."""

import os
from typing import Any

import pytest

from service.learning import training_process


class EndError(Exception):
    """The process would go on for ever."""


def test_memory_is_given_back_once_a_job_is_answered(monkeypatch: pytest.MonkeyPatch):
    done: list[str] = []

    def listen(pipe: Any, jobs: Any) -> None:
        for job in ("job", "end"):
            jobs.put(job)

    def answered(job: str, device: str) -> str:
        if job == "end":
            raise EndError
        return f"{job} on {device}"

    monkeypatch.setattr(training_process, "_prepare", lambda: None)
    monkeypatch.setattr(training_process, "_listen", listen)
    monkeypatch.setattr(training_process, "answered", answered)
    monkeypatch.setattr(training_process, "send", lambda pipe, answer: done.append(answer))
    monkeypatch.setattr(training_process, "give_back", lambda: done.append("given back"))
    with pytest.raises(EndError):
        training_process.main("cpu", os.open(os.devnull, os.O_WRONLY))
    assert done == ["job on cpu", "given back"]
