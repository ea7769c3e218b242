"""Commands run in the tests' own process."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def _keeps_logging(keeps_logging: None) -> None:
    """No command changes the logging of the tests after it."""
