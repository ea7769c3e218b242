"""Databases of earlier builds: their experiments keep every answer that they gave, and go on."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.learning.replay import replay
from tests.api_tools import Api, running_api
from tests.oracles.make_database import FOLDER, ROUNDS, TRAINING, load, play, settled
from tests.storage_tools import sqlite_url

DATABASES = sorted(FOLDER.glob("*.sql.gz"))
PLAYED = ("doses", "linear")


class OldDatabase:
    """A database of an earlier build in a file, and what that build said."""

    def __init__(self, stored: Path, path: Path) -> None:
        load(stored.read_bytes(), path)
        self.url = sqlite_url(path)
        text = stored.with_name(stored.name.replace(".sql.gz", ".json")).read_text()
        self.said: dict[str, Any] = json.loads(text)


@pytest.fixture(params=DATABASES, ids=lambda path: path.name.removesuffix(".sql.gz"))
def old(request: pytest.FixtureRequest, tmp_path: Path) -> OldDatabase:
    return OldDatabase(request.param, tmp_path / "service.db")


async def is_replayed(api: Api, name: str) -> bool:
    experiment = await api.services.experiments.get(name)
    services = api.services
    report = await replay(experiment, services.event_log, services.snapshots, services.candidates)
    return report.is_equal and report.version > 0


def test_there_are_databases_of_earlier_builds():
    assert DATABASES


async def test_the_same_request_ids_are_answered_the_same(old: OldDatabase):
    async with running_api(old.url) as api:
        for each in old.said["requests"]:
            answer = await api.http.post(each["path"], json=each["body"])
            told = {**each["answer"], "status": "already_recorded"}
            expected = told if each["path"] == "/reward" else each["answer"]
            assert (answer.status_code, answer.json()) == (200, expected)


@pytest.mark.parametrize("name", PLAYED)
async def test_the_target_policy_decides_as_it_did(old: OldDatabase, name: str):
    asked = old.said["target"][name]
    async with running_api(old.url) as api:
        found = (await api.http.post(asked["path"], json=asked["body"])).json()
    told = asked["answer"]
    for field in ("policy_version", "encoder_version"):
        assert found[field] == told[field]
    pairs = zip(found["decisions"], told["decisions"], strict=True)
    for now, before in pairs:
        assert now["arm"] == before["arm"]
        figures = ("mean", "bonus", "transfer_confidence")
        expected = [before[each] for each in figures]
        np.testing.assert_allclose([now[each] for each in figures], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", PLAYED)
async def test_an_experiment_goes_on_where_it_was(
    old: OldDatabase, name: str, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, "service.learning.training_loop")
    before = old.said["states"][name]
    async with running_api(old.url, **TRAINING) as api:
        # Another kind of processor adds up otherwise: its replay of the earlier part would differ.
        is_same_arithmetic = await is_replayed(api, name)
        await play(api, name, ROUNDS, start=ROUNDS)
        after = await settled(api, name)
        assert after["counts"]["source_rewards"] == 2 * ROUNDS
        assert after["episode"] > before["episode"]
        assert not is_same_arithmetic or await is_replayed(api, name)
    lines = [vars(each) for each in caplog.records]
    begun = [each for each in lines if each.get("action") == "leadership_begun"]
    first = next(each for each in begun if each["experiment"] == name)
    assert first["offset"] == before["folded_offset"]
