"""The same loop through the HTTP service: select, reward, and wait for each encoder update.

An episode is decided under one policy, in one request; its rewards follow in another. Before the
next one the update must be over and its policy served, as it is in process. Both domains' contexts
go out with each round, and the target's decision is left unplayed.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np

from benchmarks.datasets.task import TransferTask, as_floats
from benchmarks.paper.methods import Method
from benchmarks.paper.playing import OnRounds, sampled_rows, strides
from benchmarks.paper.scoring import by_policy, scores
from daband_client import Client, Round
from daband_client.answers import State
from model.rounds import Doubles, Floats
from model.state.export import open_exported
from service.experiment_spec import POINTERS
from service.records import uuid7

PATIENCE_SECONDS = 600.0  # for one encoder update
_WAIT_SECONDS = 0.02


@dataclass(slots=True)
class Session:
    """One experiment in the service, and what was played of it."""

    client: Client
    http: httpx.Client
    experiment: str
    arms: Sequence[str]
    episode_length: int
    played: int = 0
    refusals: int = 0
    updates: int = 0

    def play(self, source: Floats, target: Floats, rewards: Floats) -> Doubles:
        """Some rounds under one policy; the regret of each."""
        rounds = [Round(source=a, target=b) for a, b in zip(source, target, strict=True)]
        decisions = [each.source for each in self.client.select_many(self.experiment, rounds)]
        sent, regret = {}, np.zeros(len(rounds))
        for t, (decision, paid) in enumerate(zip(decisions, rewards, strict=True)):
            assert decision is not None
            reward = float(paid[self.arms.index(decision.arm)])
            sent[decision.decision_id] = reward
            regret[t] = float(paid.max()) - reward
        refused = [each for each in self.client.reward_many(sent) if each.status != "created"]
        if refused:
            raise RuntimeError(f"rewards were not taken: {refused[0]}")
        self.played += len(rounds)
        self._wait_until_learned()
        return regret

    def policy_bytes(self) -> bytes:
        """The newest target policy."""
        version = self.client.state(self.experiment).policy_version
        return self.client.policy(self.experiment, version)

    def _wait_until_learned(self) -> None:
        """All rewards folded, the update that fell due concluded, and the policy served."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._is_learned(state := self.client.state(self.experiment)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the service did not learn {self.played} rounds: {state}")
            time.sleep(_WAIT_SECONDS)
        if (episode := state.noted["episode"]) > self.updates:
            self.updates = episode
            self.refusals += not state.noted["last_training"]["verdict"]["is_accepted"]

    def _is_learned(self, state: State) -> bool:
        is_folded = state.lag == 0 and state.counts.get("folded_rewards") == self.played
        is_over = state.noted.get("episode") == self.played // self.episode_length
        if not is_folded or not is_over or state.noted.get("is_training"):
            return False
        version = float(state.policy_version)
        gauge = f'daband_policy_version{{experiment="{self.experiment}"}} {version}'
        return gauge in self.http.get("/metrics").text


def play_over_http(
    url: str, task: TransferTask, method: Method, seed: int, rounds: int, on_rounds: OnRounds
) -> dict[str, Any]:
    """The record of a zero-shot run against the service at `url`."""
    started = time.perf_counter()
    config = method.config(task)
    source = sampled_rows(seed, "source", len(task.source_contexts), rounds)
    target = sampled_rows(seed, "target", len(task.target_contexts), rounds)
    regret = np.zeros(0)
    with Client(url) as client, httpx.Client(base_url=url, timeout=60) as http:
        session = Session(client, http, f"paper-{uuid7()}", task.arms, config.episode_length)
        declare(session, task, method, seed)
        for now in strides(config, rounds):
            contexts = as_floats(task.source_contexts[source[now]])
            unlabeled = as_floats(task.target_contexts[target[now]])
            found = session.play(contexts, unlabeled, task.source_rewards[source[now]])
            regret = np.concatenate([regret, found])
            on_rounds(len(contexts))
        policy = open_exported(session.policy_bytes()).policy
    return {
        **scores(by_policy(policy), task, regret),
        "refusals": session.refusals,
        "updates": session.updates,
        "seconds": time.perf_counter() - started,
        "training_seconds": None,
        "transfer": None,
        "continued": None,
    }


def declare(session: Session, task: TransferTask, method: Method, seed: int) -> None:
    """Create the experiment; the task's arms and shape have places of their own."""
    values: Mapping[str, Any] = method.values(task)
    session.client.create_experiment(
        name=session.experiment,
        arms=list(task.arms),
        context={"kind": "shared", "shape": list(task.context_shape)},
        method=method.system,
        seed=seed,
        config={name: value for name, value in values.items() if name not in POINTERS},
    )
