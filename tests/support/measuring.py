"""Times that tests measure. Only `make test-all` holds them to their limits, and prints them.

A busy machine is slow and not wrong: `make test` checks what happens, `--measure` also how fast.
"""

import math
from collections.abc import Sequence

import pytest

OPTION = "--measure"
_lines = pytest.StashKey[list[str]]()


class Measured:
    """The measurements of a test."""

    def __init__(self, test: str, lines: list[str], *, is_held: bool) -> None:
        self._test = test
        self._lines = lines
        self.is_held = is_held

    def at_most(self, what: str, value: float, limit: float) -> None:
        """Note a value that should not exceed its limit; fails if it does and times are measured."""
        self._lines.append(f"{self._test}: {what} {value:.4g}, limit {limit:g}")
        assert value <= limit or not self.is_held, self._lines[-1]


def percentile(values: Sequence[float], percent: float) -> float:
    """The percentile: the smallest value that `percent` of all values do not exceed."""
    rank = math.ceil(percent / 100 * len(values))
    return sorted(values)[max(rank, 1) - 1]


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that measure, which `make test-all` runs alone."""
    for item in items:
        if isinstance(item, pytest.Function) and "measured" in item.fixturenames:
            item.add_marker(pytest.mark.quiet)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, action="store_true", help="hold measured times to their limits")


@pytest.fixture
def measured(request: pytest.FixtureRequest) -> Measured:
    """Takes what a test measures."""
    lines = request.config.stash.setdefault(_lines, [])
    return Measured(request.node.name, lines, is_held=request.config.getoption(OPTION))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if config.getoption(OPTION):
        terminalreporter.section("measured")
        for line in config.stash.get(_lines, []):
            terminalreporter.line(line)
