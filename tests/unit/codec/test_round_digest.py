"""The digest of a request, by which the log detects another request under its id: it must never change."""

import pytest

from service.codec.decisions import Side
from service.deciding.select import DecisionRequest
from service.records import Domain

ARMS = ("low", "mid")
SOURCE = Side(Domain.SOURCE, ARMS, bytes(8))
TARGET = Side(Domain.TARGET, ARMS, b"\x01" * 8)


@pytest.mark.parametrize(
    ("sides", "expected"),
    [
        ((SOURCE,), "681893633c657bef2f72b8af75c7df54ad666bff2cd2504f3328e5ba8596d942"),
        ((SOURCE, TARGET), "f733bdf0538fe3874b4716776c54f6afa7d425c5036eb2fcff8ac348549f13fa"),
    ],
)
def test_a_round_is_known_again_by_every_version(sides: tuple[Side, ...], expected: str):
    prefixes: dict[tuple[str, ...], bytes] = {}
    for _ in range(2):  # with the prefixes of the first, too
        assert DecisionRequest("r-1", sides).digest(prefixes) == expected


def test_every_part_of_a_round_counts():
    longer = Side(Domain.SOURCE, ARMS, bytes(12))
    other = Side(Domain.SOURCE, ("low", "high"), bytes(8))
    rounds = [(SOURCE,), (TARGET,), (longer,), (other,), (SOURCE, TARGET), (TARGET, SOURCE)]
    assert len({DecisionRequest("r", sides).digest({}) for sides in rounds}) == len(rounds)
