"""The log, the learning curve and the latents over HTTP."""

from pathlib import Path
from typing import Any

import pytest

from service.formats.files import reading
from tests.support.api import CONTEXT, DOSES, Api


async def played(api: Api, rounds: int) -> list[dict[str, Any]]:
    """Answers of rounds with both sides; each second source decision gets its reward."""
    answers = []
    for number in range(rounds):
        sides = {"source": {"context": CONTEXT}, "target": {"context": CONTEXT}}
        answers.append((await api.select(f"r-{number}", **sides)).json())
        if number % 2 == 0:
            await api.reward(answers[-1]["source"]["decision_id"], number / rounds)
    return answers


async def test_the_log_pairs_decisions_with_rewards(api: Api):
    first, second = await played(api, 2)
    found = (await api.http.get("/experiments/doses/log?domain=source")).json()
    assert (found["experiment"], found["last_offset"], found["next_before"]) == ("doses", 5, None)
    newest, oldest = found["entries"]
    assert newest["decision_id"] == second["source"]["decision_id"]
    assert newest["reward"] is None
    source = first["source"]
    scores = source["scores"][source["arm"]]
    assert {
        name: oldest[name] for name in ("arm", "propensity", "mean", "bonus", "request_id")
    } == {
        "arm": source["arm"],
        "propensity": source["probabilities"][source["arm"]],
        "mean": scores["mean"],
        "bonus": scores["bonus"],
        "request_id": "r-0",
    }
    assert (oldest["offset"], oldest["domain"], oldest["policy_version"]) == (1, "source", 0)
    assert (oldest["reward"]["reward"], oldest["reward"]["offset"]) == (0.0, 3)


async def test_the_log_is_filtered_and_paged(api: Api):
    await played(api, 4)
    path = "/experiments/doses/log?rewarded=true&limit=1"
    first = (await api.http.get(path)).json()
    second = (await api.http.get(f"{path}&before={first['next_before']}")).json()
    offsets = [page["entries"][0]["reward"]["offset"] for page in (first, second)]
    assert offsets == [8, 3]
    assert (await api.http.get("/experiments/doses/log?arm=nobody")).json()["entries"] == []


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=201", "before=0", "domain=both", "rewarded=x", "arm=", "other=1"]
)
async def test_a_bad_query_is_refused(api: Api, query: str):
    answer = await api.http.get(f"/experiments/doses/log?{query}")
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (
        422,
        f"#/{query.partition('=')[0]}",
    )


async def test_the_log_is_exported_as_evaluations_read_it(api: Api, tmp_path: Path):
    answers = await played(api, 3)
    answer = await api.http.get("/experiments/doses/log/export")
    assert 'filename="doses.jsonl"' in answer.headers["content-disposition"]
    (tmp_path / "doses.jsonl").write_bytes(answer.content)
    with reading(tmp_path / "doses.jsonl") as reader:
        found = list(reader)
        assert reader.header.arms == ("low", "mid", "high")
    made = [answer[domain]["decision_id"] for answer in answers for domain in ("source", "target")]
    assert [each.decision_id for each in found] == made
    assert [each.reward for each in found] == [0.0, None, None, None, 2 / 3, None]
    assert found[0].probabilities == tuple(answers[0]["source"]["probabilities"].values())
    for query, count in (("domain=target", 3), ("rewarded=true", 2), ("arm=nobody", 0)):
        part = await api.http.get(f"/experiments/doses/log/export?{query}")
        assert len(part.text.splitlines()) == 1 + count
    assert (await api.http.get("/experiments/doses/log/export?limit=3")).status_code == 422


async def test_the_learning_curve_is_the_mean_of_each_block(api: Api):
    await played(api, 4)  # ten events, rewards 0 and 0.5
    found = (await api.http.get("/experiments/doses/learning?points=2")).json()
    assert [(each["after"], each["offset"]) for each in found["points"]] == [(0, 5), (5, 10)]
    assert [each["mean"] for each in found["points"]] == [0.0, 0.5]
    assert (found["is_complete"], found["best_reward"]) == (True, None)
    assert {each["regret"] for each in found["points"]} == {None}
    assert sum(each["decisions"] for each in found["arms"]) == 4
    assert sum(each["rewards"] for each in found["arms"]) == 2
    played_arms = [each for each in found["arms"] if each["rewards"]]
    total = sum(each["rewards"] * each["mean"] for each in played_arms)
    assert total == pytest.approx(0.5)
    of_target = (await api.http.get("/experiments/doses/learning?domain=target")).json()
    assert of_target["points"] == []
    assert sum(each["decisions"] for each in of_target["arms"]) == 4


async def test_regret_is_known_where_one_arm_alone_pays(api: Api):
    config = {**DOSES["config"], "exclusive_rewards": True}
    await api.http.post("/experiments", json={**DOSES, "name": "digits", "config": config})
    decision_id = await api.decide(experiment="digits")
    await api.reward(decision_id, 0.25)
    found = (await api.http.get("/experiments/digits/learning")).json()
    assert found["best_reward"] == 1.0
    assert [each["regret"] for each in found["points"]] == [0.75]


async def test_an_empty_log_has_empty_answers(api: Api):
    log = (await api.http.get("/experiments/doses/log")).json()
    assert (log["entries"], log["next_before"]) == ([], None)
    learning = (await api.http.get("/experiments/doses/learning")).json()
    assert (learning["points"], learning["arms"], learning["is_complete"]) == ([], [], True)
    latents = (await api.http.get("/experiments/doses/latents")).json()
    assert (latents["points"], latents["encoder_version"], latents["explained"]) == ([], 0, 0.0)
