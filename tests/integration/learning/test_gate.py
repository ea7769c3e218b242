"""The gate in the service: refused encoders are kept and never served; people may promote."""

from typing import Any

import pytest

from service.errors import DamagedSnapshot
from service.storage.tables import candidates
from tests.support.api import DOSES, TAUGHT, Api, running_api
from tests.support.learning import (
    EPISODE,
    TRAINING,
    create,
    has_waited,
    idle_state,
    is_blocked,
    is_replayed,
    newest_offset,
    play,
    state,
)
from tests.support.storage import flip_a_bit
from tests.support.waiting import eventually

# No encoder has this effective rank, so that every one is refused.
STRICT = {**DOSES["config"], "gate_rank": 100.0}
MANUAL = {**TAUGHT["config"], "gate": "manual"}


async def listed(api: Api) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await api.http.get("/experiments/doses/candidates")).json()[
        "candidates"
    ]
    return found


async def entries(api: Api) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await api.http.get("/experiments/doses/audit")).json()["entries"]
    return found


async def reached(api: Api, offset: int) -> None:
    async def is_there() -> bool:
        return await newest_offset(api) >= offset

    await eventually(is_there)


async def promote(api: Api, episode: int, **fields: Any) -> Any:
    path = f"/experiments/doses/candidates/{episode}/promote"
    return await api.http.post(path, json=fields)


async def test_a_refused_encoder_is_kept_and_does_not_serve(url):
    async with running_api(url, **TRAINING) as api:
        await create(api, config=STRICT)
        await play(api, EPISODE)
        await idle_state(api, EPISODE)
        await play(api, EPISODE, start=100)
        found = await idle_state(api, 2 * EPISODE)
        assert found["encoder_version"] == 0
        assert [each["episode"] for each in await listed(api)] == [2, 1]
        assert "effective rank" in (await listed(api))[0]["verdict"]["reasons"][0]
        assert [each["what"] for each in await entries(api)] == ["encoder_refused"] * 2
        assert await is_replayed(api)
        file = await api.http.get("/experiments/doses/candidates/1/policy")
        assert file.status_code == 200
        assert b"networks.encoder" in file.content


async def test_a_person_may_promote_and_go_back(url):
    async with running_api(url, **TRAINING) as api:
        await create(api, config=STRICT)
        await play(api, EPISODE)
        before = await idle_state(api, EPISODE)
        asked = {"request_id": "p-1", "by": "Ada", "reason": "looked at the map"}
        answer = await promote(api, 1, **asked)
        assert answer.status_code == 202
        assert (await promote(api, 1, **asked)).json()["status"] == "already_recorded"
        await reached(api, answer.json()["offset"])
        assert (await state(api))["encoder_version"] == 1
        last = (await entries(api))[-1]
        assert (last["what"], last["details"]["by"]) == ("encoder_promoted", "Ada")
        assert (await listed(api))[0]["is_pinned"]
        assert await is_replayed(api)
        version = before["policy_version"]
        back = await api.http.post(f"/experiments/doses/snapshots/{version}/restore")
        await reached(api, back.json()["offset"])
        assert (await state(api))["encoder_version"] == 2
        assert await is_replayed(api)
    async with running_api(url, **TRAINING) as api:  # and so it is after a restart
        await play(api, 3, start=200)
        await idle_state(api, EPISODE + 3)
        assert await is_replayed(api)


async def test_under_a_manual_gate_good_encoders_wait(url):
    async with running_api(url, **TRAINING) as api:
        await create(api, config=MANUAL)
        await play(api, EPISODE)
        found = await idle_state(api, EPISODE)
        assert found["encoder_version"] == 0
        (candidate,) = await listed(api)
        assert candidate["verdict"]["is_accepted"]
        assert [each["what"] for each in await entries(api)] == ["encoder_waits"]
        answer = await promote(api, 1)
        await reached(api, answer.json()["offset"])
        assert (await state(api))["encoder_version"] == 1
        assert await is_replayed(api)


async def test_a_damaged_candidate_is_neither_promoted_nor_downloaded(url):
    async with running_api(url, **TRAINING) as api:
        await create(api, config=STRICT)
        await play(api, EPISODE)
        await idle_state(api, EPISODE)
        experiment = await api.services.experiments.get("doses")
        await flip_a_bit(api.services.database, experiment.experiment_id, 1, candidates)
        head = await api.last_offset()
        for answer in (
            await promote(api, 1),
            await api.http.get("/experiments/doses/candidates/1/policy"),
        ):
            assert (answer.status_code, answer.json()["type"]) == (
                409,
                "/problems/damaged-snapshot",
            )
        assert await api.last_offset() == head


async def test_a_promotion_of_what_was_damaged_later_waits(database_url):
    async with running_api(database_url, **TRAINING) as api:
        await create(api, config=STRICT)
        await play(api, EPISODE)
        await idle_state(api, EPISODE)
    async with running_api(database_url) as api:  # nobody trains: the promotion is only logged
        promotion = int((await promote(api, 1)).json()["offset"])
        experiment = await api.services.experiments.get("doses")
        await flip_a_bit(api.services.database, experiment.experiment_id, 1, candidates)
    async with running_api(database_url, **TRAINING) as api:
        await eventually(lambda: is_blocked(api))
        await play(api, 3, start=100)  # decisions and rewards are taken all the same
        await eventually(lambda: has_waited(api))
        assert (await api.http.get("/readyz")).status_code == 200
        assert await newest_offset(api) < promotion
        await flip_a_bit(api.services.database, experiment.experiment_id, 1, candidates)  # repaired
        assert (await idle_state(api, EPISODE + 3))["encoder_version"] == 1
        assert not is_blocked(api)
        assert await is_replayed(api)
        await flip_a_bit(api.services.database, experiment.experiment_id, 1, candidates)
        with pytest.raises(DamagedSnapshot, match=f"promotion at offset {promotion} needs"):
            await is_replayed(api)


async def test_only_what_is_kept_can_be_promoted(url):
    async with running_api(url) as api:
        await create(api)
        for answer in (
            await promote(api, 1),
            await api.http.get("/experiments/doses/candidates/1/policy"),
        ):
            assert (answer.status_code, answer.json()["type"]) == (
                404,
                "/problems/unknown-candidate",
            )
        assert await api.last_offset() == 0
