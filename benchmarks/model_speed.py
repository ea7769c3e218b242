"""`make bench`: what the model costs, as ratios measured in one run.

Each ratio is the median over interleaved repetitions of (ours / bare) in CPU time of the thread,
so that a busy machine slows both sides alike.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.lab import use_one_thread
from model.bandit.linucb import LinUCB
from model.config import BanditConfig, system_config
from model.encoders.base import domain_row
from model.encoders.vectors import MLP
from model.learner import Learner
from model.randomness import generator
from model.rounds import Domain, Floats, RewardedRound

SHAPES = {"d=784, 256 hidden": ((784,), (256,)), "d=32, 128·128 hidden": ((32,), (128, 128))}
ARMS = 10


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure everything, print a table, optionally write the figures as JSON."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--repeats", type=int, default=300, help="interleaved repetitions a ratio")
    parser.add_argument("--rounds", type=int, default=20_000, help="after which nothing has grown")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args(arguments)
    use_one_thread()
    figures = measure(options.repeats, options.rounds)
    table = Table("measured", "value", title="Cost of the model on one CPU thread")
    for name, value in figures.items():
        table.add_row(name, f"{value:,.2f}" if value < 100 else f"{value:,.0f}")
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


def measure(repeats: int, rounds: int) -> dict[str, float]:
    """All figures by name."""
    many, half = f"{rounds:,}", rounds // 2
    figures: dict[str, float] = {}
    for name, (shape, hidden) in SHAPES.items():
        learner = _taught(_config(shape, hidden), 256)
        for batch in (1, 64):
            figures[f"select_many ÷ bare φ and UCB, batch {batch}, {name}"] = _select_ratio(
                learner, batch, repeats
            )
    for what, name in (("select", "select_many"), ("fold", "fold of one round")):
        figures[f"{name} after {many} ÷ after 200 rounds"] = _growth(what, rounds, repeats)
    figures["folds per second, K = 10, latent 64"] = _folds_per_second(64)
    figures["folds per second, K = 10, latent 32"] = _folds_per_second(32)
    learner = _taught(_config((32,), (128, 128)), half)
    figures[f"rebuild of {half:,} rounds, ms"] = 1e3 * _seconds(learner.rebuild)
    figures["one episode's training (64 steps, daband), ms"] = _episode_milliseconds()
    return figures


def _config(shape: tuple[int, ...], hidden: tuple[int, ...], **changes: Any) -> BanditConfig:
    values = {
        "arm_count": ARMS,
        "context_shape": shape,
        "hidden_sizes": hidden,
        "episode_length": 10**9,
    }
    return system_config("nlinucb", **{**values, **changes})


def _taught(config: BanditConfig, rounds: int, method_rng: str = "teach") -> Learner:
    """A learner that has folded random rounds."""
    learner = Learner(config, seed=1)
    rng = generator(1, method_rng)
    contexts = rng.standard_normal((rounds, *config.context_shape)).astype(np.float32)
    for t, context in enumerate(contexts):
        learner.observe(RewardedRound(t, Domain.SOURCE, context, t % ARMS, float(rng.integers(2))))
    return learner


def _select_ratio(learner: Learner, batch: int, repeats: int) -> float:
    policy = learner.policy()
    contexts = (
        generator(2, "select")
        .standard_normal((batch, *learner.config.context_shape))
        .astype(np.float32)
    )
    keys = np.arange(batch, dtype=np.uint64)
    bare = bare_selection(learner)
    return _ratio(
        lambda: policy.select_many(contexts, Domain.SOURCE, keys), lambda: bare(contexts), repeats
    )


def bare_selection(learner: Learner) -> Callable[[Floats], Any]:
    """The same φ and UCB written down as plainly as numpy allows: no checks, no probabilities."""
    encoder = learner.networks.encoder
    assert isinstance(encoder, MLP)
    state = {name: value.numpy().copy() for name, value in encoder.state_dict().items()}
    row = domain_row(Domain.SOURCE)
    center, scale = state["standardise.center"][row], state["standardise.scale"][row]
    count = len(learner.config.hidden_sizes) + 1
    weights = [np.ascontiguousarray(state[f"layers.{i}.weight"].T) for i in range(count)]
    biases = [state[f"layers.{i}.bias"] for i in range(count)]
    factors = learner.statistics.factors()
    size = factors.theta.shape[1]
    theta = np.ascontiguousarray(factors.theta.T.astype(np.float32))
    roots = np.ascontiguousarray(
        factors.inverse_root.astype(np.float32).transpose(2, 0, 1).reshape(size, -1)
    )
    alpha = np.float32(learner.config.alpha)

    def forward(contexts: Floats) -> Any:
        hidden = np.minimum(np.maximum((contexts - center) * scale, -10), 10)
        for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
            hidden = np.maximum(hidden @ weight + bias, 0)
        latents = hidden @ weights[-1] + biases[-1]
        latents /= np.sqrt((latents * latents).sum(-1) + 1e-12)[:, None]
        spread = (latents @ roots).reshape(len(latents), -1, size)
        return (latents @ theta + alpha * np.sqrt((spread * spread).sum(-1))).argmax(-1)

    return forward


def _growth(what: str, rounds: int, repeats: int) -> float:
    config = _config((32,), (128, 128))
    young, old = _taught(config, 200), _taught(config, rounds)
    context = generator(3, "growth").standard_normal((1, 32)).astype(np.float32)

    def action(learner: Learner) -> Callable[[], Any]:
        if what == "fold":
            return lambda: learner.observe(RewardedRound(0, Domain.SOURCE, context[0], 1, 1.0))
        policy = learner.policy()
        return lambda: policy.select_many(context, Domain.SOURCE, ["d"])

    return _ratio(action(old), action(young), repeats)


def _folds_per_second(size: int, count: int = 20_000) -> float:
    rng = generator(4, "folds")
    latents = rng.standard_normal((count, size)).astype(np.float32)
    models, rewards = rng.integers(ARMS, size=count), rng.random(count)
    statistics_ = LinUCB(ARMS, size, 1.0)
    return count / _seconds(lambda: statistics_.fold(latents, models, rewards))


def _episode_milliseconds() -> float:
    values = {"arm_count": ARMS, "context_shape": (32,), "episode_length": 512}
    learner = Learner(system_config("daband", **values), seed=1)
    rng = generator(5, "episode")
    for t, context in enumerate(rng.standard_normal((512, 32)).astype(np.float32)):
        learner.observe_context(t, Domain.TARGET, context + 1)
        learner.observe(RewardedRound(t, Domain.SOURCE, context, t % ARMS, float(rng.integers(2))))
    assert learner.pending is not None
    return 1e3 * _seconds(learner.pending.run)


def _seconds(action: Callable[[], Any], repeats: int = 3) -> float:
    return min(_timed(action) for _ in range(repeats))


def _ratio(ours: Callable[[], Any], bare: Callable[[], Any], repeats: int) -> float:
    for action in (ours, bare):
        _timed(action)
    return statistics.median(_block(ours) / _block(bare) for _ in range(repeats))


def _block(action: Callable[[], Any], calls: int = 10) -> float:
    """Some calls in a row: what the other side left in the caches is paid for once."""
    start = time.thread_time()
    for _ in range(calls):
        action()
    return time.thread_time() - start


def _timed(action: Callable[[], Any]) -> float:
    start = time.thread_time()
    action()
    return time.thread_time() - start


if __name__ == "__main__":
    main()
