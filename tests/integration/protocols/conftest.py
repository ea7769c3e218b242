"""A guarded service on a real socket, for the clients that other projects publish."""

import asyncio
import json
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from daband_client import Client
from model.learner import Learner
from model.state.snapshot import to_bytes
from service.app import create_app
from service.auth.keys import Scope
from service.auth.tenants import TenantScope
from service.experiment_spec import ExperimentSpec
from service.records import NewSnapshot
from service.settings import Settings
from service.storage.leases import Leases
from tests.support.api import DOSES, OFFERS, Api, running_api
from tests.support.builders import make_rounds
from tests.support.http.threaded import ThreadedServer
from tests.support.keys import ALL, bearer, make_key
from tests.support.storage import sqlite_url
from tests.support.tables import COLUMNS
from tests.support.waiting import PATIENT_SETTINGS

SPEC = ExperimentSpec.from_json("doses", json.dumps(DOSES))
MICE: dict[str, Any] = {
    **DOSES,
    "name": "mice",
    "fallback_arm": "low",
    "context": {"kind": "table", "columns": COLUMNS},
}
CELLS: dict[str, Any] = {
    **DOSES,
    "name": "cells",
    "config": {**DOSES["config"], "hidden_sizes": [4]},
    "context": {"kind": "image", "shape": [3, 6, 8]},
}
SWITCH: dict[str, Any] = {**DOSES, "name": "switch", "arms": ["true", "false"]}
OPEN = {name: value for name, value in OFFERS.items() if name != "arms"} | {"name": "open"}


@dataclass(frozen=True)
class Guarded:
    """Where the service is, and keys: of the owner, of another tenant, without the scope `target`."""

    url: str
    owner: str
    stranger: str
    weak: str
    http: httpx.Client  # one for all tests: making one costs more than most requests do
    owners: Client

    def client(self) -> AbstractContextManager[Client]:
        """The owner's client, which stays open."""
        return nullcontext(self.owners)


@pytest.fixture(scope="module")
def guarded(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """The experiments `doses` (two versions), `offers`, `mice`, `cells`, `switch` and `open` of the tenant acme."""
    path = tmp_path_factory.mktemp("protocols") / "daband.db"
    shutil.copy(sqlite_template, path)
    keys = asyncio.run(furnished(sqlite_url(path)))
    given: dict[str, Any] = {"trainer_inside": False, "auth": "required", **PATIENT_SETTINGS}
    app = create_app(Settings(database_url=sqlite_url(path), **given))
    server = ThreadedServer(app, has_fast_path=True)
    server.start()
    try:
        owner, stranger, weak = keys
        with httpx.Client() as http, Client(server.url, api_key=owner) as owners:
            yield Guarded(server.url, owner, stranger, weak, http, owners)
    finally:
        server.stop()


async def furnished(url: str) -> list[str]:
    acme = TenantScope("acme")
    keys = [
        await make_key(url, acme),
        await make_key(url, TenantScope("zenith")),
        await make_key(url, acme, ALL - {Scope.TARGET}),
    ]
    async with running_api(url, auth="required") as api:
        for declared in (DOSES, OFFERS, MICE, CELLS, SWITCH, OPEN):
            made = await api.http.post("/experiments", json=declared, headers=bearer(keys[0]))
            assert made.status_code == 201, made.text
        await save_versions(api)
    return keys


async def save_versions(api: Api) -> None:
    """Versions 1 and 2 of `doses`, which know different rounds."""
    experiment_id = (await api.services.experiments.get("acme/doses")).experiment_id
    lease = await Leases(api.services.database).acquire(experiment_id, "me")
    assert lease is not None
    config = SPEC.bandit_config()
    for version in (1, 2):
        learner = Learner(config, SPEC.seed)
        for round_ in make_rounds(config, 12, seed=version):  # fewer than a training needs
            learner.observe(round_)
        blob = to_bytes(learner, version, with_contexts=False)
        await api.services.snapshots.save(
            experiment_id,
            epoch=lease.epoch,
            expected_version=version - 1,
            snapshot=NewSnapshot(0, 0, f"sha256:{version}", blob),
        )
