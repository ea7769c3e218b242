"""`make demo`: daband and nlinucb on the simulated two-domain world, with a plot."""

import argparse
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from benchmarks.lab import Play, play, use_one_thread
from model.config import system_config
from model.rounds import Domain
from model.simulate import ClusterWorld
from service.cli.options import ShowProgress, progress_bar
from service.pages import plot_style

METHODS = ("nlinucb", "daband")
COLOURS = {"nlinucb": plot_style.COLOURS["source"], "daband": plot_style.COLOURS["target"]}


def main(arguments: Sequence[str] | None = None) -> None:
    """Play both systems on the same world, print the table, save the learning curves."""
    options = _options(arguments)
    use_one_thread()
    world = ClusterWorld(seed=options.seed)
    plays = _play_all(world, options.rounds, options.seed)
    Console().print(_table(plays))
    Console().print(_answer(world, plays["daband"]))
    _figure(plays).savefig(options.plot, dpi=150)
    Console().print(f"Learning curves: {options.plot}", soft_wrap=True)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1024, help="source rounds to play")
    parser.add_argument("--seed", type=int, default=1, help="seed of world and learner")
    parser.add_argument(
        "--plot", type=Path, default=Path("build/demo.png"), help="where the PNG goes"
    )
    options = parser.parse_args(arguments)
    options.plot.parent.mkdir(parents=True, exist_ok=True)
    return options


def _play_all(world: ClusterWorld, rounds: int, seed: int) -> dict[str, Play]:
    plays = {}
    for method in METHODS:
        with progress_bar(method) as show:
            done, config = count(1), system_config(method, **world.config_values())

            def advance(show: ShowProgress = show, done: Iterator[int] = done) -> None:
                show(next(done), rounds)

            plays[method] = play(world, config, rounds, seed, max(1, rounds // 24), advance)
    return plays


def _answer(world: ClusterWorld, played: Play) -> str:
    """One decision, as an example of the answer."""
    asked = world.draw(Domain.TARGET, 1, "asked")
    found = played.learner.policy().score_many(asked.contexts, Domain.TARGET)
    arm = int(found.mean[0].argmax())
    truth = "the best one" if arm == int(asked.best_arms[0]) else "not the best one"
    return f"daband gives a new target context arm {arm} ({truth}), predicted reward {found.mean[0, arm]:.2f}"


def _table(plays: dict[str, Play]) -> Table:
    table = Table(
        title="Accuracy of the greedy policy on unseen contexts; no target reward was used"
    )
    for name in ("method", "source", "zero-shot target", "encoders served", "refused by the gate"):
        table.add_column(name, justify="left" if name == "method" else "right")
    for method, played in plays.items():
        refused = sum(not verdict.is_accepted for verdict in played.verdicts)
        table.add_row(
            method,
            f"{played.source_accuracy[-1]:.3f}",
            f"{played.target_accuracy[-1]:.3f}",
            str(played.learner.encoder_version),
            str(refused),
        )
    return table


@plot_style.in_plot_style
def _figure(plays: dict[str, Play]) -> Figure:
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    for method, played in plays.items():
        axes.plot(
            played.checkpoints,
            played.target_accuracy,
            color=COLOURS[method],
            label=f"{method}, zero-shot target",
            linestyle="-",
        )
        axes.plot(
            played.checkpoints,
            played.source_accuracy,
            color=COLOURS[method],
            label=f"{method}, source",
            linestyle=":",
        )
    axes.set(
        xlabel="source rounds with reward",
        ylabel="accuracy",
        ylim=(0, 1.02),
        title="Learning on the source, deciding on the target",
    )
    plot_style.legend_above(axes)
    return figure


if __name__ == "__main__":
    main()
