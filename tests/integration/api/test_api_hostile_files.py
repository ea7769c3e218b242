"""Files that are small when they are sent and large when they are read: each is refused or fits."""

from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from tests.support.api import Api, running_api
from tests.support.hostile_files import EXECUTED, EXPERIMENTS, Hostile, hostile_files
from tests.support.storage import sqlite_url

FILES = dict(hostile_files())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Api]:
    async with running_api(
        sqlite_url(tmp_path_factory.mktemp("hostile") / "service.db")
    ) as running:
        for each in EXPERIMENTS:
            created = await running.http.post("/experiments", json=each)
            assert created.status_code == 201, created.text
        yield running


def test_there_are_many():
    assert len(FILES) >= 60


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", FILES)
async def test_a_hostile_file_is_refused_or_fits(name: str, api: Api):
    EXECUTED.unlink(missing_ok=True)
    make: Callable[[], Hostile] = FILES[name]
    file = make()
    answer = await api.http.post(
        file.path, params=file.params, content=file.content, headers={"Content-Type": file.media}
    )
    assert answer.status_code in file.answers, answer.text
    assert not EXECUTED.exists()
    if answer.status_code >= 400:
        assert answer.json()["type"].startswith("/problems/")
