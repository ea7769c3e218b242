"""What the target's rewards fall short of the best that was declared, from the log alone."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from service.records import EventKind, StoredEvent, declared_best_reward

MAX_POINTS = 200


def target_regret(lifecycle: Sequence[StoredEvent], rewards: Sequence[float]) -> dict[str, Any]:
    """Count, cumulative regret Σ (best − r) and its curve; empty while the target is closed."""
    opened = [event for event in lifecycle if event.kind is EventKind.PHASE]
    if not opened:
        return {"rewards": 0, "best_reward": None, "cumulative": 0.0, "curve": []}
    best = declared_best_reward(opened[0])
    total = list(accumulate(best - reward for reward in rewards))
    step = max(1, -(-len(total) // MAX_POINTS))
    curve = [[count, total[count - 1]] for count in range(step, len(total) + 1, step)]
    if total and (not curve or curve[-1][0] != len(total)):
        curve.append([len(total), total[-1]])
    cumulative = total[-1] if total else 0.0
    return {"rewards": len(total), "best_reward": best, "cumulative": cumulative, "curve": curve}
