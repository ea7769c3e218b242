"""Transfer over HTTP: nothing before there is a target, judgements by version, regret once open."""

import csv
import io
from typing import Any, NoReturn

import numpy as np
import pytest

from service.learning.jobs.job import JobFailed, ThreadRunner
from service.learning.training_loop import TrainingLoop
from service.storage.transfers import Transfers
from tests.support.api import TAUGHT, Api, running_api
from tests.support.learning import EPISODE, TRAINING, create, idle_state, play
from tests.support.waiting import eventually

CONFIG = {**TAUGHT["config"], "holdout_share": 0.6}


async def transfer(api: Api) -> dict[str, Any]:
    found: dict[str, Any] = (await api.http.get("/experiments/doses/transfer")).json()
    return found


async def judged(api: Api) -> dict[str, Any]:
    """The transfer once the newest encoder was judged."""

    async def is_judged() -> bool:
        found = await transfer(api)
        return bool(
            found["versions"]
            and found["versions"][-1]["encoder_version"] == found["encoder_version"]
        )

    await eventually(is_judged)
    return await transfer(api)


async def judgement(api: Api) -> str:
    found: str = (await api.http.get("/experiments/doses/state")).json()["training"]["judgement"]
    return found


async def test_a_judgement_that_fails_is_said_to_have_failed(url, monkeypatch):
    def fail(*_: object) -> NoReturn:
        assert states == ["due"]
        raise JobFailed("no memory")

    states: list[str] = []
    begun = TrainingLoop._begin_judging

    async def begin(loop: TrainingLoop) -> None:
        """Judge once the state says that it is due."""
        if not states and loop._learner.can_be_judged:
            await loop._publisher.publish(loop._learner, is_unfinished=True)
            states.append(await judgement(api))
        await begun(loop)

    monkeypatch.setattr(TrainingLoop, "_begin_judging", begin)
    monkeypatch.setattr(ThreadRunner, "judge", fail)
    async with running_api(url, **TRAINING) as api:
        await create(api, config=CONFIG)
        await play(api, 4 * EPISODE)

        async def has_failed() -> bool:
            return await judgement(api) == "failed"

        await eventually(has_failed)
        assert (await transfer(api))["versions"] == []


async def test_without_any_target_context_there_is_nothing_to_say_and_no_error(url):
    async with running_api(url, **TRAINING) as api:
        await create(api)
        for i in range(EPISODE + 2):
            answer = (await api.select(f"r-{i}")).json()
            await api.reward(answer["source"]["decision_id"], float(i % 2))
        state = await idle_state(api, EPISODE + 2)
        assert state["transfer"] == {}
        assert state["training"]["judgement"] == "none"
        found = await transfer(api)
        assert (found["verdict"], found["versions"], found["phase"]) == (None, [], "zero_shot")
        assert found["target_regret"] == {
            "rewards": 0,
            "best_reward": None,
            "cumulative": 0.0,
            "curve": [],
        }
        answer = await api.http.get("/experiments/doses/transfer?format=csv")
        assert answer.text == "encoder_version,offset,at,verdict,reasons\n"
        body = {"experiment": "doses", "context": [1.0, 0.0, 0.0, 0.0], "confidence_floor": 0.1}
        decision = (await api.http.post("/target/select", json=body)).json()["decisions"][0]
        assert decision["abstained"]


SHOWN = (
    *("daband_loss", "daband_gate_verdicts_total", "daband_episode_seconds_count"),
    *(
        "daband_expected_target_reward",
        "daband_domain_accuracy",
        "daband_diagnostic_term",
        "daband_transfer_sign",
    ),
    *("daband_transfer_verdict", "daband_condition_number", "daband_snapshot_bytes"),
    *("daband_trainer_lag_events", "daband_policy_lag_events"),
)
LOSSES = ("reward", "regression", "prediction", "divergence")


