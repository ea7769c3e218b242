"""What the service does shows in its metrics, and nothing that names a caller or a context."""

import math
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.api import CONTEXT, OFFERS, Api, running_api
from tests.support.learning import create, play
from tests.support.waiting import eventually

MANY, BATCH = 10_000, 1000
DOMAIN = {"experiment": "doses", "domain": "source"}


def value(api: Api, name: str, labels: dict[str, str]) -> float | None:
    found: float | None = api.services.metrics.registry.get_sample_value(name, labels)
    return found


async def series(api: Api) -> set[str]:
    text = (await api.http.get("/metrics")).text
    families = text_string_to_metric_families(text)
    return {f"{s.name}{sorted(s.labels.items())}" for family in families for s in family.samples}


async def test_entropy_and_mean_reward_are_those_of_what_was_answered(url: str):
    async with running_api(url) as api:
        await create(api)
        entropy = 0.0
        for number in range(4):
            answer = (await api.select(f"r-{number}")).json()["source"]
            entropy -= sum(p * math.log(p) for p in answer["probabilities"].values())
            for _ in range(2):  # the second time it is a duplicate
                await api.reward(answer["decision_id"], number / 4)
        assert value(api, "daband_decisions_total", DOMAIN) == 4
        assert value(api, "daband_rewards_total", DOMAIN) == 4
        assert value(api, "daband_reward_points_total", DOMAIN) == pytest.approx(1.5)
        nats = value(api, "daband_selection_entropy_nats_total", DOMAIN)
        assert nats == pytest.approx(entropy)


async def test_ten_thousand_arms_and_request_ids_add_no_series(url: str):
    """Arms and ids differ in every round: the second batch of calls leaves the series as they were."""
    async with running_api(url, poll_seconds=0.05) as api:
        offers = {key: value for key, value in OFFERS.items() if key != "arms"}
        assert (await api.http.post("/experiments", json=offers)).status_code == 201
        sizes, labels = [], {"experiment": "offers"}
        for batch in range(0, MANY, BATCH):
            rounds = [offer(batch + number) for number in range(BATCH)]
            body = {"experiment": "offers", "rounds": rounds}
            answer = await api.http.post(
                "/select/batch", json=body, headers={"X-Request-ID": f"x-{batch}"}
            )
            assert answer.status_code == 200, answer.text
            await api.http.get(f"/nowhere-{batch}")
            await api.http.get(f"/experiments/nobody-{batch}/state")
            # What a poll tells of an experiment is there once, however many arms it has.
            await eventually(lambda: value(api, "daband_policy_lag_events", labels) is not None)
            sizes.append(await series(api))
        assert sizes[1] == sizes[-1]
        assert not [each for each in sizes[-1] if "arm-" in each or "r-1" in each]


def offer(number: int) -> dict[str, Any]:
    return {"request_id": f"r-{number}", "source": {"contexts": {f"arm-{number}": CONTEXT}}}


async def test_a_trainer_that_is_away_shows_as_the_lag_of_the_policy(url: str):
    async with running_api(url, poll_seconds=0.05) as api:
        await create(api)
        await play(api, 3)
        labels = {"experiment": "doses"}
        await eventually(lambda: value(api, "daband_policy_lag_events", labels) == 9.0)
