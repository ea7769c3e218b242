"""Plays a simulated two-domain experiment against a running service."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from daband_client import Client, Round, answers
from model import ClusterWorld, Domain, Draw
from service.records import uuid7

ARM = "arm-"
BARS = "▁▂▃▄▅▆▇█"
POINT_COUNT = 32
COLOURS = {Domain.SOURCE: "#8a8f98", Domain.TARGET: "#0b6e99"}


@dataclass(slots=True)
class Play:
    """Whether each decision was the best, by domain, in order."""

    experiment: str
    hits: dict[Domain, list[bool]] = field(default_factory=lambda: {each: [] for each in Domain})

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
        config={"exclusive_rewards": not world.graded},
    )
    draws = {domain: world.draw(domain, rounds, "demo") for domain in Domain}
    for t in range(rounds):
        _play_round(client, played, draws, t)
        yield t + 1


def _play_round(client: Client, played: Play, draws: dict[Domain, Draw], t: int) -> None:
    source, target = (draws[domain].contexts[t] for domain in Domain)
    selected = client.select(played.experiment, Round(source=source, target=target))
    rewards = {}
    for domain, decision in _decisions(selected):
        expected = draws[domain].expected[t]
        paid = float(expected[int(decision.arm.removeprefix(ARM))])
        played.hits[domain].append(paid >= expected.max())
        rewards[domain] = (decision.decision_id, paid)
    client.reward(*rewards[Domain.SOURCE])


def _decisions(selected: answers.Selected) -> Iterator[tuple[Domain, answers.Decision]]:
    for domain, decision in ((Domain.SOURCE, selected.source), (Domain.TARGET, selected.target)):
        if decision is not None:
            yield domain, decision


def run(client: Client, world: ClusterWorld, method: str, rounds: int, plot: Path) -> Play:
    """Play with a progress bar, then print the learning curves and save them as an image."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    played = Play(f"demo-{uuid7()}")
    console = Console()
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(played.experiment, total=rounds)
        for done in play(client, world, played, method, rounds):
            progress.update(task, completed=done)
    console.print(table(played, client.state(played.experiment)))
    plot.parent.mkdir(parents=True, exist_ok=True)
    figure(played).savefig(plot, dpi=150)
    console.print(f"Learning curves: {plot}")
    return played


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


def figure(played: Play) -> Figure:
    """The learning curves of both domains."""
    found = Figure(figsize=(7, 4.2), layout="constrained")
    axes = found.subplots()
    for domain in Domain:
        label = "source" if domain is Domain.SOURCE else "target, without rewards"
        axes.plot(*played.curve(domain), color=COLOURS[domain], label=label, linewidth=2)
    axes.set(
        xlabel="rounds",
        ylabel="fraction of best decisions",
        ylim=(0, 1.02),
        title="Learning on the source, deciding on the target",
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(frameon=False, loc="lower right")
    return found
