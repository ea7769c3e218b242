"""Databases of earlier builds: their experiments keep every answer that they gave, and go on."""

import dataclasses
import json
import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from model.config import RECIPE, BanditConfig
from service.experiment_spec import ExperimentSpec
from service.learning.replay import replay
from service.learning.restore import FIRST_RECIPE
from service.storage import tables
from service.storage.backup.backup import backup, restore
from service.storage.database import Database
from tests.oracles.make_database import FOLDER, ROUNDS, TRAINING, idle_state, load, play, repeat
from tests.support.api import Api, running_api
from tests.support.storage import PATIENT, sqlite_url

DATABASES = sorted(FOLDER.glob("*.sql.gz"))
PLAYED = ("doses", "linear")


class OldDatabase:
    """A database of an earlier build in a file, and what that build said."""

    def __init__(self, stored: Path, path: Path) -> None:
        load(stored.read_bytes(), path)
        self.url = sqlite_url(path)
        text = stored.with_name(stored.name.replace(".sql.gz", ".json")).read_text()
        self.payload: dict[str, Any] = json.loads(text)


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
        await repeat(api.http, old.payload["requests"])


@pytest.mark.parametrize("name", PLAYED)
async def test_the_target_policy_decides_as_it_did(old: OldDatabase, name: str):
    asked = old.payload["target"][name]
    async with running_api(old.url) as api:
        found = (await api.http.post(asked["path"], json=asked["body"])).json()
    received = asked["answer"]
    for field in ("policy_version", "encoder_version"):
        assert found[field] == received[field]
    pairs = zip(found["decisions"], received["decisions"], strict=True)
    for now, before in pairs:
        assert now["arm"] == before["arm"]
        figures = ("mean", "bonus")  # the confidence is not that of earlier recipes
        expected = [before[each] for each in figures]
        np.testing.assert_allclose([now[each] for each in figures], expected, rtol=1e-4, atol=1e-5)


async def test_the_configuration_in_force_is_what_that_build_took_the_method_for(
    old: OldDatabase,
):
    async with running_api(old.url) as api:
        found = {each.name: each for each in await api.services.experiments.list()}
        shown = (await api.http.get("/experiments")).json()["experiments"]
    stored = {name: json.loads(each.config or "") for name, each in found.items()}
    assert stored == old.payload["configs"]
    recipe = old.payload.get("recipe", FIRST_RECIPE)
    assert {each.recipe for each in found.values()} == {recipe}
    assert {each["recipe"] for each in shown} == {recipe}


def test_every_field_that_was_ever_stored_is_there_or_retired(old: OldDatabase):
    """A field that goes needs a rule in `RECIPE.retired` that says where it mattered."""
    fields = {field.name for field in dataclasses.fields(BanditConfig)}
    retired = {each.name for each in RECIPE.retired}
    for config in old.payload["configs"].values():
        assert config.keys() <= fields | retired


@pytest.mark.parametrize("name", PLAYED)
async def test_a_log_whose_recipe_is_gone_is_folded_again_once_and_backed_up(
    old: OldDatabase, name: str, tmp_path: Path, sqlite_template: Path
):
    file, restored = tmp_path / "backup.gz", tmp_path / "restored.db"
    async with running_api(old.url) as api:
        values = {**old.payload["configs"][name], "old_trick": True}
        statement = sa.update(tables.experiments).where(tables.experiments.c.name == name)
        changed = statement.values(config=json.dumps(values), recipe=0)
        await api.services.database.write(lambda connection: connection.execute(changed))
    async with running_api(old.url, **TRAINING) as api:
        await play(api.http, name, ROUNDS, start=ROUNDS)
        state = await idle_state(api.http, name)
        assert state["counts"]["source_rewards"] == 2 * ROUNDS
        assert await is_replayed(api, name)
        answers = [
            await api.http.post(each["path"], json=each["body"]) for each in old.payload["requests"]
        ]
        selects = [each.json() for each in answers if "request_id" in each.json()]
        assert selects == [
            each["answer"] for each in old.payload["requests"] if each["path"] == "/select"
        ]
        await backup(api.services.database, file)
    shutil.copy(sqlite_template, restored)
    database = await Database.open(sqlite_url(restored), PATIENT)
    await restore(database, file)
    await database.close()
    async with running_api(sqlite_url(restored), **TRAINING) as api:
        await play(api.http, name, 1, start=2 * ROUNDS)
        await idle_state(api.http, name)
        assert await is_replayed(api, name)
        entries = (await api.http.get(f"/experiments/{name}/audit")).json()["entries"]
    (received,) = [each["details"] for each in entries if each["what"] == "log_folded_again"]
    assert received["reasons"][-1] == "this feature was removed: old_trick"
    assert (received["recipe_before"], received["recipe"]) == (0, RECIPE.version)


@pytest.mark.parametrize("name", PLAYED)
async def test_an_experiment_goes_on_where_it_was(
    old: OldDatabase, name: str, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, "service.learning.training_loop")
    before = old.payload["states"][name]
    async with running_api(old.url, **TRAINING) as api:
        lost = ExperimentSpec.of(await api.services.experiments.get(name)).lost
        # Another kind of processor adds up otherwise: its replay of the earlier part would differ.
        is_comparable = bool(lost) or await is_replayed(api, name)
        await play(api.http, name, ROUNDS, start=ROUNDS)
        after = await idle_state(api.http, name)
        assert after["counts"]["source_rewards"] == 2 * ROUNDS
        assert after["episode"] > before["episode"]
        assert not is_comparable or await is_replayed(api, name)
    lines = [vars(each) for each in caplog.records]
    begun = [each for each in lines if each.get("action") == "leadership_begun"]
    first = next(each for each in begun if each["experiment"] == name)
    assert first["offset"] == (0 if lost else before["folded_offset"])
