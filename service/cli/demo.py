"""Plays a simulated two-domain experiment against a running service, and compares what it decides."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from daband_client import Client, NotTrainedError, Round, answers
from model import ClusterWorld, Domain, Doubles, Draw, Floats
from service.cli.options import progress_bar
from service.pages.plot_style import COLOURS, DASHES, in_plot_style, legend_above
from service.records import uuid7

ARM = "arm-"
BARS = "▁▂▃▄▅▆▇█"
POINT_COUNT = 16
EPISODE_LENGTH = 128  # rounds between two encoder updates
ASKED = 1000  # new target contexts that are decided at the end
TRAINING_SECONDS = 120.0  # to wait for an update, in case that no trainer runs


@dataclass(slots=True)
class Play:
    """Whether each decision was the best, by domain, in order."""

    experiment: str
    hits: dict[Domain, list[bool]] = field(default_factory=lambda: {each: [] for each in Domain})
    arms: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)

    def curve(self, domain: Domain) -> tuple[list[int], list[float]]:
        """Round numbers, and the fraction of best decisions around each."""
        hits = self.hits[domain]
        parts = np.array_split(np.array(hits, dtype=float), min(POINT_COUNT, len(hits)))
        ends = np.cumsum([len(part) for part in parts])
        return ends.tolist(), [float(part.mean()) for part in parts]


def play(
    client: Client, world: ClusterWorld, played: Play, method: str, rounds: int
) -> Iterator[int]:
    """Play round by round: send both contexts, report the source's reward, yield the round's number.

    The best arms of both domains are known here, for the score; target rewards are never sent.
    """
    client.create_experiment(
        name=played.experiment,
        arms=[f"{ARM}{index}" for index in range(world.arm_count)],
        context={"kind": "shared", "shape": [world.size]},
        method=method,
        seed=world.seed,
        config={"exclusive_rewards": not world.graded, "episode_length": EPISODE_LENGTH},
    )
    draws = {domain: drawn(world, domain, rounds) for domain in Domain}
    for t in range(rounds):
        _play_round(client, played, draws, t)
        yield t + 1


def drawn(world: ClusterWorld, domain: Domain, rounds: int) -> Draw:
    """The rounds of a domain that are played."""
    return world.draw(domain, rounds, "demo")


def _play_round(client: Client, played: Play, draws: dict[Domain, Draw], t: int) -> None:
    source, target = (draws[domain].contexts[t] for domain in Domain)
    selected = client.select(played.experiment, Round(source=source, target=target))
    for domain, decision in _decisions(selected):
        expected, arm = draws[domain].expected[t], number_of(decision.arm)
        paid = float(expected[arm])
        played.hits[domain].append(paid >= expected.max())
        if domain is Domain.SOURCE:
            played.arms.append(arm)
            played.rewards.append(paid)
            client.reward(decision.decision_id, paid)


def number_of(arm: str | None) -> int:
    """The number of an arm by its name."""
    assert arm is not None  # noqa: S101 - nothing abstains without a floor
    return int(arm.removeprefix(ARM))


def _decisions(selected: answers.Selected) -> Iterator[tuple[Domain, answers.Decision]]:
    for domain, decision in ((Domain.SOURCE, selected.source), (Domain.TARGET, selected.target)):
        if decision is not None:
            yield domain, decision


def run(client: Client, world: ClusterWorld, method: str, rounds: int, plot: Path) -> Play:
    """Play with a progress bar; then decide for new target contexts, and show all that came of it."""
    played = Play(f"demo-{uuid7()}")
    with progress_bar("playing") as show:
        for done in play(client, world, played, method, rounds):
            show(done, rounds, "playing")
            if done % EPISODE_LENGTH == 0 or done == rounds:
                show(done, rounds, "training an encoder")
                _train(client, played.experiment)
    test = world.draw(Domain.TARGET, ASKED, "asked")
    asked = client.target_select(played.experiment, test.contexts)
    chosen = {method: [number_of(each.arm) for each in asked.decisions]}
    chosen |= baselines(played, drawn(world, Domain.SOURCE, rounds), test)
    values = {name: expected_reward(test, arms) for name, arms in chosen.items()}
    plot.parent.mkdir(parents=True, exist_ok=True)
    figure(played, values).savefig(plot, dpi=150)
    console = Console()
    console.print(table(played, client.state(played.experiment)))
    console.print(comparison(values, asked.decisions[0], client.transfer(played.experiment)))
    console.print(f"Learning curves: {plot}", soft_wrap=True)
    report = f"{client.url}/experiments/{played.experiment}/report"
    console.print(f"Transfer report: {report}", soft_wrap=True)
    return played


def _train(client: Client, experiment: str) -> None:
    """Wait for the encoder update that is due, so that the next rounds are decided by it."""
    try:
        client.wait_until_trained(experiment, TRAINING_SECONDS)
    except NotTrainedError as error:
        Console(stderr=True).print(f"{error}: is a trainer running?")


def baselines(played: Play, source: Draw, test: Draw) -> dict[str, list[int]]:
    """The arms of methods that know the same rounds of the source, and nothing of the shift."""
    arms, rewards = np.array(played.arms), np.array(played.rewards)
    count = source.expected.shape[1]
    means = [rewards[arms == arm].mean() if arm in arms else 0.0 for arm in range(count)]
    best = int(np.argmax(means))
    predicted = [
        _ridge(source.contexts[arms == arm], rewards[arms == arm], test.contexts)
        for arm in range(count)
    ]
    return {
        "ridge regression for each arm": np.argmax(predicted, axis=0).tolist(),
        f"{ARM}{best}, the source's best, for all": [best] * len(test.contexts),
    }


def _ridge(contexts: Floats, rewards: Doubles, asked: Floats) -> Doubles:
    rows, wanted = (np.c_[each, np.ones(len(each))] for each in (contexts, asked))
    weights = np.linalg.solve(rows.T @ rows + np.eye(rows.shape[1]), rows.T @ rewards)
    return np.asarray(wanted @ weights)


def expected_reward(test: Draw, arms: Sequence[int]) -> float:
    """The mean reward of these arms; it is known, since the world is simulated."""
    return float(test.expected[np.arange(len(arms)), arms].mean())


def comparison(
    values: Mapping[str, float], first: answers.TargetDecision, transfer: answers.Transfer
) -> Table:
    """The answer: what the policy earns in the target beside the baselines, and its first arm."""
    word = "not judged" if transfer.verdict is None else transfer.verdict.word
    found = Table(
        title=f"{ASKED:,} new target contexts; no target reward was seen",
        caption=f"The first context gets {first.arm}\n"
        f"with a predicted reward of {first.mean:.2f}\nand a confidence of "
        f"{first.transfer_confidence:.2f}.\nVerdict on the transfer: {word}.",
        caption_justify="left",
    )
    found.add_column("decided by")
    found.add_column("expected reward", justify="right")
    for name, value in values.items():
        found.add_row(name, f"{value:.3f}")
    return found


def sparkline(values: Sequence[float]) -> str:
    """Values in [0, 1] as a row of bars."""
    steps = len(BARS) - 1
    return "".join(BARS[round(min(max(value, 0.0), 1.0) * steps)] for value in values)


def table(played: Play, state: answers.State) -> Table:
    """The fraction of best decisions, over time and at the end."""
    title = f"Fraction of best decisions; policy {state.policy_version}, encoder {state.encoder_version}"
    found = Table(title=title)
    for name in ("domain", "over the rounds", "in the end"):
        found.add_column(name)
    for domain in Domain:
        _, fractions = played.curve(domain)
        found.add_row(domain.value, sparkline(fractions), f"{fractions[-1]:.3f}")
    return found


@in_plot_style
def figure(played: Play, values: Mapping[str, float]) -> Figure:
    """The learning curves of both domains, and what the baselines earn in the target."""
    found = Figure(figsize=(7, 4.8), layout="constrained")
    axes = found.subplots()
    for domain, dashes in ((Domain.SOURCE, DASHES[1]), (Domain.TARGET, DASHES[0])):
        label = "source" if domain is Domain.SOURCE else "target, without rewards"
        axes.plot(*played.curve(domain), color=COLOURS[domain.value], ls=dashes, label=label)
    for (name, value), dashes in zip(list(values.items())[1:], DASHES[2:4], strict=True):
        axes.axhline(value, color=COLOURS["series-2"], ls=dashes, label=f"target: {name}")
    axes.set(
        xlabel="rounds",
        ylabel="fraction of best decisions",
        xlim=(0, None),
        ylim=(0, 1.02),
        title="Learning on the source, deciding on the target",
    )
    legend_above(axes)
    return found
