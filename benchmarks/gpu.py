"""Decisions on a GPU: how close to the machine, and where the time goes.

    python -m benchmarks.gpu --device cuda [--batch 4096 16384] [--json FILE]
    python -m benchmarks.gpu --device cpu --quick        (a smoke test, no figures)

Needs torch and numpy alone. An MLP 784 → 256 → 64 with K = 10, 100 and 1000 arms, contexts of one
batch on the host. A row shows decisions a second of the whole call (`Policy.select_many`: host
contexts in, arms and probabilities out), and what each stage of it takes by itself: the copy to the
device, the encoder's forward, UCB on top of it, both of these as one CUDA graph each, the copy
back, and the choice on the host. The ceilings are measured on the same device: memory bandwidth by
a copy, arithmetic by a product of large matrices, the bus by a copy from pinned memory.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.lab import use_one_thread
from model.bandit.policy import Policy
from model.config import BanditConfig, system_config
from model.learner import Learner
from model.rounds import Domain, Floats, RoundBlock

SIZE, HIDDEN, LATENT = 784, 256, 64
FEWEST, LONGEST = 20, 5.0  # calls, and seconds after which enough of them were seen
Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Bench:
    """A device and how long to look at it."""

    device: torch.device
    repeats: int

    @property
    def is_cuda(self) -> bool:
        """Whether there is something to wait for."""
        return self.device.type == "cuda"

    def wait(self) -> None:
        """Until all that was asked of the device is done."""
        if self.is_cuda:
            torch.cuda.synchronize(self.device)

    def times(self, action: Callable[[], Any]) -> list[float]:
        """Seconds of each call, from a quiet device to a quiet device; the first calls do not count."""
        for _ in range(3):
            action()
        self.wait()
        found: list[float] = []
        while len(found) < self.repeats and (len(found) < FEWEST or sum(found) < LONGEST):
            started = time.perf_counter()
            action()
            self.wait()
            found.append(time.perf_counter() - started)
        return found

    def seconds(self, action: Callable[[], Any]) -> float:
        """The median of the times."""
        return statistics.median(self.times(action))

    def busy_seconds(self, action: Callable[[], Any]) -> float:
        """Seconds a call when calls follow each other: what the device needs, without our waiting."""
        action()
        self.wait()
        started = time.perf_counter()
        for _ in range(self.repeats):
            action()
        self.wait()
        return (time.perf_counter() - started) / self.repeats


def ceilings(bench: Bench, side: int, numbers: int) -> Figures:
    """What the device can do at most: bytes and operations a second, and the bus to it."""
    source = torch.ones(numbers, device=bench.device)
    target = torch.empty_like(source)
    left = torch.ones((side, side), device=bench.device)
    host = torch.ones(numbers // 4)
    host = host.pin_memory() if bench.is_cuda else host
    return {
        "memory, GB/s": 8e-9 * numbers / bench.busy_seconds(lambda: target.copy_(source)),
        "float32 products, TFLOP/s": 2e-12 * side**3 / bench.busy_seconds(lambda: left @ left),
        "host to device, pinned, GB/s": 1e-9
        * (numbers // 4 * 4)
        / bench.busy_seconds(lambda: host.to(bench.device, non_blocking=True)),
    }


def taught(arms: int, device: torch.device) -> Learner:
    """A learner with some rounds behind it; its encoder is as it was drawn."""
    config = _config(arms)
    learner = Learner(config, seed=1, device=device)
    rng = np.random.default_rng(arms)
    count = 512
    learner.observe_block(
        RoundBlock(
            references=np.arange(count),
            is_target=np.zeros(count, dtype=np.bool_),
            contexts=rng.standard_normal((count, SIZE)).astype(np.float32),
            arms=rng.integers(arms, size=count),
            rewards=rng.integers(2, size=count).astype(np.float64),
            propensities=np.full(count, 1 / arms),
        )
    )
    return learner


def _config(arms: int, **changes: Any) -> BanditConfig:
    values: dict[str, Any] = {
        "arm_count": arms,
        "context_shape": (SIZE,),
        "hidden_sizes": (HIDDEN,),
        "latent_size": LATENT,
        "episode_length": 10**9,
    }
    return system_config("nlinucb", **{**values, **changes})


def selection(bench: Bench, policy: Policy, batch: int, top: Figures) -> Figures:
    """The whole call and its stages for one number of arms and one size of batch."""
    arms = policy.config.arm_count
    contexts = np.random.default_rng(batch).standard_normal((batch, SIZE)).astype(np.float32)
    keys = np.arange(batch, dtype=np.uint64)
    whole = bench.times(lambda: policy.select_many(contexts, Domain.SOURCE, keys))
    stages = _stages(bench, policy, contexts)
    scores = policy.score_many(contexts, Domain.SOURCE)
    operations = batch * 2.0 * (SIZE * HIDDEN + HIDDEN * LATENT + LATENT * arms * (1 + LATENT))
    moved = 4.0 * batch * (SIZE + 3 * arms)
    return {
        "arms": arms,
        "batch": batch,
        "decisions a second": batch / statistics.median(whole),
        "median, ms": 1e3 * statistics.median(whole),
        "p99, ms": 1e3 * sorted(whole)[max(0, int(0.99 * len(whole)) - 1)],
        **{f"{name}, ms": 1e3 * seconds for name, seconds in stages.items()},
        **_shares_of_ucb(stages),
        "decisions a second on the device": batch / stages["encoder and UCB on the device"],
        "share of the arithmetic ceiling": operations
        / stages["encoder and UCB on the device"]
        / (1e12 * top["float32 products, TFLOP/s"]),
        "share of the memory ceiling": moved
        / stages["encoder and UCB on the device"]
        / (1e9 * top["memory, GB/s"]),
        "largest score": float(scores.ucb.max()),
    }


def _shares_of_ucb(stages: dict[str, float]) -> Figures:
    """What UCB adds to the encoder: launched from the host, and where the host is not waited for."""
    pairs = {
        "UCB over encoder": ("encoder alone", "encoder and UCB on the device"),
        "UCB over encoder, CUDA graphs": (
            "encoder as one CUDA graph",
            "encoder and UCB as one CUDA graph",
        ),
    }
    return {
        name: stages[both] / stages[encoder] - 1
        for name, (encoder, both) in pairs.items()
        if both in stages
    }


def _stages(bench: Bench, policy: Policy, contexts: Floats) -> dict[str, float]:
    """Seconds of each part, measured separately."""
    host = torch.from_numpy(contexts)
    held: Any = host.to(bench.device) if bench.is_cuda else contexts
    encode, score = policy._forward[Domain.SOURCE], policy._linear_scores[Domain.SOURCE]
    with torch.inference_mode():
        found = {
            "copy to the device": bench.seconds(lambda: host.to(bench.device)),
            "encoder alone": bench.busy_seconds(lambda: encode(held)),
            "encoder and UCB on the device": bench.busy_seconds(lambda: score(encode(held))),
        }
        if bench.is_cuda:
            found |= {
                "encoder as one CUDA graph": bench.busy_seconds(_graph(lambda: encode(held))),
                "encoder and UCB as one CUDA graph": bench.busy_seconds(
                    _graph(lambda: score(encode(held)))
                ),
            }
        scores = torch.zeros((3, len(contexts), policy.config.arm_count), device=bench.device)
        found["copy of the scores back"] = bench.seconds(lambda: scores.cpu())
    found["all scores, host to host"] = bench.seconds(
        lambda: policy.score_many(contexts, Domain.SOURCE)
    )
    return found


def _graph(action: Callable[[], Any]) -> Callable[[], Any]:
    """All that an action launches, recorded."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            action()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        action()
    return graph.replay


