"""Modules built at once in several threads get the weights that they would get alone."""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from model.learner import Learner
from model.ope.density_ratio import _even_odds
from model.state.export import exported, open_exported
from model.state.snapshot import to_bytes
from model.training.networks import Networks
from model.transfer.diagnostics import adversarial_divergence
from tests.support.builders import small_config

TIMES = 60
FEW = torch.linspace(-1, 1, 24).reshape(8, 3)
POLICY_FILE = exported(to_bytes(Learner(small_config(), seed=7), 1), {"experiment": "doses"})


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads take turns in the middle of everything."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def initial(seed: int) -> bytes:
    state = Networks.initial(small_config(), seed, torch.device("cpu")).state_dict()
    return b"".join(tensor.numpy().tobytes() for tensor in state.values())


def even_odds(seed: int) -> bytes:
    return b"".join(p.detach().numpy().tobytes() for p in _even_odds(4, seed).parameters())


def opened(_: int) -> bytes:
    context = np.zeros((1, 4), dtype=np.float32)
    return open_exported(POLICY_FILE).policy.select_target(context).scores.mean.tobytes()


def divergence(seed: int) -> float:
    return adversarial_divergence(FEW, FEW + 0.1, seed)


@pytest.mark.usefixtures("hasty_threads")
@pytest.mark.parametrize("neighbour", [initial, even_odds, opened])
def test_networks_do_not_depend_on_what_other_threads_build(neighbour: Callable[[int], object]):
    alone = [initial(seed) for seed in range(4)]
    with ThreadPoolExecutor(2) as threads, ThreadPoolExecutor(2) as others:
        beside = others.map(neighbour, range(TIMES))
        found = list(threads.map(initial, [number % 4 for number in range(TIMES)]))
        assert len(list(beside)) == TIMES
    assert [number for number, each in enumerate(found) if each != alone[number % 4]] == []


@pytest.mark.usefixtures("hasty_threads")
@pytest.mark.parametrize("judge", [even_odds, divergence])
def test_what_judges_does_not_depend_on_what_other_threads_build(judge: Callable[[int], object]):
    alone = [judge(seed) for seed in range(4)]
    with ThreadPoolExecutor(2) as threads, ThreadPoolExecutor(2) as others:
        beside = others.map(initial, range(TIMES))
        found = list(threads.map(judge, range(4)))
        assert len(list(beside)) == TIMES
    assert found == alone
