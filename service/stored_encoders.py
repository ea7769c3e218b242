"""Restores: the stored networks that an event of the log goes back to."""

import asyncio
import hashlib
import json

from model.networks import Networks
from model.restoring import restore_networks
from model.snapshot import SnapshotError
from model.stepping import Moments
from service.errors import DamagedSnapshot, UnknownSnapshot
from service.records import StoredEvent
from service.storage.snapshots import Snapshots


async def restored_networks(
    event: StoredEvent, snapshots: Snapshots, device: str
) -> tuple[Networks, Moments]:
    """What a restore of the log goes back to; `DamagedSnapshot` if that is not there as it was."""
    said = json.loads(event.payload)
    version = int(said["version"])
    try:
        stored = await snapshots.get(event.experiment_id, version)
        _check(stored.blob, said["sha256"])
        return await asyncio.to_thread(restore_networks, stored.blob, device)
    except (UnknownSnapshot, SnapshotError) as error:
        raise DamagedSnapshot(
            f"The restore at offset {event.offset} needs version {version}, which is damaged: "
            f"{error}. Bring its bytes back from a backup of the database.",
            version=version,
            offset=event.offset,
        ) from error


def _check(blob: bytes, logged_hash: str) -> None:
    # The hash in the log is the one that counts: it cannot have changed with the snapshot.
    if hashlib.sha256(blob).hexdigest() != logged_hash:
        raise SnapshotError("the stored bytes have changed")
