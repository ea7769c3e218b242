"""Cost of an offline evaluation: CPU seconds and peak memory over the length of the log.

    python -m benchmarks.evaluation_speed --rounds 1000000

Rounds are made batch by batch, as a reader would hand them over; making them is not counted.
"""

import argparse
import resource
import time
from collections.abc import Iterator

import numpy as np

from model.config import ContextKind
from model.ope.candidates import FixedArmCandidate, UniformCandidate
from model.ope.estimates import EvaluationOptions
from model.ope.logged import LoggedRounds
from service.evaluating.candidates import Made
from service.evaluating.evaluation import Evaluation
from service.formats.batches import ROUNDS
from service.formats.records import LogHeader

ARMS, SIZE = 10, 16
HEADER = LogHeader(
    arms=tuple(f"arm {index}" for index in range(ARMS)),
    context_kind=ContextKind.SHARED,
    context_shape=(SIZE,),
)


def made_batches(count: int) -> Iterator[LoggedRounds]:
    """A uniform log of `count` rounds, with at most one batch in memory."""
    rng = np.random.default_rng(0)
    for start in range(0, count, ROUNDS):
        n = min(ROUNDS, count - start)
        contexts = rng.standard_normal((n, SIZE), dtype=np.float32)
        arms = rng.integers(ARMS, size=n)
        yield LoggedRounds(
            contexts=contexts,
            arms=arms,
            rewards=(rng.random(n) < 0.3 + 0.04 * arms).astype(np.float64),
            propensities=np.full(n, 1 / ARMS),
            eligible=np.ones((n, ARMS), dtype=np.bool_),
            probabilities=np.full((n, ARMS), 1 / ARMS),
            versions=np.zeros(n, dtype=np.int64),
            references=np.arange(start, start + n),
            keys=rng.integers(1 << 62, size=n, dtype=np.uint64),
            segments=np.zeros(n, dtype=np.int64),
            unlabeled=contexts[:0],
            unlabeled_before=np.zeros(0, dtype=np.int64),
        )


def cost(count: int) -> tuple[float, float]:
    """CPU seconds of the evaluation alone, and the value of the best arm that it finds."""
    candidates = {"uniform": Made(UniformCandidate()), "last": Made(FixedArmCandidate(ARMS - 1))}
    evaluation = Evaluation(HEADER, candidates, EvaluationOptions(max_weight=float(ARMS)))
    seconds = 0.0
    for batch in made_batches(count):
        started = time.process_time()
        evaluation.add(batch)
        seconds += time.process_time() - started
    started = time.process_time()
    result = evaluation.result()
    seconds += time.process_time() - started
    return seconds, float(result["candidates"][0]["value"])


def main() -> None:
    """Print cost and memory for a tenth of the rounds and for all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1_000_000)
    total = parser.parse_args().rounds
    for count in (total // 10, total // 2, total):
        seconds, value = cost(count)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{count:>10,} rounds, 2 candidates: {seconds:7.2f} s CPU,"
            f" {1e6 * seconds / count:6.2f} µs a round, value {value:.4f}, peak {peak:.0f} MiB"
        )


if __name__ == "__main__":
    main()
