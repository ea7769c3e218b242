"""Our linear bandit and other libraries, in one process on one stream: decisions a second and regret.

    python -m benchmarks.peers [--rounds 6400] [--seeds 5] [--json FILE] [--quick]

Each library plays the same contexts with the same luck, 64 rounds at a time: it decides, gets its
rewards and learns from them before the next 64. The first 64 go round the arms, for all alike. The
libraries take turns of a few batches, timed in CPU time of the process, so that a busy machine
slows all alike. MABWiser is shown twice: called round by round, as Vowpal Wabbit is, and called
with whole batches. What a library needs its
input to look like (Vowpal Wabbit: text) is part of its time. The regret of a round is the expected
reward of its best arm less that of the chosen one.
"""

import argparse
import importlib.util
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from mabwiser.mab import MAB, LearningPolicy
from rich.console import Console
from rich.table import Table
from vowpalwabbit import Workspace

from benchmarks.lab import use_one_thread
from model.bandit.linucb import LinUCB
from model.config import system_config
from model.learner import Learner
from model.rounds import Domain, Doubles, Floats, Integers, RoundBlock

ARMS, SIZE, BATCH = 10, 32, 64
IN_A_ROW = 10  # batches in a row: what the others left in the caches is paid for once
ALPHA, RIDGE, EPSILON = 1.0, 1.0, 0.05
OURS, VW = "daband linucb", "vowpalwabbit cb_explore_adf"
MABWISER, MABWISER_BATCH = "MABWiser LinUCB", "MABWiser LinUCB, 64 at a time"
STATISTICS = "daband linucb, A and b alone"
CONTEXTUALBANDITS = "contextualbandits LinUCB"


class Player(Protocol):
    """A library that plays."""

    def decide(self, contexts: Floats) -> Integers:
        """An arm for each context (n, d)."""
        ...

    def learn(self, contexts: Floats, arms: Integers, rewards: Doubles) -> None:
        """The rewards of what was decided last."""
        ...


class Ours:
    """A learner and the policy that it publishes after every batch; it explores by the bonus only."""

    def __init__(self) -> None:
        values: dict[str, Any] = {
            "arm_count": ARMS,
            "context_shape": (SIZE,),
            "episode_length": 10**9,
        }
        values |= {"encoder": "identity", "alpha": ALPHA, "ridge": RIDGE, "epsilon": 0.0}
        config = system_config("linucb", **values)
        self._learner = Learner(config, seed=1)
        self._seen = 0
        self._shares = np.ones(BATCH)

    def decide(self, contexts: Floats) -> Integers:
        keys = np.arange(self._seen, self._seen + len(contexts), dtype=np.uint64)
        chosen = self._learner.policy().select_many(contexts, Domain.SOURCE, keys)
        self._shares = chosen.probabilities[np.arange(len(contexts)), chosen.arms]
        return chosen.arms

    def learn(self, contexts: Floats, arms: Integers, rewards: Doubles) -> None:
        references = np.arange(self._seen, self._seen + len(arms))
        is_target = np.zeros(len(arms), dtype=np.bool_)
        self._seen += len(arms)
        self._learner.observe_block(
            RoundBlock(references, is_target, contexts, arms, rewards, self._shares)
        )


class OurStatistics:
    """A and b without the memory of rounds that new encoders are trained on: what MABWiser folds."""

    def __init__(self) -> None:
        self._statistics = LinUCB(ARMS, SIZE, RIDGE)

    def decide(self, contexts: Floats) -> Integers:
        factors = self._statistics.factors()
        spread = contexts @ factors.inverse_root.mT  # (K, n, d)
        ucb = factors.theta @ contexts.T + ALPHA * np.linalg.norm(spread, axis=2)
        return np.asarray(ucb.argmax(axis=0))

    def learn(self, contexts: Floats, arms: Integers, rewards: Doubles) -> None:
        self._statistics.fold(contexts, arms, rewards)


