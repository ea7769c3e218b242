"""What is left if the policy abstains below a confidence: how much it decides, and what that earns."""

from dataclasses import dataclass

from model.rounds import Doubles

FLOORS = (0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True, slots=True)
class Abstention:
    """With this floor, the share of the target that is decided, and the expected reward of these decisions.

    Where exactly one arm pays, 1 − `expected_reward` is the risk that a decision is wrong.
    """

    confidence_floor: float
    decided_share: float
    expected_reward: float | None  # None: nothing is decided


def abstentions(confidence: Doubles) -> tuple[Abstention, ...]:
    """For each floor, from the confidences (n,) of the decisions for target contexts."""
    return tuple(_above(floor, confidence) for floor in FLOORS)


def _above(floor: float, confidence: Doubles) -> Abstention:
    decided = confidence[confidence >= floor]
    expected = float(decided.mean()) if len(decided) else None
    return Abstention(floor, len(decided) / max(1, len(confidence)), expected)
