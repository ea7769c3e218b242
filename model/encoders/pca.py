"""Principal components from a stream of batches, in memory of (components + batch) × features."""

import numpy as np

from model.rounds import Doubles


class IncrementalPCA:
    """The leading components of all rows seen so far (the merge rule of Ross et al. 2008).

    The kept factorisation and a new batch are stacked and factored again; one extra row carries
    the shift between the two means.
    """

    def __init__(self, component_count: int) -> None:
        self.component_count = component_count
        self.sample_count = 0
        self.mean: Doubles = np.zeros(0)
        self.components: Doubles = np.zeros((0, 0))
        self._singular_values: Doubles = np.zeros(0)

    def partial_fit(self, rows: Doubles) -> None:
        """Take in a batch (n, features)."""
        count = len(rows)
        if count == 0:
            return
        batch_mean = rows.mean(axis=0)
        if self.sample_count == 0:
            self.mean, stacked = batch_mean, rows - batch_mean
        else:
            total = self.sample_count + count
            bridge = np.sqrt(self.sample_count * count / total) * (self.mean - batch_mean)
            kept = self._singular_values[:, None] * self.components
            stacked = np.vstack([kept, rows - batch_mean, bridge])
            self.mean = self.mean + (batch_mean - self.mean) * (count / total)
        _, values, components = np.linalg.svd(stacked, full_matrices=False)
        self.sample_count += count
        self._singular_values = values[: self.component_count]
        self.components = _signed(components[: self.component_count])


def _signed(components: Doubles) -> Doubles:
    """Each component with its largest entry positive, which fixes the arbitrary sign."""
    largest = np.abs(components).argmax(axis=1)
    signs = np.sign(components[np.arange(len(components)), largest])
    return np.asarray(components * signs[:, None])
