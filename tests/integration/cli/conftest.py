"""Commands run in the tests' own process."""

import pytest

from tests.support.waiting import PATIENT_ENVIRONMENT


@pytest.fixture(scope="module", autouse=True)
def _keeps_logging(keeps_logging: None) -> None:
    """No command changes the logging of the tests after it."""


@pytest.fixture(autouse=True)
def _is_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No command gives up on a busy machine."""
    for name, value in PATIENT_ENVIRONMENT.items():
        monkeypatch.setenv(f"DABAND_{name}", value)
