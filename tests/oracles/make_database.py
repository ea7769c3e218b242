"""Keeps a database of today's build, with the answers that it gave, for later builds to go on with.

`python -m tests.oracles.make_database NAME` writes `databases/NAME.sql.gz` and `databases/NAME.json`. Do this for every
release that changes the schema or the recipe; `tests/integration/learning/test_old_databases.py` reads all that are there.
"""

import asyncio
import dataclasses
import gzip
import json
import sqlite3
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx

from model.config import RECIPE, SYSTEMS
from model.state.snapshot import opened
from service.experiment_spec import ExperimentSpec
from tests.support.api import CONTEXT, OTHER_CONTEXT, TAUGHT, Api, running_api
from tests.support.waiting import eventually

FOLDER = Path(__file__).parent / "databases"
TRAINING: dict[str, Any] = {"trainer_inside": True, "poll_seconds": 0.05, "lease_seconds": 2.0}
ROUNDS = 35  # two episodes and a part of the third
LINEAR: dict[str, Any] = {**TAUGHT, "name": "linear", "method": "linucb", "seed": 3}
SHAPES: dict[str, dict[str, Any]] = {
    "vectors": {"kind": "shared", "shape": [5]},
    "by-arm": {"kind": "per_arm", "shape": [5]},
    "images": {"kind": "shared", "shape": [3, 8, 8]},
}


def declarations() -> list[dict[str, Any]]:
    """An experiment of each method on each kind of context, with and without own values."""
    plain = [
        {"name": f"{method}-{kind}", "arms": ["a", "b"], "context": context, "method": method}
        for method in SYSTEMS
        for kind, context in SHAPES.items()
    ]
    values = {"alpha": 1, "hidden_sizes": [16], "objective": "paper", "epsilon": 0}
    own = {**plain[-2], "name": "own-values", "config": values, "fallback_arm": "b"}
    return [*plain, own]


async def ask(
    http: httpx.AsyncClient, path: str, body: dict[str, Any], payload: list[Any]
) -> dict[str, Any]:
    """Send a request and keep it with its answer."""
    answer = await http.post(path, json=body)
    assert answer.is_success, answer.text
    found: dict[str, Any] = answer.json()
    payload.append({"path": path, "body": body, "answer": found})
    return found


async def repeat(http: httpx.AsyncClient, payload: list[Any]) -> None:
    """Send the requests again: each gets the answer that it got."""
    for each in payload:
        answer = await http.post(each["path"], json=each["body"])
        received = {**each["answer"], "status": "already_recorded"}
        expected = received if each["path"] == "/reward" else each["answer"]
        assert (answer.status_code, answer.json()) == (200, expected)


async def play(http: httpx.AsyncClient, name: str, rounds: int, start: int = 0) -> list[Any]:
    """Rounds with rewards; the requests with their answers."""
    payload: list[Any] = []
    for number in range(start, start + rounds):
        good = "low" if number % 2 else "high"
        context = [
            value + 0.1 * (number % 7) for value in (CONTEXT if number % 2 else OTHER_CONTEXT)
        ]
        side = {"context": context}
        body = {
            "experiment": name,
            "request_id": f"{name}-{number}",
            "source": side,
            "target": side,
        }
        decision = (await ask(http, "/select", body, payload))["source"]
        reward = 1.0 if decision["arm"] == good else 0.0
        await ask(
            http, "/reward", {"decision_id": decision["decision_id"], "reward": reward}, payload
        )
    return payload


async def idle_state(http: httpx.AsyncClient, name: str) -> dict[str, Any]:
    """The state once all of the log is folded and published and no training is under way."""
    found: dict[str, Any] = {}

    async def is_idle() -> bool:
        found.update((await http.get(f"/experiments/{name}/state")).json())
        return found["lag"] == 0 and not found.get("is_training", True)

    await eventually(is_idle)
    return found


async def newest_config(api: Api, name: str) -> dict[str, Any]:
    """The configuration that an experiment's newest snapshot was made under."""
    experiment = await api.services.experiments.get(name)
    stored = await api.services.snapshots.latest(experiment.experiment_id)
    assert stored is not None
    return opened(stored.blob)[0].config


async def resolved(api: Api, name: str) -> dict[str, Any]:
    """The configuration of an experiment that has seen nothing."""
    spec = ExperimentSpec.of(await api.services.experiments.get(name))
    return dataclasses.asdict(spec.bandit_config())


async def fill(url: str) -> dict[str, Any]:
    """Play two experiments and declare the others; what the service said."""
    played, declared = [TAUGHT, LINEAR], declarations()
    found: dict[str, Any] = {"requests": [], "states": {}, "target": {}, "configs": {}}
    found["recipe"] = RECIPE.version
    async with running_api(url, **TRAINING) as api:
        for each in (*played, *declared):
            answer = await api.http.post("/experiments", json=each)
            assert answer.status_code == 201, answer.text
        for each in played:
            found["requests"] += await play(api.http, each["name"], ROUNDS)
            await idle_state(api.http, each["name"])
    async with running_api(url) as api:  # nothing changes any more
        for each in played:
            name = each["name"]
            payload: list[Any] = []
            found["states"][name] = await idle_state(api.http, name)
            asked = {"experiment": name, "contexts": [CONTEXT, OTHER_CONTEXT]}
            await ask(api.http, "/target/select", asked, payload)
            found["target"][name] = payload[0]
            found["configs"][name] = await newest_config(api, name)
            experiment = await api.services.experiments.get(name)
            await api.services.snapshots.prune(experiment.experiment_id, 1)
        found["configs"] |= {each["name"]: await resolved(api, each["name"]) for each in declared}
    return found


def dump(path: Path) -> bytes:
    """A database as compressed SQL."""
    with sqlite3.connect(path) as connection:
        text = "\n".join(connection.iterdump())
    connection.close()
    return gzip.compress(text.encode(), mtime=0)


def load(content: bytes, path: Path) -> None:
    """Write such a database to a new file."""
    with sqlite3.connect(path) as connection:
        connection.executescript(gzip.decompress(content).decode())
    connection.close()


def main() -> None:
    """Write both files."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "service.db"
        found = asyncio.run(fill(f"sqlite:///{path}"))
        (FOLDER / f"{sys.argv[1]}.sql.gz").write_bytes(dump(path))
    text = json.dumps(found, separators=(",", ":"))
    (FOLDER / f"{sys.argv[1]}.json").write_text(text.replace('{"path"', '\n{"path"') + "\n")


if __name__ == "__main__":
    main()
