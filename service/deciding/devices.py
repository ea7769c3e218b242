"""Where policies are computed: warm on their device, and on the CPU once that is lost."""

import logging
from collections.abc import Callable
from weakref import WeakKeyDictionary

import numpy as np

from model import Domain, Policy

CPU = "cpu"
DEVICE_ERROR = "CUDA error"  # so begins what torch says of a GPU that no longer works

log = logging.getLogger(__name__)


class Placement:
    """Puts policies on a device, each with a copy on the CPU that takes over when it is lost.

    What a lost GPU held cannot be read any more, so the copies are made while it still works.
    """

    def __init__(self, device: str = CPU, on_loss: Callable[[], None] = lambda: None) -> None:
        self.device = device
        self._on_loss = on_loss
        self._copies: WeakKeyDictionary[Policy, Policy] = WeakKeyDictionary()

    def placed(self, make: Callable[[str], Policy]) -> Policy:
        """The policy that `make` makes for a device, ready to serve."""
        copy = make(CPU)
        if self.device == CPU:
            return warm(copy)
        try:
            policy = warm(make(self.device))
        except RuntimeError as error:
            if not self.is_lost_by(error):
                raise
            return warm(copy)
        self._copies[policy] = copy
        return policy

    def usable(self, policy: Policy) -> Policy:
        """The policy, or its copy once the device is lost."""
        return policy if self.device != CPU else self._copies.get(policy, policy)

    def is_lost_by(self, error: Exception) -> bool:
        """Whether an error says that the device is lost; the CPU is used from then on."""
        if not (isinstance(error, RuntimeError) and DEVICE_ERROR in str(error)):
            return False
        if self.device != CPU:
            self.device = CPU
            log.error("the device is lost", extra={"action": "device_lost"}, exc_info=error)
            self._on_loss()
        return True


def warm(policy: Policy) -> Policy:
    """The policy after a first pass for each domain: what is set up on first use is set up."""
    config = policy.config
    leading = (1, 1) if config.is_joint else (1,)
    contexts = np.zeros((*leading, *config.context_shape), dtype=np.float32)
    for domain in Domain:
        policy.select_many(contexts, domain, np.zeros(1, dtype=np.uint64))
    return policy
