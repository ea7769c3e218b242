import contextlib

import msgspec

from service.codec.json_buffer import KEPT_BYTES, JsonBuffer


def test_answers_of_any_length_follow_one_another():
    buffer = JsonBuffer()
    values = [{"a": [1.5] * 1000}, {"b": None}, ["x" * (KEPT_BYTES + 1)], [], {"a": [2.5] * 1000}]
    assert [buffer.encode(value) for value in values] == [
        msgspec.json.encode(value) for value in values
    ]


def test_an_answer_stays_as_it_was_when_the_next_is_written():
    buffer = JsonBuffer()
    first = buffer.encode("first")
    buffer.encode("second")
    assert first == b'"first"'


def test_an_answer_that_cannot_be_written_spoils_no_other():
    buffer = JsonBuffer()
    with contextlib.suppress(TypeError):
        buffer.encode([1, 2, object()])
    assert buffer.encode([3]) == b"[3]"


def test_the_memory_of_a_very_long_answer_is_given_back():
    buffer = JsonBuffer()
    buffer.encode("x" * KEPT_BYTES)
    assert len(buffer._buffer) == 0
