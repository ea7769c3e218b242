"""The client against a running service, without anything but its own dependencies."""

import asyncio
import sys
from array import array
from random import Random
from uuid import uuid4

import pytest

from daband_client import AsyncClient, Client, Limits, ProblemError, Round

ARMS = ["low", "mid", "high"]
SMALL = {"latent_size": 4, "hidden_sizes": [8]}


@pytest.fixture
def experiment(url: str) -> str:
    name = f"client-{uuid4()}"
    with Client(url) as client:
        made = client.create_experiment(
            name, ARMS, {"kind": "shared", "shape": [3]}, config=SMALL, fallback_arm="low"
        )
        assert (
            client.create_experiment(
                name, ARMS, {"kind": "shared", "shape": [3]}, config=SMALL, fallback_arm="low"
            )
            == made
        )
    return name


def matrix(rows: int) -> "memoryview[float]":
    random = Random(1)
    numbers = array("f", (random.random() for _ in range(3 * rows)))
    return memoryview(numbers).cast("B").cast("f", [rows, 3])


def test_a_round_is_played(url: str, experiment: str) -> None:
    with Client(url) as client:
        selected = client.select(experiment, Round([0.1, 0.2, 0.3], array("d", [0.3, 0.2, 0.1])))
        assert selected.source is not None
        assert selected.target is not None
        assert selected.source.arm in ARMS
        assert sum(selected.source.probabilities.values()) == pytest.approx(1)
        assert client.reward(selected.source.decision_id, 1).status == "created"
        assert client.reward(selected.source.decision_id, 1).status == "already_recorded"
        with pytest.raises(ProblemError, match="403 target-reward-forbidden"):
            client.reward(selected.target.decision_id, 1)


def test_batches_are_split_and_safe_to_repeat(url: str, experiment: str) -> None:
    with Client(url, limits=Limits(rows=10)) as client:
        rounds = [Round([0.1, 0.2, index / 35]) for index in range(35)]
        first, second = (client.select_many(experiment, rounds, "batch") for _ in range(2))
        assert first == second
        assert [each.request_id for each in first] == [f"batch/{index}" for index in range(35)]
        ids = [each.source.decision_id for each in first if each.source]
        outcomes = client.reward_many({**dict.fromkeys(ids, 0.5), "nobody's": 1})
        assert [each.status for each in outcomes] == ["created"] * 35 + ["refused"]
        assert outcomes[-1].problem is not None
        assert outcomes[-1].problem.status == 404


def test_the_target_is_asked_for_many_contexts(url: str, experiment: str) -> None:
    with Client(url) as client:
        answered = client.target_select(
            experiment, matrix(2345), confidence_floor=1, store=True, request_id="t"
        )
        assert [each.arm for each in answered.decisions] == ["low"] * 2345
        assert answered.stored is not None
        assert (answered.stored.status, answered.stored.contexts) == ("created", 2345)
        again = client.target_select(experiment, matrix(2345), store=True, request_id="t")
        assert again.stored is not None
        assert again.stored.status == "already_recorded"
        one = client.target_select(experiment, matrix(1).tolist()[0])
        assert one.decisions[0] == again.decisions[0]


def test_contexts_are_uploaded(url: str, experiment: str) -> None:
    with Client(url, limits=Limits(upload_rows=100)) as client:
        for status in ("created", "already_recorded"):
            stored = client.upload_contexts(experiment, matrix(250), "u")
            assert (stored.status, stored.contexts) == (status, 250)
        assert client.upload_contexts(experiment, [[1, 2, 3]]).contexts == 1


def test_a_refusal_names_the_place(url: str, experiment: str) -> None:
    with Client(url) as client, pytest.raises(ProblemError) as refused:
        client.select(experiment, Round([0.1, "0.2", 0.3]))
    assert "422 invalid-request" in str(refused.value)
    assert "#/source/context" in str(refused.value)


def test_everything_can_be_asked_from_asyncio(url: str, experiment: str) -> None:
    async def asked() -> None:
        async with AsyncClient(url) as client:
            rounds = [Round([0.1, 0.2, 0.3]) for _ in range(5)]
            assert len(await client.select_many(experiment, rounds)) == 5
            assert (await client.state(experiment)).phase == "zero_shot"
            assert (await client.experiment(experiment)).config["latent_size"] == 4
            assert experiment in [each.name for each in await client.experiments()]
            assert (await client.set_status(experiment, "paused")).status == "paused"
            assert isinstance(await client.snapshots(experiment), list)
            assert await client.candidates(experiment) == []
            assert (await client.open_target(experiment, 0.9)).phase == "continued"
            assert (await client.transfer(experiment)).verdict is None
            assert "phase_changed" in [each.what for each in await client.audit(experiment)]
            assert (await client.report(experiment)).startswith("<!doctype html>")
            job = await client.evaluate(experiment, [{"kind": "uniform"}], confidence=0.9)
            assert job.request["confidence"] == 0.9
            assert (await client.evaluation(job.evaluation_id)).experiment == experiment
            assert (await client.delete_experiment(experiment, "ann")).status == "deleted"
            assert experiment in [each.experiment for each in await client.acts()]
            with pytest.raises(ProblemError, match="404 unknown-experiment"):
                await client.state(experiment)

    asyncio.run(asked())


def test_nothing_of_the_service_is_loaded() -> None:
    loaded = {name.partition(".")[0] for name in sys.modules}
    assert loaded.isdisjoint({"service", "model", "torch", "pydantic", "fastapi"})
