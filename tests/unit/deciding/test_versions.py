"""Earlier versions of a policy: restored once, kept while there is room, never damaged ones."""

import asyncio
from typing import Any

import pytest

from model.budget import estimated
from model.state.restore import restore_policy
from service.deciding.policies import Served
from service.deciding.scorer import Placement
from service.deciding.versions import Versions
from service.errors import DamagedSnapshot, UnknownSnapshot
from service.records import StoredSnapshot
from tests.support.builders import stored_experiment
from tests.unit.deciding.test_policies import SPEC, blob, stored

SIZE = estimated(SPEC.bandit_config()).policy_bytes


class Snapshots:
    """Versions 1 to 9, of which 7 is damaged; counts how often each is read."""

    def __init__(self) -> None:
        self.reads: list[int] = []

    async def get(self, experiment_id: str, version: int) -> StoredSnapshot:
        self.reads.append(version)
        await asyncio.sleep(0)
        if version > 9:
            raise UnknownSnapshot
        return stored(version, b"other bytes" if version == 7 else None)


def made(memory_bytes: int) -> tuple[Versions, Snapshots, Served]:
    snapshots: Any = Snapshots()
    current = Served(stored_experiment("doses"), SPEC, restore_policy(blob(9)))
    return Versions(snapshots, Placement(), memory_bytes), snapshots, current


async def test_the_current_version_is_not_read():
    versions, snapshots, current = made(SIZE)
    assert await versions.served(current, 9) is current
    assert snapshots.reads == []


async def test_many_callers_of_a_version_read_it_once():
    versions, snapshots, current = made(SIZE)
    found = await asyncio.gather(*(versions.served(current, 3) for _ in range(5)))
    assert {each.version for each in found} == {3}
    assert snapshots.reads == [3]


async def test_the_least_recently_used_version_is_dropped():
    versions, snapshots, current = made(2 * SIZE)
    for version in (1, 2, 1, 3, 1, 2):
        await versions.served(current, version)
    assert snapshots.reads == [1, 2, 3, 2]


async def test_one_version_is_kept_whatever_its_size():
    versions, snapshots, current = made(1)
    for version in (1, 1, 2, 2):
        await versions.served(current, version)
    assert snapshots.reads == [1, 2]


@pytest.mark.parametrize(("version", "refusal"), [(7, DamagedSnapshot), (10, UnknownSnapshot)])
async def test_what_is_damaged_or_gone_is_refused(version: int, refusal: type[Exception]):
    versions, _, current = made(SIZE)
    with pytest.raises(refusal):
        await versions.served(current, version)
