"""What the verdict means, and what to do next: the same words on pages and in the terminal."""

from collections.abc import Mapping
from typing import Any

from model import Word
from service.pages.lights import Light
from service.pages.rendering import Headline

NOT_JUDGED = "not judged"
LIGHTS: Mapping[str, Light] = {
    Word.ALIGNED: Light.GOOD,
    Word.WEAK: Light.CAUTION,
    Word.DO_NOT_TRUST: Light.BAD,
    NOT_JUDGED: Light.UNKNOWN,
}
MEANINGS: Mapping[str, str] = {
    Word.ALIGNED: "The target's contexts look like the source's, and the policy is confident about most of "
    "them. There is no evidence against using it, but unlabeled data cannot prove it right.",
    Word.WEAK: "Use it as a hint: some figures speak against the transfer.",
    Word.DO_NOT_TRUST: "The domains do not overlap, or the source is not learned.",
    NOT_JUDGED: "There are too few target contexts or source rewards for a judgement.",
}
_NEXT: Mapping[str, str] = {
    Word.ALIGNED: "try the arms on a few cases, and compare what they earn with the expected reward",
    Word.WEAK: "use only decisions with a high confidence, and try them on few cases first",
    Word.DO_NOT_TRUST: "do not decide by these arms: collect a few target rewards, or a closer source",
    NOT_JUDGED: "bring more rows: at least 64 of the target, and some 1,000 past rounds",
}
_NO_ENCODER = (
    "no encoder passed the gate: look at the gate's reasons, and check arms, rewards and columns"
)


def next_step(word: str, encoder_version: int, episode: int) -> str:
    """What to do; `episode` counts the trained encoders, of which none may have passed the gate."""
    if word == NOT_JUDGED and episode and not encoder_version:
        return _NO_ENCODER
    return _NEXT.get(word, _NEXT[Word.WEAK])


def headline(transfer: Mapping[str, Any], state: Mapping[str, Any]) -> Headline:
    """The verdict of the answer of `/transfer`, what it means and what to do next."""
    verdict = transfer["verdict"] or {"word": NOT_JUDGED, "reasons": ()}
    word = str(verdict["word"])
    step = next_step(word, state["encoder_version"], int(state.get("episode", 0)))
    return Headline(LIGHTS[word], word, MEANINGS[word], f"{step}.", verdict["reasons"])


def target_rewards_text(counts: Mapping[str, int]) -> str:
    """Whether the target contexts were seen with rewards."""
    rewards = counts.get("target_rewards", 0)  # absent before the first snapshot
    return f"With {rewards:,} target rewards." if rewards else "Seen without any reward."
