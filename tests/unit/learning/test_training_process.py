"""The training process from one job to the next."""

import io

import pytest

from model.state.jobs import Message
from service.learning.jobs.job import failure_reason
from service.learning.jobs.pipe import receive
from service.learning.jobs.training_process import answer_jobs


def test_memory_is_given_back_once_a_job_is_answered():
    pipe, sizes = io.BytesIO(), list[int]()
    jobs = [Message({"kind": "unknown"}, {})] * 2
    answer_jobs(jobs, pipe, "cpu", after_each=lambda: sizes.append(pipe.tell()))
    pipe.seek(0)
    for size in sizes:
        assert receive(pipe).header == {"failed": "it raised KeyError"}
        assert pipe.tell() == size
    assert len(sizes) == 2


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