async def test_every_judged_version_has_terms_signs_verdict_and_gate(url):
    async with running_api(url, **TRAINING) as api:
        await create(api, config=CONFIG)
        await play(api, 4 * EPISODE)
        await idle_state(api, 4 * EPISODE)
        found = await judged(api)
        assert (await judgement(api)) == "done"
        last = found["versions"][-1]
        assert found["verdict"] == last["verdict"]
        assert last["verdict"]["word"] in ("aligned", "weak", "do not trust")
        assert {"source_regret", "regression_error", "divergence", "predicted_reward"} <= set(
            last["diagnostics"]
        )
        assert {"expected_reward", "far_share", "source_skill"} <= set(last["signs"])
        assert found["expected"] == last["expected"]
        assert last["expected"]["reward"] == last["signs"]["expected_reward"]
        assert 0 <= last["expected"]["lower"] <= last["expected"]["reward"] <= 1
        assert last["gate"]["what"] == "encoder_activated"
        assert last["gate"]["details"]["verdict"]["is_accepted"]
        assert [each["what"] for each in found["gate"]].count("encoder_activated") >= 1
        rows = list(
            csv.DictReader(
                io.StringIO((await api.http.get("/experiments/doses/transfer?format=csv")).text)
            )
        )
        assert len(rows) == len(found["versions"])
        assert float(rows[-1]["far_share"]) == last["signs"]["far_share"]
        assert float(rows[-1]["expected_lower"]) == last["expected"]["lower"]
        assert float(rows[-1]["divergence"]) == last["diagnostics"]["divergence"]
        assert rows[-1]["gate"] == "encoder_activated"
        metrics = (await api.http.get("/metrics")).text
        assert all(f'{name}{{experiment="doses"' in metrics for name in SHOWN)
        assert all(f'daband_loss{{experiment="doses",term="{each}"}}' in metrics for each in LOSSES)


async def test_target_regret_is_counted_against_the_declared_best(url):
    async with running_api(url, **TRAINING) as api:
        await create(api)
        target_ids = await play(api, 6)
        opening = {"phase": "continued", "best_reward": 0.9}
        await api.http.post("/experiments/doses/phase", json=opening)
        rewards = [0.9, 0.4, 0.0]
        for decision_id, value in zip(target_ids, rewards, strict=False):
            assert (await api.reward(decision_id, value)).status_code == 201
        found = (await transfer(api))["target_regret"]
        assert (found["rewards"], found["best_reward"]) == (3, 0.9)
        assert found["cumulative"] == pytest.approx(0.9 * 3 - sum(rewards))
        assert np.diff([0, *(point[1] for point in found["curve"])]) == pytest.approx(
            [0.0, 0.5, 0.9]
        )


async def test_a_format_that_is_none_is_refused(url):
    async with running_api(url) as api:
        await create(api)
        answer = await api.http.get("/experiments/doses/transfer?format=xml")
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "#/format")


async def test_the_first_judgement_of_a_version_stands(url):
    async with running_api(url) as api:
        await create(api)
        experiment = await api.services.experiments.get("doses")
        transfers: Transfers = api.services.transfers
        for word in ("first", "second"):
            await transfers.save(experiment.experiment_id, 1, 9, {"word": word}, epoch=0)
        (found,) = await transfers.list(experiment.experiment_id)
        assert found.judgement == {"word": "first"}


async def test_latents_show_both_domains_and_the_best_arm(url):
    async with running_api(url, **TRAINING) as api:
        await create(api)
        await play(api, EPISODE)
        await idle_state(api, EPISODE)
        path = "/experiments/doses/latents"
        found = (await api.http.get(path)).json()
        few = (await api.http.get(f"{path}?limit=3")).json()
    assert {each["domain"] for each in found["points"]} == {"source", "target"}
    assert {each["arm"] for each in found["points"]} <= set(TAUGHT["arms"])
    assert 0 < found["explained"] <= 1
    assert (found["encoder_version"], found["policy_version"] > 0) == (1, True)
    for domain in ("source", "target"):
        newest = [each for each in found["points"] if each["domain"] == domain][-3:]
        assert [each for each in few["points"] if each["domain"] == domain] == newest
