import hashlib
import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from model.learner import Learner
from model.state.snapshot import to_bytes
from service.errors import DamagedSnapshot, UnknownCandidate, UnknownSnapshot
from service.learning.restore import stored_networks
from service.records import EventKind, StoredEvent
from tests.support.builders import small_config

OURS, THEIRS = (to_bytes(Learner(small_config(), seed), 1, with_contexts=False) for seed in (1, 2))
NUMBERS = {EventKind.RESTORE: "version", EventKind.PROMOTION: "episode"}


class Store:
    """Snapshots or candidates: one, or none."""

    def __init__(self, blob: bytes | None, missing: type[Exception]) -> None:
        self._blob = blob
        self._missing = missing

    async def get(self, experiment_id: str, number: int) -> Any:
        if self._blob is None:
            raise self._missing
        return SimpleNamespace(blob=self._blob)


def event(kind: EventKind) -> StoredEvent:
    content = {NUMBERS[kind]: 3, "sha256": hashlib.sha256(OURS).hexdigest()}
    return StoredEvent(
        experiment_id="doses",
        offset=7,
        kind=kind,
        event_key="key",
        payload=json.dumps(content).encode(),
        context=None,
        request_id=None,
        request_hash=None,
        domain=None,
        arm=None,
        reward=None,
        policy_version=None,
        created_at=datetime.now(UTC),
    )


async def fetched(kind: EventKind, blob: bytes | None) -> Any:
    stores = [Store(None, UnknownSnapshot), Store(None, UnknownCandidate)]
    mine = 0 if kind is EventKind.RESTORE else 1
    stores[mine] = Store(blob, (UnknownSnapshot, UnknownCandidate)[mine])
    return await stored_networks(event(kind), stores[0], stores[1], "cpu")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", NUMBERS)
async def test_the_bytes_that_the_log_names_are_opened(kind):
    networks, moments = await fetched(kind, OURS)
    assert networks.encoder.latent_size == small_config().latent_size
    assert moments == {}


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("blob", [None, THEIRS, OURS[:-1]], ids=["gone", "another", "cut"])
async def test_anything_else_is_damage_that_names_the_event(kind, blob):
    with pytest.raises(DamagedSnapshot, match=f"{kind} at offset 7 needs {NUMBERS[kind]} 3"):
        await fetched(kind, blob)
