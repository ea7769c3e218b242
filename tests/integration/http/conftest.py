"""The app on an empty SQLite file, for tests of its border."""

from collections.abc import AsyncIterator

import pytest

from tests.support.api import DOSES, Api, running_api


@pytest.fixture
async def api(url: str) -> AsyncIterator[Api]:
    async with running_api(url, max_body_bytes=65536) as running:
        assert (await running.http.post("/experiments", json=DOSES)).status_code == 201
        yield running
