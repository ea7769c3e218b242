"""A test that fails while the machine's host runs others is run again, and the run says so.

A virtual machine may stand still for half a minute. Whoever waits for a process, a socket or a
database then gives up, and the failure tells of the host, not of the code. Such a test starts
again from nothing: all fixtures are made anew. What is broken fails every time, and a test that
fails on a machine that ran is not repeated at all.
"""

from functools import partial

import pytest
from _pytest.runner import runtestprotocol

from tests.measuring import Stopwatch

ATTEMPTS = 3
STOLEN_SECONDS = 2.0  # more than any test takes for granted that it is not

_attempt = pytest.StashKey[int]()
_repeated = pytest.StashKey[list[str]]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    attempt = item.stash.setdefault(_attempt, 1)
    watch = Stopwatch()
    if attempt == 1:
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    lost, failed = watch.lost_seconds(), [each for each in reports if each.failed]
    if failed and lost > STOLEN_SECONDS and attempt < ATTEMPTS:
        where = failed[0].longreprtext.strip().rpartition("\n")[2]
        _say_later(item, f"{item.nodeid}: the host took {lost:.0f} s; {where}")
        _tear_all_down(item)
        item.stash[_attempt] = attempt + 1
        # By the hook, for the limits of a test's time to begin anew, too.
        item.ihook.pytest_runtest_protocol(item=item, nextitem=nextitem)
        return True
    for each in reports:
        item.ihook.pytest_runtest_logreport(report=each)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if repeated := config.stash.get(_repeated, []):
        terminalreporter.section("run again, for the host ran others meanwhile")
        for line in repeated:
            terminalreporter.line(line)


def _say_later(item: pytest.Item, line: str) -> None:
    item.config.stash.setdefault(_repeated, []).append(line)


def _tear_all_down(item: pytest.Item) -> None:
    """Also what later tests share: a server that did not come up in time is of no use to them."""
    teardown = partial(item.session._setupstate.teardown_exact, None)
    call = pytest.CallInfo.from_call(teardown, when="teardown")
    if call.excinfo is not None:
        # Half of what a failed test had built may be gone already.
        _say_later(item, f"  while its fixtures were torn down: {call.excinfo.value!r}")
