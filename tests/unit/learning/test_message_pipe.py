import os
from io import BytesIO

import numpy as np
import pytest

from model.state.jobs import Message
from service.learning.jobs.pipe import PipeClosed, receive, send

ARRAYS = {
    "floats": np.arange(6, dtype=np.float32).reshape(2, 3),
    "turned": np.arange(6.0).reshape(2, 3).T,
    "empty": np.zeros((0, 4), dtype=np.float32),
    "one": np.array(3.0, dtype=np.float32),
    "counts": np.array([2**62, -1]),
    "flags": np.array([True, False]),
    "odd": np.array([np.nan, np.inf, -0.0]),
}


def written(message: Message) -> bytes:
    pipe = BytesIO()
    send(pipe, message)
    return pipe.getvalue()


def test_a_message_comes_back_as_it_was():
    header = {"kind": "training", "losses": {"R": 0.1 + 0.2}, "word": "λ", "none": None}
    found = receive(BytesIO(written(Message(header, ARRAYS))))
    assert found.header == header
    assert found.arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert (found.arrays[name].dtype, found.arrays[name].shape) == (array.dtype, array.shape)
        assert found.arrays[name].tobytes() == array.tobytes()
        assert found.arrays[name].flags.writeable


def test_messages_follow_each_other():
    pipe = BytesIO(written(Message({"n": 1}, ARRAYS)) + written(Message({"n": 2}, {})))
    assert [receive(pipe).header["n"] for _ in range(2)] == [1, 2]
    with pytest.raises(PipeClosed):
        receive(pipe)


@pytest.mark.parametrize("kept", [0, 4, 8, 40, -1])
def test_a_message_that_breaks_off_is_none(kept: int):
    with pytest.raises(PipeClosed):
        receive(BytesIO(written(Message({}, ARRAYS))[:kept]))


def test_what_is_no_message_is_refused():
    with pytest.raises(ValueError, match="not a message"):
        receive(BytesIO(b"Traceback (most recent call last)"))


def test_only_numbers_pass():
    with pytest.raises(ValueError, match="does not contain numbers"):
        receive(BytesIO(written(Message({}, {"words": np.array(["abc"])}))))


def test_a_closed_other_end_is_noticed():
    ours, theirs = os.pipe()
    os.close(ours)
    with open(theirs, "wb", buffering=0) as pipe, pytest.raises(PipeClosed):
        send(pipe, Message({}, ARRAYS))
