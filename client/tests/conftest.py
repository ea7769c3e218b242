"""Tests of the client. Those in `server/` are run where `DABAND_TEST_URL` names a running service."""

import os
import sys
from typing import Any

import pytest

SERVER = "DABAND_TEST_URL"
collect_ignore = [] if SERVER in os.environ else ["server"]


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DABAND_URL", "DABAND_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def url() -> str:
    return os.environ[SERVER]


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make packages look as if they were not installed."""

    def hide(*names: str) -> None:
        for name in names:
            monkeypatch.setitem(sys.modules, name, None)

    return hide