def differing_arms(arms: int, device: torch.device, batch: int) -> Figures:
    """How often the greedy arms of CPU and device differ, and how often that is no tie."""
    learner = taught(arms, torch.device("cpu"))
    contexts = np.random.default_rng(3).standard_normal((batch, SIZE)).astype(np.float32)
    ours, theirs = (
        learner.policy(device=each).score_many(contexts, Domain.SOURCE).ucb
        for each in (torch.device("cpu"), device)
    )
    rows = np.flatnonzero(ours.argmax(1) != theirs.argmax(1))
    gap = ours[rows].max(1) - ours[rows, theirs[rows].argmax(1)]
    return {"arms": arms, "differing": len(rows), "of which no tie": int((gap > 1e-5).sum())}


def episode_seconds(bench: Bench, rounds: int, steps: int) -> Figures:
    """Training after an episode: the first time with all that is made once, and again."""
    config = _config(10, episode_length=rounds, steps_per_episode=steps, divergence_weight=1.0)
    learner = Learner(config, seed=1, device=bench.device)
    rng = np.random.default_rng(4)
    taken = []
    for episode in range(2):
        contexts = rng.standard_normal((rounds, SIZE)).astype(np.float32)
        references = np.arange(rounds) + episode * rounds
        for domain in Domain:
            learner.observe_decided(references, domain, contexts)
        is_target = np.zeros(rounds, dtype=np.bool_)
        shares = np.full(rounds, 0.1)
        rewards = rng.integers(2, size=rounds).astype(np.float64)
        arms = rng.integers(10, size=rounds)
        learner.observe_block(RoundBlock(references, is_target, contexts, arms, rewards, shares))
        started = time.perf_counter()
        learner.train()
        bench.wait()
        taken.append(time.perf_counter() - started)
    return {"steps": steps, "first episode, s": taken[0], "next episode, s": taken[1]}


