"""Policies of earlier versions, restored from their snapshots when they are asked for."""

import asyncio
from collections import OrderedDict
from dataclasses import replace

from model import Policy, SnapshotError, estimated, restore_policy
from service.deciding.policies import Served
from service.deciding.scorer import Placement
from service.errors import DamagedSnapshot
from service.storage.snapshots import Snapshots

Key = tuple[str, int]  # an experiment's id and a version


class Versions:
    """Keeps the most recently used earlier versions, by estimate within `memory_bytes`.

    The newest one is kept whatever its size.
    """

    def __init__(self, snapshots: Snapshots, placement: Placement, memory_bytes: int) -> None:
        self._snapshots = snapshots
        self._placement = placement
        self._memory_bytes = memory_bytes
        self._kept: OrderedDict[Key, tuple[Policy, int]] = OrderedDict()
        self._loading = asyncio.Lock()

    async def served(self, current: Served, version: int) -> Served:
        """The experiment with the policy of a version; raises `UnknownSnapshot`."""
        if version == current.version:
            return current
        key = current.experiment.experiment_id, version
        if key not in self._kept:
            async with self._loading:  # many callers of a version load it once
                if key not in self._kept:
                    self._keep(key, await self._restored(key))
        self._kept.move_to_end(key)
        return replace(current, policy=self._kept[key][0])

    async def _restored(self, key: Key) -> Policy:
        stored = await self._snapshots.get(*key)
        if not stored.is_intact:
            raise DamagedSnapshot
        try:
            return await asyncio.to_thread(
                self._placement.placed, lambda device: restore_policy(stored.blob, device)
            )
        except SnapshotError as error:
            raise DamagedSnapshot from error

    def _keep(self, key: Key, policy: Policy) -> None:
        self._kept[key] = policy, estimated(policy.config).policy_bytes
        while len(self._kept) > 1 and self._total() > self._memory_bytes:
            self._kept.popitem(last=False)

    def _total(self) -> int:
        return sum(size for _, size in self._kept.values())
