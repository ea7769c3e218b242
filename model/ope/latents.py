"""Latents of contexts under a stored encoder, as plain arrays."""

import numpy as np
import torch

from model.restoring import restore_networks
from model.rounds import Domain, Doubles, Floats


class StoredEncoder:
    """The encoder of a snapshot."""

    def __init__(self, blob: bytes) -> None:
        self._networks, _ = restore_networks(blob)

    def latents(self, contexts: Floats, domain: Domain) -> Doubles:
        """φ of contexts (n, *shape), (n, d)."""
        given = torch.from_numpy(np.ascontiguousarray(contexts))
        found: Doubles = self._networks.encode(given, domain).double().cpu().numpy()
        return found