class MabWiser:
    """MABWiser, a batch a call; it computes in double precision and would convert for every arm."""

    def __init__(self) -> None:
        policy = LearningPolicy.LinUCB(alpha=ALPHA, l2_lambda=RIDGE)
        self._mab = MAB(list(range(ARMS)), policy)
        self._is_fitted = False

    def decide(self, contexts: Floats) -> Integers:
        return np.asarray(self._mab.predict(contexts.astype(np.float64)))

    def learn(self, contexts: Floats, arms: Integers, rewards: Doubles) -> None:
        fit = self._mab.partial_fit if self._is_fitted else self._mab.fit
        fit(arms, rewards, contexts.astype(np.float64))
        self._is_fitted = True


class MabWiserByRound(MabWiser):
    """MABWiser, a round a call, as Vowpal Wabbit is called, too."""

    def decide(self, contexts: Floats) -> Integers:
        return np.array([super(MabWiserByRound, self).decide(row[None]) for row in contexts])

    def learn(self, contexts: Floats, arms: Integers, rewards: Doubles) -> None:
        if not self._is_fitted:  # it wants all arms before it decides
            super().learn(contexts, arms, rewards)
            return
        for row in range(len(arms)):
            one = slice(row, row + 1)
            super().learn(contexts[one], arms[one], rewards[one])


class VowpalWabbit:
    """Vowpal Wabbit's contextual bandit, which explores with ε and reads text."""

    def __init__(self) -> None:
        options = f"--cb_explore_adf --epsilon {EPSILON} -q ca --quiet --random_seed 1"
        self._workspace = Workspace(options)
        self._draws = np.random.default_rng(2)
        self._shares = [1.0 / ARMS] * BATCH

    def decide(self, contexts: Floats) -> Integers:
        rows = [self._workspace.predict(_vw_lines(context)) for context in contexts.tolist()]
        arms = [_drawn(shares, float(self._draws.random())) for shares in rows]
        self._shares = [shares[arm] for shares, arm in zip(rows, arms, strict=True)]
        return np.array(arms)

    def learn(self, contexts: Floats, arms: Integers, rewards: Doubles) -> None:
        rows = zip(contexts.tolist(), arms.tolist(), rewards.tolist(), self._shares, strict=True)
        for context, arm, reward, share in rows:
            self._workspace.learn(_vw_lines(context, arm, f"0:{-reward}:{share} "))


class ContextualBandits:
    """contextualbandits, where it is installed."""

    def __init__(self) -> None:
        from contextualbandits.online import LinUCB as Theirs  # noqa: PLC0415

        self._bandit = Theirs(ARMS, alpha=ALPHA, lambda_=RIDGE, fit_intercept=False, random_state=1)
        self._is_fitted = False

    def decide(self, contexts: Floats) -> Integers:
        return np.asarray(self._bandit.predict(contexts.astype(np.float64)))

    def learn(self, contexts: Floats, arms: Integers, rewards: Doubles) -> None:
        self._bandit.partial_fit(contexts.astype(np.float64), arms, rewards)
        self._is_fitted = True


def _vw_lines(context: Sequence[float], arm: int | None = None, label: str = "") -> str:
    shared = " ".join(f"f{place}:{value:.6g}" for place, value in enumerate(context))
    arms = (f"{label if each == arm else ''}|a arm{each}" for each in range(ARMS))
    return "\n".join((f"shared |c {shared}", *arms))


def _drawn(shares: Sequence[float], point: float) -> int:
    return min(int(np.searchsorted(np.cumsum(shares), point, side="right")), ARMS - 1)


@dataclass(frozen=True, slots=True)
class Stream:
    """Contexts of norm 1 (n, d), expected rewards (n, K) and one stroke of luck a round (n,)."""

    contexts: Floats
    expected: Doubles
    luck: Doubles

    @classmethod
    def made(cls, rounds: int, seed: int = 0) -> "Stream":
        """Rewards are linear in the context, an arm at a time, around one half."""
        rng = np.random.default_rng(seed)
        contexts = rng.standard_normal((rounds, SIZE))
        contexts /= np.linalg.norm(contexts, axis=1, keepdims=True)
        theta = rng.standard_normal((ARMS, SIZE)) * 0.35
        expected = np.clip(0.5 + contexts @ theta.T, 0.0, 1.0)
        return cls(contexts.astype(np.float32), expected, rng.random(rounds))


