"""The first weights of a module are drawn by a seed, not from torch's global generator."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from model.randomness import derived_seed

_ONE_AT_A_TIME = threading.RLock()  # torch has one generator for all threads


@contextmanager
def first_weights(seed: int, *names: object) -> Iterator[None]:
    """Modules built in this block draw by the seed and the names; then the generator is as before.

    Every module is built in such a block, or it would change the draws of others.
    """
    with _ONE_AT_A_TIME, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derived_seed(seed, *names))
        yield
