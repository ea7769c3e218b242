"""The service processes that a test starts, and where they live."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
import torch

from tests.support.processes.daband import Daband, Server, serving

Process = TypeVar("Process", bound=Daband)
Adopt = Callable[[Process], Process]


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """As the service processes have it: folds are compared byte for byte."""
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with its defaults, for all tests of a file."""
    with serving(tmp_path_factory.mktemp("service")) as running:
        yield running


@pytest.fixture
def adopt() -> Iterator[Adopt[Daband]]:
    """Kills in the end what a test has started."""
    adopted: list[Daband] = []

    def keep(process: Daband) -> Daband:
        adopted.append(process)
        return process

    yield keep
    for process in adopted:
        process.remove()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a test's processes keep their data and output."""
    return tmp_path
