"""The verdict on transfer: aligned, weak, or do not trust, with its reasons.

Unlabeled data cannot show that arms were matched correctly: after a large shift, a target with permuted
classes looks the same. So a large raw shift alone gives `weak`, however well the latents align. A target
with the source's contexts but other rewards cannot be detected at all.
"""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

# Pairs: beyond the first limit the verdict is `weak`, beyond the second `do not trust`.
RAW_LIMIT = 0.9  # domain accuracy on raw contexts: above it the supports hardly overlap
LATENT_LIMITS = (0.7, 0.9)  # domain accuracy on latents
ARM_PRIOR_LIMITS = (0.3, 0.6)  # distance of the predicted arm priors
CONFIDENCE_LIMITS = (0.5, 0.2)  # lower limits of the mean confidence on the target
LEAST_EXPLAINED = (0.25, 0.05)  # explained fraction of the variance of held-out source rewards
LEAST_RANK = 1.5  # effective rank of target latents
LEAST_ROUNDS = 64  # held-out source rounds, and target contexts


class Word(StrEnum):
    """The verdict in one word."""

    ALIGNED = "aligned"
    WEAK = "weak"
    DO_NOT_TRUST = "do not trust"


@dataclass(frozen=True, slots=True)
class Signs:
    """The label-free figures that the verdict is based on."""

    domain_accuracy: float
    raw_domain_accuracy: float
    share_distance: float
    mean_confidence: float
    source_explained: float
    target_rank: float
    held_out_rounds: int
    target_contexts: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class TransferVerdict:
    """The word and the reasons why it is not better."""

    word: Word
    reasons: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return {"word": self.word.value, "reasons": list(self.reasons)}


def judged(signs: Signs) -> TransferVerdict:
    """The verdict on these signs: the worst of all of them."""
    worst = Word.ALIGNED
    reasons = []
    for word, reason in (*_on_domains(signs), *_on_decisions(signs), *_on_data(signs)):
        reasons.append(reason)
        if word is Word.DO_NOT_TRUST or worst is Word.ALIGNED:
            worst = word
    return TransferVerdict(worst, tuple(reasons))


def _on_domains(signs: Signs) -> list[tuple[Word, str]]:
    found = []
    word = _beyond(signs.domain_accuracy, LATENT_LIMITS)
    if word:
        found.append(
            (
                word,
                f"a classifier separates the domains' latents in {signs.domain_accuracy:.0%} of cases",
            )
        )
    if signs.raw_domain_accuracy > RAW_LIMIT:
        reason = (
            f"a classifier separates raw contexts in {signs.raw_domain_accuracy:.0%} of cases: the shift "
            "is large, and unlabeled data cannot show that arms were matched correctly"
        )
        found.append((Word.WEAK, reason))
    return found


def _on_decisions(signs: Signs) -> list[tuple[Word, str]]:
    found = []
    word = _beyond(signs.share_distance, ARM_PRIOR_LIMITS)
    if word:
        found.append((word, f"arm priors of the domains differ by {signs.share_distance:.2f}"))
    word = _below(signs.mean_confidence, CONFIDENCE_LIMITS)
    if word:
        found.append((word, f"mean confidence on the target is {signs.mean_confidence:.2f}"))
    if signs.target_rank < LEAST_RANK:
        found.append(
            (Word.DO_NOT_TRUST, f"target latents collapsed: effective rank {signs.target_rank:.2f}")
        )
    return found


def _on_data(signs: Signs) -> list[tuple[Word, str]]:
    found = []
    word = _below(signs.source_explained, LEAST_EXPLAINED)
    if word:
        explained = max(0.0, signs.source_explained)
        found.append((word, f"the source itself is poorly predicted: {explained:.0%} explained"))
    if min(signs.held_out_rounds, signs.target_contexts) < LEAST_ROUNDS:
        counts = f"{signs.held_out_rounds} held-out rounds, {signs.target_contexts} target contexts"
        found.append((Word.WEAK, f"too little data: {counts}"))
    return found


def _beyond(value: float, limits: tuple[float, float]) -> Word | None:
    if value > limits[1]:
        return Word.DO_NOT_TRUST
    return Word.WEAK if value > limits[0] else None


def _below(value: float, limits: tuple[float, float]) -> Word | None:
    return _beyond(-value, (-limits[0], -limits[1]))
