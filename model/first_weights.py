"""First weights of modules as a function of a seed, whatever the other threads do.

Torch's modules draw them from the generator that all threads of a process share.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from model.randomness import derived_seed

_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def first_weights(seed: int, *names: object) -> Iterator[None]:
    """In this block modules draw by the seed and the names; the generator is then as it was before.

    Whatever builds modules does so in such a block, or it takes draws from those who do.
    """
    with _ONE_AT_A_TIME, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derived_seed(seed, *names))
        yield
