"""The figures of a report: what each means, its threshold and its light."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from model import SIGN_LIMITS
from service.experiment_spec import ExperimentSpec
from service.pages.lights import Light
from service.pages.rendering import Table
from service.records import RewardRange
from service.reporting.advice import LIGHTS

TITLES = ("setting", "value", "meaning")
LONGEST = 60  # characters of a setting's value


@dataclasses.dataclass(frozen=True, slots=True)
class Sign:
    """A figure behind the verdict: its title, its format and its meaning."""

    title: str
    format: str
    meaning: str


SIGNS: Mapping[str, Sign] = {
    "expected_reward": Sign(
        "Expected reward in the target",
        ".2f",
        "The mean confidence of the decisions, from 0 to 1; for exclusive rewards the share of right ones.",
    ),
    "far_share": Sign(
        "Target contexts far from the source",
        ".0%",
        "How many target contexts are unlike any source context, by their raw numbers.",
    ),
    "share_distance": Sign(
        "Distance of the arm mixes",
        ".2f",
        "How far the mix of recommended arms differs between source and target; 0 is the same mix, 1 is "
        "no arm in common.",
    ),
    "source_skill": Sign(
        "Skill on the source",
        ".1f",
        "How well the model orders held-out source rewards, in standard errors above chance: what is not "
        "learned cannot transfer.",
    ),
    "target_rank": Sign(
        "Effective rank of the target",
        ".2f",
        "In how many directions encoded target contexts vary; 1 means that all look the same.",
    ),
    "independent_members": Sign(
        "Independent members",
        ",.0f",
        "Members of the ensemble that are not aligned. The expected reward falls if they agree less often on "
        "the target than on the source.",
    ),
    "unpaid_arms": Sign(
        "Arms never paid",
        ",.0f",
        "Arms that no source reward above 0 is known of: nothing says when they are best.",
    ),
    "held_out_rounds": Sign(
        "Held-out source rounds",
        ",.0f",
        "Rounds that trained no encoder; the figures rest on them.",
    ),
    "target_contexts": Sign(
        "Target contexts judged", ",.0f", "Target contexts that the figures rest on; at most 512."
    ),
}
# Of each diagnostic: whether it is a difference of rewards, and its meaning.
DIAGNOSTICS: Mapping[str, tuple[str, bool, str]] = {
    "source_regret": (
        "Source regret",
        True,
        "By how much the best reward exceeds the mean source reward: an upper estimate.",
    ),
    "regression_error": (
        "Regression error",
        True,
        "Mean error of the predicted rewards of held-out source rounds.",
    ),
    "divergence": (
        "Divergence",
        True,
        "How differently two reward models can disagree on the two domains.",
    ),
    "predicted_reward": (
        "Predicted reward",
        True,
        "Mean predicted reward of the best arm in the target, above the lowest reward.",
    ),
    "domain_accuracy": (
        "Domain accuracy",
        False,
        "How often a fresh classifier recognises the domain of an encoded context; 0.5 is by chance. Half of "
        "an ensemble is not aligned on purpose, so it may be high where decisions are right.",
    ),
    "proxy_a_distance": (
        "Proxy A-distance",
        False,
        "Separability of the encoded domains: 0 is alike, 2 is separable.",
    ),
    "target_entropy": (
        "Target entropy",
        False,
        "Uncertainty about the best arm of a target context, in nats; low is certain.",
    ),
    "target_density": (
        "Target density",
        False,
        "How clustered encoded target contexts are; high is clustered.",
    ),
    "source_rank": (
        "Effective rank of the source",
        False,
        "In how many directions encoded source contexts vary.",
    ),
}
COUNTS: Mapping[str, str] = {
    "decisions": "Decisions in the log, of both domains.",
    "source_rewards": "Rewards of source decisions.",
    "folded_rewards": "Rewards that the policy has learned from.",
    "target_contexts": "Unlabeled contexts of the target.",
    "target_rewards": "Rewards of target decisions; none until a person opens the target.",
    "source_contexts": "Contexts of the source.",
}


def number(value: float | None) -> str:
    """A number for people: four digits, or a dash for None."""
    if value is None:
        return "–"
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return text.replace("-", "−", 1)


def reward_text(value: float | None, unit: RewardRange) -> str:
    """A reward in the unit of the outcomes, or a dash for None."""
    return number(None if value is None else unit.in_unit(value))


def light_of(name: str, value: float) -> Light:
    """The light of a sign."""
    return LIGHTS[SIGN_LIMITS[name].word(value)]


def limits_text(name: str) -> str:
    """The thresholds of a sign in words."""
    limit, form = SIGN_LIMITS[name], SIGNS[name].format
    good, bad = ("from", "below") if limit.is_minimum else ("up to", "above")
    parts = ((f"good {good}", limit.weak), (f"bad {bad}", limit.untrusted))
    return ", ".join(f"{text} {value:{form}}" for text, value in parts if value is not None)


def signs_table(signs: Mapping[str, Any]) -> Table:
    """Each figure behind the verdict with light, threshold and meaning."""
    rows = [
        (
            sign.title,
            f"{signs[name]:{sign.format}}",
            light_of(name, signs[name]),
            limits_text(name),
            sign.meaning,
        )
        for name, sign in SIGNS.items()
        if name in signs  # earlier builds had others
    ]
    return Table(("figure", "value", "light", "threshold", "meaning"), rows, {1}, {4})


def abstention_table(found: Sequence[Mapping[str, Any]], unit: RewardRange) -> Table:
    """How much is decided above each confidence floor, and what these decisions are expected to earn."""
    rows = [
        (
            f"{each['confidence_floor']:.1f}",
            f"{each['decided_share']:.0%}",
            reward_text(each["expected_reward"], unit),
        )
        for each in found
    ]
    return Table(("confidence floor", "share decided", "expected reward of these"), rows, {0, 1, 2})


def diagnostics_table(found: Mapping[str, float], unit: RewardRange) -> Table:
    """Each diagnostic with its meaning."""
    rows = [
        (title, number(found[name] * (unit.width if is_reward else 1.0)), meaning)
        for name, (title, is_reward, meaning) in DIAGNOSTICS.items()
    ]
    return Table(("term", "value", "meaning"), rows, {1}, {2})


def counts_table(counts: Mapping[str, int]) -> Table:
    """How much data there is."""
    rows = [
        (name.replace("_", " "), f"{count:,}", COUNTS.get(name, ""))
        for name, count in counts.items()
    ]
    return Table(("data", "count", "meaning"), rows, {1}, {2})


def declaration_table(spec: ExperimentSpec) -> Table:
    """What was declared for this experiment."""
    rows = [*_declared(spec), *(row for row in _values(spec) if row[0] in spec.config)]
    return Table(TITLES, rows, (), {2})


def configuration_table(spec: ExperimentSpec) -> Table:
    """Every value in force."""
    return Table(TITLES, list(_values(spec)), (), {2})


def _declared(spec: ExperimentSpec) -> Iterator[tuple[str, str, str]]:
    yield "method", spec.method, "the system that learns"
    yield "recipe", str(spec.recipe), "the version of the method's default values"
    yield "seed", str(spec.seed), "every random draw follows from it"
    yield "arms", shortened(", ".join(spec.arms)), "what can be chosen"
    if spec.table is not None:
        columns = ", ".join(each.name for each in spec.table.columns)
        yield "columns", shortened(columns), "the columns of a context"
    if spec.reward_range is not None:
        low, high = map(number, spec.reward_range)
        yield "reward_range", f"{low} to {high}", "the unit of rewards; the model sees 0 to 1"
    if spec.fallback_arm is not None:
        yield "fallback_arm", spec.fallback_arm, "answered where the policy abstains"


def _values(spec: ExperimentSpec) -> Iterator[tuple[str, str, str]]:
    config = spec.bandit_config()
    for each in dataclasses.fields(config):
        value = shortened(value_text(getattr(config, each.name)))
        yield each.name, value, each.metadata["meaning"]


def value_text(value: Any) -> str:
    """A value of a column or of a setting."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " × ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def shortened(text: str, length: int = LONGEST) -> str:
    """A text of at most this many characters."""
    return text if len(text) <= length else f"{text[: length - 1]}…"
