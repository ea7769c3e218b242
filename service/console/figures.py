"""What the pages of an experiment show, from the same answers that the API gives."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from model import Domain
from service.experiment_spec import ExperimentSpec
from service.pages.lights import Light
from service.pages.rendering import Tile
from service.records import Experiment, RewardRange
from service.reporting.advice import LIGHTS, NOT_JUDGED, target_rewards_text
from service.reporting.figures import light_of, number, reward_text
from service.reporting.transfer_history import what_and_why
from service.routes.browsing.learning import learning_answer
from service.routes.experiments import state_answer
from service.routes.transfer import transfer_answer
from service.services import Services

POINTS, FEW_POINTS = 40, 16
FEWEST_REWARDS = 5  # of a point: the mean of one or two says nothing
MOST_ARMS = 20  # in the table of arms
MOST_OUTCOMES = 12
RECENT = 5  # points of the curve whose mean is the present reward
MARKS: Mapping[str, Light] = {
    "encoder_activated": Light.GOOD,
    "encoder_promoted": Light.GOOD,
    "version_restored": Light.CAUTION,
    "encoder_refused": Light.BAD,
    "encoder_waits": Light.CAUTION,
}


@dataclass(frozen=True, slots=True)
class Facts:
    """An experiment with the answers of its state, its transfer and its learning."""

    experiment: Experiment
    spec: ExperimentSpec
    state: Mapping[str, Any]
    transfer: Mapping[str, Any]
    learning: Mapping[str, Any]

    @property
    def word(self) -> str:
        """The verdict in a word."""
        verdict = self.transfer["verdict"]
        return str(verdict["word"]) if verdict else NOT_JUDGED

    @property
    def light(self) -> Light:
        return LIGHTS[self.word]

    @property
    def points(self) -> list[dict[str, Any]]:
        """The learning curve, whose points have enough rewards for a mean."""
        return joined(self.learning["points"])

    @property
    def means(self) -> list[float]:
        """Mean rewards along the log, in their unit."""
        return [self.spec.unit.in_unit(each["mean"]) for each in self.points]

    @property
    def present_reward(self) -> float | None:
        """The mean of the newest rewards."""
        recent = self.points[-RECENT:]
        count = sum(each["rewards"] for each in recent)
        total = sum(each["rewards"] * each["mean"] for each in recent)
        return self.spec.unit.in_unit(total / count) if count else None

    @property
    def expected(self) -> Mapping[str, float] | None:
        """The expected reward in the target and its lower bound, in its unit."""
        found = self.transfer["expected"]
        if found is None:
            return None
        return {name: self.spec.unit.in_unit(value) for name, value in found.items()}


def joined(points: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The points, each joined with those after it until it has enough rewards."""
    found: list[dict[str, Any]] = []
    for each in points:
        if found and found[-1]["rewards"] < FEWEST_REWARDS:
            found[-1] = _joined(found[-1], each)
        else:
            found.append(dict(each))
    if len(found) > 1 and found[-1]["rewards"] < FEWEST_REWARDS:
        *found, before, last = found
        found.append(_joined(before, last))
    return found


def _joined(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    rewards = before["rewards"] + after["rewards"]
    sums = {
        name: before["rewards"] * before[name] + after["rewards"] * after[name]
        for name in ("mean", "regret")
        if before[name] is not None
    }
    means = {name: total / rewards for name, total in sums.items()}
    return {**before, **means, "offset": after["offset"], "rewards": rewards}


async def facts_of(services: Services, experiment: Experiment, points: int = POINTS) -> Facts:
    """The facts of an experiment."""
    return Facts(
        experiment,
        ExperimentSpec.of(experiment),
        await state_answer(services, experiment),
        await transfer_answer(services, experiment),
        await learning_answer(services, experiment, Domain.SOURCE, points),
    )


def tiles(facts: Facts) -> list[Tile]:
    """The figures that stand out."""
    counts, state = facts.state["counts"], facts.state
    return [
        _expected(facts),
        Tile(
            "Source reward",
            number(facts.present_reward),
            f"Mean of the newest rewards, of {counts['source_rewards']:,} in all.",
        ),
        Tile("Target contexts", f"{counts['target_contexts']:,}", target_rewards_text(counts)),
        Tile(
            "Policy",
            f"version {state['policy_version']}",
            f"Encoder {state['encoder_version']}. {_training(state)}",
        ),
    ]


def _expected(facts: Facts) -> Tile:
    found, title = facts.expected, "Expected in the target"
    if found is None:
        return Tile(title, "–", "Known once an encoder's transfer has been judged.")
    meaning = f"At least {number(found['lower'])}. Estimated without target rewards."
    light = light_of("expected_reward", facts.transfer["expected"]["reward"])
    return Tile(title, number(found["reward"]), meaning, light)


def _training(state: Mapping[str, Any]) -> str:
    training = state["training"]
    if training["status"] == "failing":
        return "Learning fails."
    if training["running"]:
        return f"Update {training['running']['episode']} is training."
    due = training["due_updates"]
    if due:
        return f"{due} updates are due."
    return f"{state['lag']:,} events to learn." if state["lag"] else "All events are learned."


def arm_rows(facts: Facts) -> list[dict[str, Any]]:
    """The most chosen arms with their share of the decisions and their mean reward."""
    arms = facts.learning["arms"]
    total = sum(each["decisions"] for each in arms) or 1
    return [
        {
            "name": each["arm"],
            "share": each["decisions"] / total,
            "mean": reward_text(each["mean"], facts.spec.unit),
        }
        for each in arms[:MOST_ARMS]
    ]


def outcomes(facts: Facts, candidates: Sequence[int]) -> list[dict[str, Any]]:
    """What became of trained encoders, and acts on encoders, the newest first.

    `candidates` are the episodes that may be promoted.
    """
    newest = list(reversed(facts.transfer["gate"]))[:MOST_OUTCOMES]
    return [_outcome(facts.spec.unit, each, candidates) for each in newest]


def _outcome(
    unit: RewardRange, entry: Mapping[str, Any], candidates: Sequence[int]
) -> dict[str, Any]:
    details = entry["details"]
    verdict = details.get("verdict") or {}
    episode = details.get("episode")
    what, why = what_and_why(entry)
    kept = episode if episode in candidates and entry["what"] != "encoder_promoted" else None
    return {
        "light": MARKS.get(entry["what"], Light.UNKNOWN),
        "what": what,
        "number": f"update {episode}" if episode else f"version {details.get('version', '')}",
        "at": entry["at"],
        "offset": entry["offset"],
        "before": reward_text(verdict.get("reward_before"), unit),
        "after": reward_text(verdict.get("reward"), unit),
        "why": why,
        "can_promote": kept,
    }