@dataclass(slots=True)
class Score:
    """What a library took and lost."""

    decide_seconds: float = 0.0
    learn_seconds: float = 0.0
    regret: list[float] = field(default_factory=list)

    def figures(self, rounds: int) -> dict[str, float]:
        """Rates a second of CPU, and regret."""
        return {
            "decisions_per_second": rounds / self.decide_seconds,
            "folds_per_second": rounds / self.learn_seconds,
            "loops_per_second": rounds / (self.decide_seconds + self.learn_seconds),
            "regret_per_round": float(np.mean(self.regret)),
        }


def measure(rounds: int, seeds: int) -> dict[str, dict[str, float]]:
    """The figures of every library by name, over streams of `rounds` rounds."""
    kinds: dict[str, Callable[[], Player]] = {
        OURS: Ours,
        STATISTICS: OurStatistics,
        MABWISER: MabWiserByRound,
        MABWISER_BATCH: MabWiser,
        VW: VowpalWabbit,
    }
    if importlib.util.find_spec("contextualbandits"):
        kinds[CONTEXTUALBANDITS] = ContextualBandits
    scores = {name: Score() for name in kinds}
    for seed in range(seeds):
        stream = Stream.made(rounds, seed)
        players = {name: kind() for name, kind in kinds.items()}
        for start in range(0, rounds, IN_A_ROW * BATCH):
            for name, player in players.items():
                for first in range(start, min(start + IN_A_ROW * BATCH, rounds), BATCH):
                    _play(player, scores[name], stream, first)
    return {name: score.figures(rounds * seeds) for name, score in scores.items()}


def _play(player: Player, score: Score, stream: Stream, first: int) -> None:
    rows = slice(first, first + BATCH)
    contexts, expected = stream.contexts[rows], stream.expected[rows]
    started = time.process_time()
    # Some libraries want rewards before they decide.
    arms = player.decide(contexts) if first else np.arange(len(contexts)) % ARMS
    decided = time.process_time()
    gained = expected[np.arange(len(arms)), arms]
    rewards = (stream.luck[rows] < gained).astype(np.float64)
    score.regret += (expected.max(axis=1) - gained).tolist()
    learning = time.process_time()
    player.learn(contexts, arms, rewards)
    score.learn_seconds += time.process_time() - learning
    score.decide_seconds += decided - started


def ratios(figures: dict[str, dict[str, float]]) -> dict[str, float]:
    """What is asked of us: our rates over theirs, and our regret over theirs."""
    ours = figures[OURS]
    found = {
        f"{what} ÷ {name}'s": ours[key] / figures[name][key]
        for name in (MABWISER, MABWISER_BATCH, VW)
        for what, key in (
            ("decisions per second in the full loop", "loops_per_second"),
            ("regret", "regret_per_round"),
        )
    }
    folds = figures[STATISTICS]["folds_per_second"]
    return found | {
        f"folds per second (A and b) ÷ {name}'s": folds / figures[name]["folds_per_second"]
        for name in (MABWISER, MABWISER_BATCH)
    }


def show(figures: dict[str, dict[str, float]]) -> None:
    """Print both tables."""
    titles = ("library", "decisions/s", "folds/s", "whole loop/s", "regret a round")
    table = Table(*titles, title=f"K = {ARMS}, d = {SIZE}, batch {BATCH}, CPU time, one thread")
    for name, row in figures.items():
        *rates, regret = row.values()
        table.add_row(name, *(f"{rate:,.0f}" for rate in rates), f"{regret:.4f}")
    console = Console(width=110)
    console.print(table)
    if CONTEXTUALBANDITS not in figures:
        console.print("contextualbandits is not installed: it comes as source and is compiled.")
    for name, ratio in ratios(figures).items():
        console.print(f"{name}: {ratio:.2f}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and optionally write the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100 * BATCH, help="of each stream")
    parser.add_argument("--seeds", type=int, default=5, help="streams")
    parser.add_argument("--quick", action="store_true", help="a few batches: shape, no figures")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args(arguments)
    use_one_thread()
    figures = measure(4 * BATCH, 1) if options.quick else measure(options.rounds, options.seeds)
    show(figures)
    if options.json:
        written: dict[str, Any] = {"libraries": figures, "ratios": ratios(figures)}
        options.json.write_text(json.dumps(written, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
