"""The verdict on transfer: aligned, weak, or do not trust, with its reasons.

It follows the expected reward on the target, and vetoes. Unlabeled data cannot show that arms were matched
correctly: if most target contexts are unlike any source context, a target with permuted arms looks the
same. So that alone gives `weak`. A target with the source's contexts but other rewards cannot be detected.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

BOUND_MARGIN = 0.25  # the lower bound lies this far below the expected reward
_MOST_NAMED = 5  # arms in one reason


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


# By the names of `Signs`.
SIGN_LIMITS: Mapping[str, SignLimit] = {
    "expected_reward": SignLimit(weak=0.7, untrusted=0.3, is_minimum=True),
    "far_share": SignLimit(weak=0.5),
    "share_distance": SignLimit(weak=0.3),
    "source_skill": SignLimit(weak=3.0, untrusted=1.6, is_minimum=True),
    "target_rank": SignLimit(untrusted=1.5, is_minimum=True),
    "independent_members": SignLimit(weak=2, is_minimum=True),
    "unpaid_arms": SignLimit(weak=0),
    "held_out_rounds": SignLimit(weak=64, is_minimum=True),
    "target_contexts": SignLimit(weak=64, is_minimum=True),
}


@dataclass(frozen=True, slots=True)
class Signs:
    """The label-free figures that the verdict is based on."""

    expected_reward: float
    far_share: float
    share_distance: float
    source_skill: float
    target_rank: float
    independent_members: int
    unpaid_arms: int
    held_out_rounds: int
    target_contexts: int


@dataclass(frozen=True, slots=True)
class TransferVerdict:
    """The word and the reasons why it is not better."""

    word: Word
    reasons: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return {"word": self.word.value, "reasons": list(self.reasons)}


def judged(signs: Signs, unpaid_arms: Sequence[str] = ()) -> TransferVerdict:
    """The verdict on these signs: the worst of all of them. `unpaid_arms` are names for the reasons."""
    words = {name: limit.word(getattr(signs, name)) for name, limit in SIGN_LIMITS.items()}
    worst = max(words.values(), key=list(Word).index)
    reasons = _reasons(signs, unpaid_arms)
    found = [reasons[name] for name, word in words.items() if word is not Word.ALIGNED]
    return TransferVerdict(worst, tuple(dict.fromkeys(found)))


def conditions(signs: Signs, unpaid_arms: Sequence[str] = ()) -> tuple[str, ...]:
    """When the lower bound may fail, in words: what no unlabeled data of these domains can rule out."""
    found = [
        "the mix of best arms differs between the domains",
        "equal contexts have other best arms in the target",
    ]
    if SIGN_LIMITS["far_share"].word(signs.far_share) is not Word.ALIGNED:
        found[1] = (
            f"the {signs.far_share:.0%} of target contexts that are unlike any source context have other "
            "best arms than the policy infers"
        )
    if unpaid_arms:
        found.append(f"{_named(unpaid_arms)}, which the source never paid, is best in the target")
    return tuple(found)


def _reasons(signs: Signs, unpaid_arms: Sequence[str]) -> Mapping[str, str]:
    """Why each sign may speak against the transfer; both counts have one reason."""
    counts = (
        f"too little data: {signs.held_out_rounds} held-out rounds, "
        f"{signs.target_contexts} target contexts"
    )
    return {
        "expected_reward": f"the expected reward on the target is {signs.expected_reward:.2f}",
        "far_share": f"{signs.far_share:.0%} of the target contexts are unlike any source context: "
        "unlabeled data cannot show that arms were matched correctly",
        "share_distance": f"arm priors of the domains differ by {signs.share_distance:.2f}",
        "source_skill": "the source itself is hardly learned: its held-out rewards are ordered "
        f"{signs.source_skill:.1f} standard errors better than by chance",
        "target_rank": f"target latents collapsed: effective rank {signs.target_rank:.2f}",
        "independent_members": "one model decides alone: no independent members confirm its decisions",
        "unpaid_arms": f"the source never paid {_named(unpaid_arms)}",
        "held_out_rounds": counts,
        "target_contexts": counts,
    }


def _named(arms: Sequence[str]) -> str:
    shown = ", ".join(arms[:_MOST_NAMED])
    more = len(arms) - _MOST_NAMED
    return (
        f"arm {shown}" if len(arms) == 1 else f"arms {shown}" + (f" and {more} more" * (more > 0))
    )
