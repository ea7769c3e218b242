"""The client against the real app."""

from collections.abc import AsyncIterator

import httpx
import numpy as np
import pytest

from daband_client import AsyncClient, ProblemError, Round
from tests.support.api import CONTEXT, DOSES, Api, asgi


@pytest.fixture
async def client(api: Api) -> AsyncIterator[AsyncClient]:
    transport = httpx.ASGITransport(asgi(api.app, api.services))
    async with AsyncClient("http://test", transport=transport) as made:
        yield made


async def test_a_round_is_played(client: AsyncClient):
    context = np.array(CONTEXT)
    selected = await client.select("doses", Round(source=context, target=context))
    assert selected.source is not None
    assert selected.target is not None
    received = await client.reward(selected.source.decision_id, 1)
    assert (received.status, received.offset) == ("created", 3)
    assert (await client.reward(selected.source.decision_id, 1)).status == "already_recorded"
    with pytest.raises(ProblemError, match="target-reward-forbidden"):
        await client.reward(selected.target.decision_id, 1)


async def test_many_rounds_are_played(client: AsyncClient):
    rounds = [Round(source={"low": CONTEXT, "mid": CONTEXT}) for _ in range(3)]
    selected = await client.select_many("offers", rounds)
    rewards = {each.source.decision_id: 0.5 for each in selected if each.source}
    outcomes = await client.reward_many({**rewards, "nobody's": 1})
    assert [each.status for each in outcomes] == ["created"] * 3 + ["refused"]
    assert outcomes[-1].problem is not None
    assert outcomes[-1].problem.status == 404


async def test_experiments_are_managed(client: AsyncClient):
    assert (await client.create_experiment(**DOSES)).name == "doses"
    assert [each.name for each in await client.experiments()] == ["doses", "offers"]
    assert (await client.set_status("doses", "paused")).status == "paused"
    assert (await client.experiment("doses")).status == "paused"
    assert (await client.state("doses")).policy_version == 0
    assert await client.snapshots("doses") == []
    with pytest.raises(ProblemError, match="unknown-snapshot"):
        await client.restore("doses", 1)
    with pytest.raises(ProblemError, match="nothing-to-train-on"):
        await client.train("doses")


async def test_the_target_side_is_used(client: AsyncClient):
    rows = np.array([CONTEXT] * 3, dtype=np.float32)
    answered = await client.target_select("doses", rows, confidence_floor=0.5, store=True)
    assert [each.abstained for each in answered.decisions] == [True] * 3
    assert answered.stored is not None
    assert answered.stored.contexts == 3
    by_arm = await client.target_select("offers", [{"low": rows[0]}])
    assert by_arm.decisions[0].arm == "low"
    listed = await client.target_select("doses", [CONTEXT, rows[0]])
    near = [await client.nearest("doses", each, 5) for each in (rows, rows.tolist())]
    assert near[0] == near[1]
    assert (near[0].sampled, len(near[0].contexts)) == (0, 3)
    assert listed.decisions[0] == listed.decisions[1]
    for status in ("created", "already_recorded"):
        stored = await client.upload_contexts("doses", rows.astype(float), request_id="u-1")
        assert (stored.status, stored.contexts) == (status, 3)
    assert (await client.open_target("doses", 0.9)).phase == "continued"
    assert (await client.transfer("doses")).verdict is None
    assert [each.what for each in await client.audit("doses")] == ["phase_changed"]
    assert await client.candidates("doses") == []
    assert (await client.report("doses")).startswith("<!doctype html>")
    with pytest.raises(ProblemError, match="unknown-candidate"):
        await client.promote("doses", 1)
    with pytest.raises(ProblemError, match="unknown-snapshot"):
        await client.policy("doses", 1)


async def test_evaluations_are_queued_shown_and_cancelled(client: AsyncClient):
    job = await client.evaluate("doses", [{"kind": "uniform"}], confidence=0.9)
    assert (job.status, job.request["confidence"]) == ("queued", 0.9)
    assert (await client.evaluation(job.evaluation_id)).evaluation_id == job.evaluation_id
    assert (await client.cancel_evaluation(job.evaluation_id)).status == "cancelled"