def measure(bench: Bench, arm_counts: Sequence[int], batches: Sequence[int]) -> dict[str, Any]:
    """Everything there is to show."""
    side, numbers = (8192, 1 << 28) if bench.is_cuda else (256, 1 << 20)
    top = ceilings(bench, side, numbers)
    rows = []
    for arms in arm_counts:
        policy = taught(arms, torch.device("cpu")).policy(device=bench.device)
        rows += [selection(bench, policy, batch, top) for batch in batches]
    steps = 64 if bench.is_cuda else 2
    return {
        "machine": _machine(bench),
        "ceilings": top,
        "selection": rows,
        "parity": [differing_arms(arms, bench.device, max(batches)) for arms in arm_counts],
        "training": episode_seconds(bench, 512 if bench.is_cuda else 64, steps),
    }


def _machine(bench: Bench) -> str:
    name = torch.cuda.get_device_name(bench.device) if bench.is_cuda else platform.processor()
    return f"{name or platform.machine()}, torch {torch.__version__}, numpy {np.__version__}"


def show(found: dict[str, Any]) -> None:
    """Print it, a fact a line."""
    print(found["machine"])
    for title in ("ceilings", "training"):
        print(f"\n{title}")
        _show_row(found[title])
    for title in ("selection", "parity"):
        for row in found[title]:
            print(f"\n{title}")
            _show_row(row)


def _show_row(row: Figures) -> None:
    for name, value in row.items():
        print(f"  {name:<36} {value:>16,.4g}" if value < 1e4 else f"  {name:<36} {value:>16,.0f}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and optionally write the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batch", type=int, nargs="+", default=[4096, 16384, 65536])
    parser.add_argument("--quick", action="store_true", help="small batches: shape, no figures")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args(arguments)
    use_one_thread()
    bench = Bench(torch.device(options.device), 5 if options.quick else 200)
    if bench.is_cuda and not torch.cuda.is_available():
        raise SystemExit("there is no CUDA device: --device cpu --quick shows the shape")
    arm_counts, batches = ((10, 20), [64]) if options.quick else ((10, 100, 1000), options.batch)
    found = measure(bench, arm_counts, batches)
    show(found)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
