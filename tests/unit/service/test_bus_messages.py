"""The bytes that travel over the bus."""

from hypothesis import given, strategies as st

from service.bus.messages import CachedSnapshot, Listeners, Topic, decode, encode

VALUE = encode("doses", CachedSnapshot(12, 345, b"some state"))

numbers = st.integers(0, 2**64 - 1)


@given(st.text(st.characters(codec="utf-8")), numbers, numbers, st.binary())
def test_what_was_encoded_comes_back(name: str, version: int, offset: int, blob: bytes):
    snapshot = CachedSnapshot(version, offset, blob)
    assert decode(name, encode(name, snapshot)) == snapshot


def test_every_flipped_bit_is_noticed():
    for position in range(len(VALUE)):
        for bit in range(8):
            broken = bytearray(VALUE)
            broken[position] ^= 1 << bit
            assert decode("doses", bytes(broken)) is None


def test_every_truncation_is_noticed():
    assert all(decode("doses", VALUE[:length]) is None for length in range(len(VALUE)))
    assert decode("doses", VALUE + b"\0") is None


def test_a_snapshot_under_another_name_is_refused():
    assert decode("dose", VALUE) is None


async def test_a_listener_without_references_is_forgotten():
    listeners = Listeners()
    kept = listeners.add(Topic.REWARD)
    listeners.add(Topic.REWARD)
    listeners.notify(Topic.REWARD, ["doses"])
    assert await kept.wait(0) == {"doses"}
    assert await kept.wait(0) == set()
