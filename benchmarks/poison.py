"""The effect of the worst accepted experiments on a healthy one.

`python -m benchmarks.poison [--database sqlite]`: a service as it would run on one machine. A healthy experiment is
played alone, then beside ten whose declarations lie just below the limits, each of which trains after
every reward. Printed: p99 of the healthy one's selects and the time until its next encoder, both as
ratios to those alone, and the memory of all processes beside what the limits allow.
"""

import argparse
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import psutil

from benchmarks.many_experiments import DECLARED, EPISODE, Machine, reward, running, select
from service.settings import Settings

GREEDY: dict[str, Any] = {"episode_length": 1, "holdout_share": 0.0}


def _declared(
    shape: list[int], arms: int = 3, method: str = "daband", **config: Any
) -> dict[str, Any]:
    return {
        "arms": [f"a{number}" for number in range(arms)],
        "context": {"kind": "shared", "shape": shape},
        "method": method,
        "config": {**GREEDY, **config},
    }


# Each as close to one of the limits as round numbers go.
POISON: dict[str, dict[str, Any]] = {
    "batch": _declared([4000], batch_size=600, hidden_sizes=[8], rebuild_window=1000),
    "steps": _declared([16], steps_per_episode=11_000),
    "steps-tiny": _declared([4], steps_per_episode=60_000, hidden_sizes=[8], latent_size=4),
    "arms": _declared([16], arms=3850, method="nlinucb", episode_length=25),
    "linear": _declared([1500], arms=7, method="linucb", episode_length=500),
    "images": _declared([3, 36, 36], method="daband-plus"),
    "wide": _declared([8000], rebuild_window=5000, reservoir_size=2000),
    "components": _declared([2000], method="nlinucb-p", component_count=500),
    "deep": _declared([64], hidden_sizes=[300] * 8, latent_size=64),
    "large-context": _declared(
        [170_000], rebuild_window=100, reservoir_size=100, hidden_sizes=[4], batch_size=8
    ),
}


class Players(threading.Thread):
    """Asks the poisonous experiments for decisions and rewards them, in turns, until it is ended."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._is_over = threading.Event()
        self.rounds = 0
        self.refused = 0

    def run(self) -> None:
        """Play one round after the other."""
        with httpx.Client(base_url=self._url, timeout=120.0) as client:
            while not self._is_over.is_set():
                for name, declared in POISON.items():
                    self._play(client, name, declared["context"]["shape"])
                self._is_over.wait(0.5)

    def end(self) -> None:
        """Stop after this round."""
        self._is_over.set()
        self.join()

    def _play(self, client: httpx.Client, name: str, shape: list[int]) -> None:
        content = np.random.default_rng().standard_normal(shape).astype(np.float32).tobytes()
        headers = {"Content-Type": "application/octet-stream"}
        try:
            answer = client.post(f"/select?experiment={name}", content=content, headers=headers)
            decided = answer.raise_for_status().json()["source"]["decision_id"]
            body = {"decision_id": decided, "reward": float(random.random() < 0.5)}
            client.post("/reward", json=body).raise_for_status()
            self.rounds += 1
        except httpx.HTTPError:
            self.refused += 1


def episodes(client: httpx.Client, count: int) -> tuple[list[float], list[float], int]:
    """Play whole episodes of the healthy experiment.

    Milliseconds of its selects, seconds until each encoder was trained, selects that were refused.
    """
    taken, trained, refused = [], [], 0
    for _ in range(count):
        before = _trained(client)
        ids = []
        for _ in range(EPISODE * 8):
            began = time.perf_counter()
            try:
                ids += select(client, "healthy")
            except httpx.HTTPStatusError:
                refused += 1
            taken.append(1000 * (time.perf_counter() - began))
        began = time.monotonic()
        reward(client, ids[:EPISODE])
        while _trained(client) == before:
            time.sleep(0.02)
        trained.append(time.monotonic() - began)
    return taken, trained, refused


def _trained(client: httpx.Client) -> int:
    """The number of the last episode that was trained."""
    answer = client.get("/experiments/healthy/state")
    while answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
        answer = client.get("/experiments/healthy/state")
    return int(answer.raise_for_status().json().get("last_training", {}).get("episode", 0))


class Memory(threading.Thread):
    """Watches the memory of the service's processes."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(daemon=True)
        self._roots = machine.service
        self._is_over = threading.Event()
        self.most: dict[str, int] = {}

    def run(self) -> None:
        """Look several times a second."""
        while not self._is_over.wait(0.2):
            for kind, size in self._sizes():
                self.most[kind] = max(size, self.most.get(kind, 0))

    def end(self) -> None:
        """Look no more."""
        self._is_over.set()
        self.join()

    def _sizes(self) -> Iterator[tuple[str, int]]:
        for root in self._roots:
            process = psutil.Process(root)
            yield "service or trainer", process.memory_info().rss
            for child in process.children(recursive=True):
                try:
                    yield "training process", child.memory_info().rss
                except psutil.NoSuchProcess:
                    continue


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--warm-up", type=float, default=60.0, help="seconds of poison before")
    options = parser.parse_args()
    with running(options.database) as machine:
        client = httpx.Client(base_url=machine.url, timeout=120.0)
        client.post("/experiments", json={"name": "healthy", **DECLARED}).raise_for_status()
        episodes(client, 2)
        alone = episodes(client, options.episodes)
        for name, declared in POISON.items():
            client.post("/experiments", json={"name": name, **declared}).raise_for_status()
        memory, players = Memory(machine), Players(machine.url)
        memory.start()
        players.start()
        time.sleep(options.warm_up)
        beside = episodes(client, options.episodes)
        players.end()
        memory.end()
        _report(options.database, alone, beside, players)
        _report_memory(client, memory)


def _report(
    database: str,
    alone: tuple[list[float], list[float], int],
    beside: tuple[list[float], list[float], int],
    players: Players,
) -> None:
    print(f"{database}: {players.rounds} rounds of poison, {players.refused} refused")
    for label, (taken, trained, refused) in (("alone", alone), ("beside poison", beside)):
        p50, p99 = np.quantile(taken, [0.5, 0.99])
        print(
            f"  {label:14} select p50 {p50:.2f} p99 {p99:.2f} ms, {refused} refused; "
            f"encoder after {np.median(trained):.2f} s, at most {max(trained):.2f} s"
        )
    select_ratio = np.quantile(beside[0], 0.99) / np.quantile(alone[0], 0.99)
    encoder_ratio = np.median(beside[1]) / np.median(alone[1])
    print(
        f"  ratios: p99 of select {select_ratio:.2f}, time to the next encoder {encoder_ratio:.2f}"
    )


def _report_memory(client: httpx.Client, memory: Memory) -> None:
    settings = Settings()
    gib = 1 << 30
    allowed = (settings.learner_memory_bytes + settings.policy_memory_bytes) / gib
    print(
        f"  memory: service or trainer {memory.most['service or trainer'] / gib:.2f} GiB "
        f"(learners and policies may take {allowed:.0f}), a training process "
        f"{memory.most.get('training process', 0) / gib:.2f} GiB "
        f"(may take {settings.training_memory_bytes / gib:.0f})"
    )
    for name in POISON:
        training = client.get(f"/experiments/{name}/state").json()["training"]
        print(f"    {name:14} {training['status']} {training.get('reason') or ''}")


if __name__ == "__main__":
    main()
