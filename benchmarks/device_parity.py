"""Do CPU and GPU choose the same arm? Prints, an encoder a row, how often the greedy arms differ.

Run on a machine with CUDA: `python -m benchmarks.device_parity`. A difference counts as a tie when
the two arms' UCBs on the CPU are closer than 1e-5.
"""

import sys

import numpy as np
import torch

from model.config import BanditConfig
from model.learner import Learner
from model.randomness import generator
from model.rounds import Domain, RewardedRound

CONTEXTS = 100_000
CLOSE = 1e-5
KINDS = {
    "identity": (32,),
    "scaled": (32,),
    "pca": (32,),
    "scaled-pca": (32,),
    "mlp": (32,),
    "pca-mlp": (32,),
    "committee": (32,),
    "conv": (3, 28, 28),
    "strided-conv": (3, 28, 28),
}


def main() -> None:
    """Compare all kinds of encoders; exit code 1 if an arm differs that is no tie."""
    if not torch.cuda.is_available():
        sys.exit("no CUDA device: nothing to compare")
    device = f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    print(f"{device}, {CONTEXTS:,} contexts each, as of both domains")
    worst = [differences(kind, shape) for kind, shape in KINDS.items()]
    sys.exit(any(worst))


def differences(kind: str, shape: tuple[int, ...]) -> int:
    """Rows in which the devices choose different arms that are not tied."""
    config = BanditConfig(
        arm_count=10,
        context_shape=shape,
        encoder=kind,
        tower_count=8,
        exclusive_rewards=True,
        distil_head=True,
    )
    learner = _taught(config)
    rng, differing, untied = generator(1, "parity"), 0, 0
    host, device = learner.policy(device="cpu"), learner.policy(device="cuda")
    for _ in range(0, CONTEXTS, 10_000):
        contexts = rng.standard_normal((10_000, *shape)).astype(np.float32)
        for domain in Domain:
            ours, theirs = (p.score_many(contexts, domain).ucb for p in (host, device))
            rows = np.flatnonzero(ours.argmax(1) != theirs.argmax(1))
            gap = ours[rows].max(1) - ours[rows, theirs[rows].argmax(1)]
            differing, untied = differing + len(rows), untied + int((gap > CLOSE).sum())
    print(f"{kind:12} differing arms {differing:4d}, of which no tie {untied}")
    return untied


def _taught(config: BanditConfig) -> Learner:
    learner = Learner(config.changed(episode_length=256), seed=1)
    rng = generator(2, "teach")
    contexts = rng.standard_normal((512, *config.context_shape)).astype(np.float32)
    for t, context in enumerate(contexts):
        learner.observe_context(t, Domain.TARGET, context)
        learner.observe_context(t, Domain.SOURCE, context)
        learner.observe(RewardedRound(t, Domain.SOURCE, context, t % 10, float(rng.integers(2))))
        learner.train()
    return learner


if __name__ == "__main__":
    main()
