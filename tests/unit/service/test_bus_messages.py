"""The bytes that travel over the bus, and what becomes of bytes that nobody of us wrote."""

import asyncio
import random

import pytest
from hypothesis import given, strategies as st

from service.bus.messages import (
    FORMAT,
    HEADER,
    MAGIC,
    MOST_NAMES,
    NEWS_SECONDS,
    CachedSnapshot,
    Listener,
    Listeners,
    Topic,
    decode,
    encode,
    name_in,
)
from service.bus.refusals import Refusal, Refusals
from tests.support.hostile import mutated
from tests.support.virtual_time import run_virtually

KEY, OTHER_KEY = bytes(32), bytes(31) + b"1"
SNAPSHOT = CachedSnapshot(12, 345, b"some state")
VALUE = encode(KEY, "doses", SNAPSHOT)

numbers = st.integers(0, 2**63 - 1)


@given(st.text(st.characters(codec="utf-8")), numbers, numbers, st.binary())
def test_what_was_encoded_comes_back(name: str, version: int, offset: int, blob: bytes):
    snapshot = CachedSnapshot(version, offset, blob)
    assert decode(KEY, name, encode(KEY, name, snapshot)) == snapshot


def test_every_flipped_bit_is_noticed():
    for position in range(len(VALUE)):
        for bit in range(8):
            broken = bytearray(VALUE)
            broken[position] ^= 1 << bit
            assert isinstance(decode(KEY, "doses", bytes(broken)), Refusal)


def test_every_truncation_is_noticed():
    assert all(
        isinstance(decode(KEY, "doses", VALUE[:length]), Refusal) for length in range(len(VALUE))
    )
    assert decode(KEY, "doses", VALUE + b"\0") is Refusal.SIGNATURE


def test_only_the_key_of_the_database_signs():
    assert decode(KEY, "doses", encode(OTHER_KEY, "doses", SNAPSHOT)) is Refusal.SIGNATURE


def test_a_snapshot_under_another_name_is_refused():
    assert decode(KEY, "dose", VALUE) is Refusal.SIGNATURE


@pytest.mark.parametrize("fields", [(13, 345), (12, 346), (10**9, 345), (-1, 345)])
def test_version_and_offset_are_signed(fields: tuple[int, int]):
    signature = HEADER.unpack_from(VALUE)[-1]
    value = HEADER.pack(MAGIC, *fields, signature) + SNAPSHOT.blob
    assert decode(KEY, "doses", value) is Refusal.SIGNATURE


def test_a_value_of_another_build_is_refused_as_that():
    assert decode(KEY, "doses", FORMAT + b"1" + VALUE[len(MAGIC) :]) is Refusal.FORMAT
    assert decode(KEY, "doses", b"x" + VALUE[1:]) is Refusal.SIGNATURE


def test_a_message_is_an_experiments_name_or_nothing():
    for name in ("doses", "acme/doses", "a.b_c-d", "x" * 128, f"{'t' * 64}/{'x' * 128}"):
        assert name_in(name.encode()) == name
    for message in (
        *(b"\xff\xfe", b"", b"\0", b"a\0b", b"/", b"/doses", b"acme/", b"a/b/c", b" doses"),
        *(b"doses\n", b"-doses", b"x" * 129, b"x" * 10**6, "d\u00f6ses".encode(), b"/deleted/x"),
    ):
        assert name_in(message) is None


def test_no_mutated_message_is_more_than_a_name():
    rng = random.Random(7)
    names = [name_in(mutated(b"acme/doses", rng)) for _ in range(10_000)]
    assert {name.isascii() for name in names if name is not None} == {True}
    assert 1000 < sum(name is None for name in names) < 9000, "both kinds were tried"


async def test_a_listener_without_references_is_forgotten():
    listeners = Listeners()
    kept = listeners.add(Topic.REWARD)
    listeners.add(Topic.REWARD)
    listeners.notify(Topic.REWARD, ["doses"])
    assert await kept.wait(0) == {"doses"}
    assert await kept.wait(0) == set()


async def test_a_flood_of_names_takes_bounded_memory():
    listener = Listener()
    for number in range(10 * MOST_NAMES):
        listener.notify([f"name-{number}"])
    assert len(await listener.wait(0)) == MOST_NAMES


def test_a_flood_of_names_is_few_answers():
    async def answers() -> int:
        listener, loop, count = Listener(), asyncio.get_running_loop(), 0
        while loop.time() < 1.0:
            loop.call_later(0.0001, listener.notify, ["doses"])
            count += bool(await listener.wait(1.0))
        return count

    assert run_virtually(answers()) <= 1 / NEWS_SECONDS + 1


def test_news_after_a_silence_come_at_once():
    async def waited() -> float:
        listener, loop = Listener(), asyncio.get_running_loop()
        listener.notify(["doses"])
        await listener.wait(1.0)
        await asyncio.sleep(1.0)
        loop.call_later(0.5, listener.notify, ["doses"])
        began = loop.time()
        assert await listener.wait(10.0) == {"doses"}
        return loop.time() - began

    assert run_virtually(waited()) == 0.5


def test_every_refusal_is_counted_and_few_are_logged(caplog: pytest.LogCaptureFixture):
    counted: list[str] = []
    refusals = Refusals(counted.append)
    for _ in range(1000):
        refusals.note(Refusal.MESSAGE, size_bytes=2)
    refusals.note(Refusal.VERSION, version=9)
    assert len(counted) == 1001
    reasons = [vars(record)["reason"] for record in caplog.records]
    assert reasons.count("version") == 1
    assert 1 <= reasons.count("message") < 1000
