"""Tests that the host's other guests broke are run again; all others fail at once."""

import pytest

from tests.guard import ROOT

# A host that takes so many seconds during each test; the file counts how often it ran.
CONFTEST = """
import itertools
from pathlib import Path

import pytest

from tests import measuring

pytest_plugins = ["tests.stolen_time"]
times = itertools.count(step={stolen})
measuring._stolen_seconds = lambda: [float(next(times))]


@pytest.fixture(scope="session")
def attempt():
    path = Path("attempts")
    path.write_text(path.read_text() + "x" if path.exists() else "x")
    return len(path.read_text())


@pytest.fixture
def broken_at_first(attempt):
    assert attempt > 1


def pytest_timeout_set_timer(item, settings):
    with Path("limits").open("a") as limits:
        limits.write("x")
"""


def outcomes(
    pytester: pytest.Pytester, test: str, *, stolen: float
) -> tuple[dict[str, int], list[str]]:
    """How tests ended, and what the run says of those that it repeated."""
    pytester.makeconftest(CONFTEST.format(stolen=stolen))
    pytester.makepyfile(test)
    # A process of its own: what it takes from the host is for this host alone.
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "--timeout=600")
    return result.parseoutcomes(), [line for line in result.outlines if "the host took" in line]


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


# What both share stays for the second, unless the first is to start from nothing.
AT_FIRST = "def test_it(attempt): assert attempt > 1\ndef test_two(attempt): pass"


def test_what_fails_while_the_host_runs_others_is_run_again(pytester: pytest.Pytester):
    ended, repeated = outcomes(pytester, AT_FIRST, stolen=30)
    assert ended == {"passed": 2}
    (line,) = repeated
    assert "the host took 30 s" in line
    assert line.endswith("AssertionError")  # for whoever looks for a race


def test_the_limit_of_a_tests_time_begins_anew(pytester: pytest.Pytester):
    test = """
    from pathlib import Path

    def test_it(attempt):
        assert Path("limits").read_text() == attempt * "x"
        assert attempt > 1
    """
    ended, _ = outcomes(pytester, test, stolen=30)
    assert ended == {"passed": 1}


def test_what_fails_on_a_machine_that_ran_is_not(pytester: pytest.Pytester):
    assert outcomes(pytester, AT_FIRST, stolen=0.5) == ({"failed": 1, "passed": 1}, [])


def test_what_is_broken_fails_every_time(pytester: pytest.Pytester):
    ended, repeated = outcomes(pytester, "def test_it(attempt): assert attempt > 9", stolen=30)
    assert ended == {"failed": 1}
    assert len(repeated) == 2


def test_a_fixture_that_failed_is_made_anew(pytester: pytest.Pytester):
    ended, repeated = outcomes(pytester, "def test_it(broken_at_first): pass", stolen=30)
    assert ended == {"passed": 1}
    assert len(repeated) == 1


def test_what_passes_is_not_repeated(pytester: pytest.Pytester):
    test = "def test_it(attempt): pass\ndef test_two(attempt): assert attempt == 1"
    assert outcomes(pytester, test, stolen=30) == ({"passed": 2}, [])
