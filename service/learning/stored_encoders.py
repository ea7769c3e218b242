"""Stored encoders that the log goes back to: a snapshot by a restore, a candidate by a promotion."""

import asyncio
import hashlib
import json
from typing import TypeVar

from model.networks import Networks
from model.restoring import restore_networks
from model.snapshot import SnapshotError
from model.stepping import Moments
from service.errors import DamagedSnapshot, UnknownCandidate, UnknownSnapshot
from service.records import Candidate, EventKind, StoredEvent, StoredSnapshot
from service.storage.candidates import Candidates
from service.storage.snapshots import Snapshots

Stored = TypeVar("Stored", StoredSnapshot, Candidate)


def intact(found: Stored) -> Stored:
    """What was found, if its bytes are those that were saved; `DamagedSnapshot` otherwise."""
    if not found.is_intact:
        raise DamagedSnapshot
    return found


async def stored_networks(
    event: StoredEvent, snapshots: Snapshots, candidates: Candidates, device: str
) -> tuple[Networks, Moments]:
    """What an event of the log goes back to; `DamagedSnapshot` if that is not there as it was."""
    said = json.loads(event.payload)
    is_restore = event.kind is EventKind.RESTORE
    name = "version" if is_restore else "episode"
    number = int(said[name])
    try:
        store = snapshots if is_restore else candidates
        stored = await store.get(event.experiment_id, number)
        _check(stored.blob, said["sha256"])
        return await asyncio.to_thread(restore_networks, stored.blob, device)
    except (UnknownSnapshot, UnknownCandidate, SnapshotError) as error:
        raise DamagedSnapshot(
            f"The {event.kind} at offset {event.offset} needs {name} {number}, which is damaged: "
            f"{error}. Bring its bytes back from a backup of the database.",
            **{name: number, "offset": event.offset},
        ) from error


def _check(blob: bytes, logged_hash: str) -> None:
    # The hash in the log is the one that counts: it cannot have changed with the stored bytes.
    if hashlib.sha256(blob).hexdigest() != logged_hash:
        raise SnapshotError("the stored bytes have changed")
