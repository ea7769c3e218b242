"""The transfer report: one self-contained HTML page, with the answer first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from model import Domain, Doubles, LatentMap, Learner, latent_map
from service.experiment_spec import ExperimentSpec
from service.pages.plot_style import HEIGHT, svg
from service.pages.rendering import Plot, Table, Tile, rendered
from service.records import UNIT, RewardRange
from service.reporting import plots
from service.reporting.advice import headline, target_rewards_text
from service.reporting.arms import ArmFigures, arm_figures, arms_lead, arms_table
from service.reporting.figures import (
    SIGNS,
    abstention_table,
    configuration_table,
    counts_table,
    declaration_table,
    diagnostics_table,
    light_of,
    limits_text,
    number,
    signs_table,
)
from service.reporting.transfer_history import what_and_why

LAST_GATES = 30
ROW_HEIGHT = 0.42  # inches, of an arm in the plot of arms


@dataclass(frozen=True, slots=True)
class ReportFacts:
    """The inputs of a report: the declaration, the answer of `/transfer`, the state, the time, remarks."""

    spec: ExperimentSpec
    transfer: Mapping[str, Any]
    state: Mapping[str, Any]
    made_at: datetime
    remarks: Sequence[str] = ()

    @property
    def versions(self) -> Sequence[Mapping[str, Any]]:
        found: Sequence[Mapping[str, Any]] = self.transfer["versions"]
        return found

    @property
    def signs(self) -> Mapping[str, Any]:
        """The figures of the newest judged encoder."""
        return self.versions[-1]["signs"] if self.versions else {}


def render(facts: ReportFacts, learner: Learner) -> str:
    """The page."""
    figures = None if facts.spec.is_per_arm else arm_figures(learner, facts.spec.unit)
    last = facts.versions[-1] if facts.versions else None
    found = latent_map(learner)
    return rendered(
        "transfer.html",
        name=facts.spec.name,
        made=_made(facts),
        answer=headline(facts.transfer, facts.state),
        tiles=_tiles(facts, figures),
        **_arms(facts, figures, found),
        abstention=abstention_table(facts.transfer["abstention"], facts.spec.unit),
        conditions=facts.transfer["conditions"],
        signs=signs_table(facts.signs) if last else None,
        judged=_judged_text(facts) if last else None,
        sign_plots=_sign_plots(facts, found),
        learning_plots=_learning_plots(facts, learner),
        unit_of_rewards=_unit_of_rewards(facts.spec.unit),
        diagnostics=diagnostics_table(last["diagnostics"], facts.spec.unit) if last else None,
        diagnostic_plots=[_diagnostic_plot(facts)],
        remarks=facts.remarks,
        counts=counts_table(facts.state["counts"]),
        gates=_gates(facts.transfer["gate"]),
        declaration=declaration_table(facts.spec),
        configuration=configuration_table(facts.spec),
    )


def _made(facts: ReportFacts) -> str:
    state = facts.state
    phase = str(state["phase"]).replace("_", "-")
    return (
        f"Made on {facts.made_at:%Y-%m-%d %H:%M} UTC. Method {facts.spec.method}, phase {phase}, policy "
        f"version {state['policy_version']}, encoder version {state['encoder_version']}, log up to offset "
        f"{state['folded_offset']}."
    )


def _tiles(facts: ReportFacts, figures: ArmFigures | None) -> list[Tile]:
    counts = facts.state["counts"]
    return [
        _expected(facts, figures),
        Tile("Source rewards", f"{counts['source_rewards']:,}", "What was learned from."),
        Tile("Target contexts", f"{counts['target_contexts']:,}", target_rewards_text(counts)),
    ]


def _expected(facts: ReportFacts, figures: ArmFigures | None) -> Tile:
    """The estimate with its bound."""
    title, found = "Expected reward in the target", facts.transfer["expected"]
    if found is None:
        return Tile(title, "–", "Known once an encoder's transfer has been judged.")
    reward, lower = (number(facts.spec.unit.in_unit(found[each])) for each in ("reward", "lower"))
    past = "" if figures is None else f" Past source rounds earned {number(figures.mean_earned)}."
    meaning = f"At least {lower}, on the conditions below. Estimated, not measured.{past}"
    return Tile(title, reward, meaning, light_of("expected_reward", found["reward"]))


def _arms(facts: ReportFacts, figures: ArmFigures | None, found: LatentMap) -> dict[str, Any]:
    if figures is None:  # in a joint model a single context has no best arm
        text = "Each arm has its own context here, so arms are not counted."
        return {"arms_lead": text, "arms": None, "arm_plots": []}
    arms = facts.spec.arms
    return {
        "arms_lead": arms_lead(figures, len(arms)),
        "arms": arms_table(figures, arms),
        "arm_plots": _arm_plots(facts, found),
    }


def _arm_plots(facts: ReportFacts, found: LatentMap) -> list[Plot]:
    arms, name = facts.spec.arms, "share_distance"
    priors = {domain: found.arm_prior(domain, len(arms)) for domain in Domain}
    shown = min(len(arms), plots.MOST_ARMS)
    return [
        _plot(
            "shares",
            "Mix of the best arms",
            f"For how many contexts of each domain an arm is best. {SIGNS[name].title}: "
            f"{limits_text(name)}.",
            _has_points(found) and plots.arm_priors(priors, arms),
            facts.signs and light_of(name, facts.signs[name]),
            max(HEIGHT, 1.0 + ROW_HEIGHT * shown),
        ),
        _plot(
            "arms",
            "Which arm where",
            "Encoded target contexts by the arm that is best for them, over the source's. Each arm should "
            "have its own region.",
            _has_points(found) and plots.arm_map(found, arms),
        ),
    ]


def _judged_text(facts: ReportFacts) -> str:
    judged, served = facts.versions[-1]["encoder_version"], facts.state["encoder_version"]
    text = f"All are measured without any target reward, for encoder version {judged}."
    return text if judged == served else f"{text} Version {served} serves and is not judged yet."


def _sign_plots(facts: ReportFacts, found: LatentMap) -> list[Plot]:
    found_at = [each for each in facts.versions if each["expected"]]
    name, expected = "expected_reward", facts.transfer["expected"]
    return [
        _plot(
            "expected",
            "What will it earn?",
            "Expected reward in the target and its lower bound, by encoder version: "
            f"{limits_text(name)}, on a scale from 0 to 1.",
            found_at and plots.expected_by_version(found_at),
            expected and light_of(name, expected["reward"]),
        ),
        _plot(
            "domains",
            "Both domains, encoded",
            "Each point is an encoded context. Clouds that lie over each other are aligned. "
            f"{found.explained:.0%} of the variance is in these two directions.",
            _has_points(found) and plots.domain_map(found),
        ),
    ]


def _has_points(found: LatentMap) -> bool:
    return len(found.points) >= 3


def _learning_plots(facts: ReportFacts, learner: Learner) -> list[Plot]:
    rewards, unit = _rewards(learner), facts.spec.unit
    trained = [
        each
        for each in facts.transfer["gate"]
        if "episode" in each["details"] and "verdict" in each["details"]
    ]
    regret = facts.transfer["target_regret"]
    found = [
        _plot(
            "learning",
            "Rewards earned",
            "Mean reward of the remembered rounds, in blocks. It rises while the service decides and "
            "learns; past rounds of an imported history stay level.",
            any(map(len, rewards.values())) and plots.learning_curve(rewards, unit),
        ),
        _plot(
            "gate",
            "Encoder updates",
            "Reward on held-out source rounds that each trained encoder would earn, and what the gate "
            "decided.",
            trained and plots.gate_history(trained, unit),
        ),
    ]
    if regret["curve"]:
        meaning = (
            f"What {regret['rewards']:,} target rewards lost to the best possible reward. A curve that "
            "flattens has learned."
        )
        draw = plots.regret_curve(regret["curve"], unit)
        found.append(_plot("regret", "Target regret", meaning, draw))
    return found


def _diagnostic_plot(facts: ReportFacts) -> Plot:
    return _plot(
        "diagnostics",
        "Diagnostic terms",
        "Each term by encoder version; lower is better.",
        facts.versions and plots.terms_by_version(facts.versions, facts.spec.unit),
        height=1.3 * HEIGHT,
    )


def _unit_of_rewards(unit: RewardRange) -> str:
    if unit == UNIT:
        return "Rewards lie between 0 and 1."
    low, high = map(number, unit)
    return f"They are in the unit of the rewards, which lie between {low} and {high}."


def _rewards(learner: Learner) -> dict[Domain, Doubles]:
    rounds = learner.window.batch()
    return {
        domain: rounds.rewards[rounds.is_target == (domain is Domain.TARGET)] for domain in Domain
    }


def _plot(
    name: str, title: str, meaning: str, draw: Any, light: Any = None, height: float = HEIGHT
) -> Plot:
    """A plot; without anything to draw it says so."""
    drawing = svg(name, title, draw, height) if draw else None
    return Plot(name, title, meaning, drawing, light or None)


def _gates(entries: Sequence[Mapping[str, Any]]) -> Table | None:
    rows = []
    for each in reversed(entries[-LAST_GATES:]):
        details = each["details"]
        what, why = what_and_why(each)
        rows.append(
            (
                f"{each['at']:%Y-%m-%d %H:%M:%S} UTC",
                what,
                str(details.get("episode", details.get("version", ""))),
                why,
                str(each["offset"]),
            )
        )
    titles = ("when", "what", "update or version", "why", "offset in the log")
    return Table(titles, rows, {4}, {3}) if rows else None
