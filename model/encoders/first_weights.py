"""Initial weights of modules are drawn by a seed, independently of torch's global generator."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from model.randomness import derived_seed

_ONE_AT_A_TIME = threading.RLock()  # torch has one generator for all threads


@contextmanager
def first_weights(seed: int, *names: object) -> Iterator[None]:
    """Draw the weights of modules built in this block by the seed and the names.

    Afterwards torch's generator is as before. Every module must be built in such a block.
    """
    with _ONE_AT_A_TIME, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derived_seed(seed, *names))
        yield
