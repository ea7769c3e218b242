"""A process whose clock is wrong: order and leases do not depend on it."""

import sys
from datetime import timedelta
from itertools import cycle

import pytest

from service.records import utc_now
from service.storage.leases import Leases
from tests.support.api import running_api
from tests.support.learning import (
    EPISODE,
    TRAINING,
    create,
    idle_state,
    is_replayed,
    play,
)

HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    "skews", [(HOUR,), (-HOUR,), (HOUR, -HOUR)], ids=["ahead", "behind", "jumps"]
)
async def test_clock_that_is_wrong_changes_no_order_and_no_lease(url, monkeypatch, skews):
    offsets = cycle(skews)
    users = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("service.") and hasattr(module, "utc_now")
    ]
    for module in users:
        monkeypatch.setattr(module, "utc_now", lambda: utc_now() + next(offsets))
    async with running_api(url, **TRAINING | {"lease_seconds": 60.0}) as api:
        await create(api)
        await play(api, EPISODE + 2)
        await idle_state(api, EPISODE + 2)
        experiment = await api.services.experiments.get("doses")
        events = await api.services.event_log.read(experiment.experiment_id, after=0, limit=1000)
        assert [event.offset for event in events] == list(range(1, len(events) + 1))
        assert len({event.created_at for event in events}) > 1
        leases = Leases(api.services.database)
        assert await leases.acquire(experiment.experiment_id, "another") is None
        assert await is_replayed(api)
