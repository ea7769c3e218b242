"""The verdict on transfer: aligned, weak, or do not trust, with its reasons.

Unlabeled data cannot show that arms were matched correctly: after a large shift, a target with permuted
classes looks the same. So a large raw shift alone gives `weak`, however well the latents align. A target
with the source's contexts but other rewards cannot be detected at all.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Word(StrEnum):
    """The verdict in one word."""

    ALIGNED = "aligned"
    WEAK = "weak"
    DO_NOT_TRUST = "do not trust"


@dataclass(frozen=True, slots=True)
class SignLimit:
    """Beyond `weak` a sign makes the verdict weak, beyond `untrusted` it makes it `do not trust`."""

    weak: float | None = None
    untrusted: float | None = None
    is_minimum: bool = False  # whether beyond means below

    def word(self, value: float) -> Word:
        """What this sign alone says."""
        if self._is_beyond(value, self.untrusted):
            return Word.DO_NOT_TRUST
        return Word.WEAK if self._is_beyond(value, self.weak) else Word.ALIGNED

    def _is_beyond(self, value: float, limit: float | None) -> bool:
        if limit is None:
            return False
        return value < limit if self.is_minimum else value > limit


# By the names of `Signs`. Raw contexts above their limit hardly overlap.
SIGN_LIMITS: Mapping[str, SignLimit] = {
    "domain_accuracy": SignLimit(weak=0.7, untrusted=0.9),
    "raw_domain_accuracy": SignLimit(weak=0.9),
    "share_distance": SignLimit(weak=0.3, untrusted=0.6),
    "mean_confidence": SignLimit(weak=0.5, untrusted=0.2, is_minimum=True),
    "source_explained": SignLimit(weak=0.25, untrusted=0.05, is_minimum=True),
    "target_rank": SignLimit(untrusted=1.5, is_minimum=True),
    "held_out_rounds": SignLimit(weak=64, is_minimum=True),
    "target_contexts": SignLimit(weak=64, is_minimum=True),
}


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
    words = {name: limit.word(getattr(signs, name)) for name, limit in SIGN_LIMITS.items()}
    worst = max(words.values(), key=list(Word).index)
    reasons = [_reason(name, signs) for name, word in words.items() if word is not Word.ALIGNED]
    return TransferVerdict(worst, tuple(dict.fromkeys(reasons)))


def _reason(name: str, signs: Signs) -> str:
    """Why a sign speaks against the transfer; both counts have one reason."""
    counts = f"{signs.held_out_rounds} held-out rounds, {signs.target_contexts} target contexts"
    reasons = {
        "domain_accuracy": "a classifier separates the domains' latents in "
        f"{signs.domain_accuracy:.0%} of cases",
        "raw_domain_accuracy": "a classifier separates raw contexts in "
        f"{signs.raw_domain_accuracy:.0%} of cases: the shift is large, and unlabeled data cannot show "
        "that arms were matched correctly",
        "share_distance": f"arm priors of the domains differ by {signs.share_distance:.2f}",
        "mean_confidence": f"mean confidence on the target is {signs.mean_confidence:.2f}",
        "source_explained": "the source itself is poorly predicted: "
        f"{max(0.0, signs.source_explained):.0%} explained",
        "target_rank": f"target latents collapsed: effective rank {signs.target_rank:.2f}",
    }
    return reasons.get(name, f"too little data: {counts}")
