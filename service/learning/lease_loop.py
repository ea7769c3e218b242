"""The trainer of one experiment: leads while it holds the lease."""

import asyncio
import logging
import time

from service.errors import ServiceError, StaleEpoch, StorageUnavailable, VersionConflict
from service.learning.training_loop import Assignment, Leadership
from service.records import Lease, uuid7

RETRY_SECONDS = 0.5

log = logging.getLogger(__name__)


class LeaseLost(Exception):  # noqa: N818 - an event, not a fault
    """Another trainer leads now."""


class ExperimentTrainer:
    """Leads one experiment for as long as it holds the lease; never two at once do harm.

    Losing the lease, a storage outage or a conflict ends the leadership: the learner is dropped
    and loaded again from what is stored.
    """

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._experiment = assignment.experiment
        self._leases = assignment.stores.leases
        self._options = assignment.options
        self._holder = uuid7()

    async def run(self) -> None:
        """Lead whenever the lease can be had, until cancelled."""
        while True:
            try:
                lease = await self._acquire()
                await self._lead(lease)
            except (LeaseLost, StaleEpoch, VersionConflict) as error:
                self._say("lease_lost", f"leadership ended: {error}")
            except StorageUnavailable:
                self._say("trainer_waits", "storage is away")
                await asyncio.sleep(RETRY_SECONDS)

    async def _acquire(self) -> Lease:
        ttl = self._options.lease_seconds
        while True:
            lease = await self._leases.acquire(self._experiment.experiment_id, self._holder, ttl)
            if lease is not None:
                return lease
            await asyncio.sleep(min(self._options.poll_seconds, ttl / 4))

    async def _lead(self, lease: Lease) -> None:
        renewing = asyncio.create_task(self._renew(lease), name="lease")
        leadership = Leadership(self._assignment, lease)
        try:
            await leadership.begin()
            while not renewing.done():
                await leadership.step()
            renewing.result()
        finally:
            renewing.cancel()
            leadership.end()
            if not renewing.done() or renewing.cancelled():
                await self._release(lease)

    async def _renew(self, lease: Lease) -> None:
        """Ends, by raising, when the lease is gone; outages shorter than the lease are ridden out."""
        ttl = self._options.lease_seconds
        expires = time.monotonic() + ttl
        while True:
            await asyncio.sleep(ttl / 4)
            try:
                renewed = await self._leases.renew(lease, ttl)
            except StorageUnavailable:
                if time.monotonic() > expires:
                    raise
                continue
            if renewed is None:
                raise LeaseLost(LeaseLost.__doc__)
            expires = time.monotonic() + ttl

    async def _release(self, lease: Lease) -> None:
        """Let the next trainer begin at once; if that fails the lease just runs out."""
        try:
            await self._leases.release(lease)
        except ServiceError:
            self._say("lease_kept", "the lease could not be released")

    def _say(self, action: str, message: str) -> None:
        log.info(message, extra={"action": action, **self._experiment.log_context()})
