"""What can be seen of a vector's features without rewards, or of how far rewards have seen them.

A feature is measured, or it only says yes or no. What is measured may be distorted by a domain, and is told
by several features at once; a yes or no is a fact about a subject.
"""

import torch
from torch import Tensor

SMALLEST_SPREAD = 1e-6  # of a feature that is not taken for constant


def is_yes_or_no(contexts: Tensor) -> Tensor:
    """The features (size,) that have at most two values in contexts (n, size), n > 0."""
    is_end = (contexts == contexts.amin(dim=0)) | (contexts == contexts.amax(dim=0))
    return is_end.all(dim=0)


def shares_seen(rewarded: Tensor, contexts: Tensor) -> Tensor:
    """How far rewards can tell what features (size,) mean, between 0 and 1.

    Not at all where contexts that have rewards (n, size) do not differ; what they say of a yes or no
    counts by the share of its variance, over contexts of both domains (m, size), that they have seen.
    """
    if min(len(rewarded), len(contexts)) < 2:
        return torch.ones_like(contexts[0])
    varied, varies = rewarded.double().var(dim=0), contexts.double().var(dim=0)
    seen = (varied / varies.clamp_min(SMALLEST_SPREAD**2)).clamp_max(1.0)
    shares = torch.where(is_yes_or_no(contexts), seen, torch.ones_like(seen))
    is_constant = rewarded.amax(dim=0) - rewarded.amin(dim=0) <= SMALLEST_SPREAD
    return shares.masked_fill(is_constant, 0.0).float()


def share_measured(is_measured: Tensor, is_used: Tensor) -> Tensor:
    """The share of the features (size,) that are used which are measured: more than a yes or no."""
    return (is_measured & is_used).sum() / is_used.sum().clamp_min(1)
