"""One run as a job: all that decides its outcome, and the record it gives."""

import platform
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from benchmarks.datasets.registry import load
from benchmarks.datasets.task import TransferTask
from benchmarks.paper.continued import play_from_scratch, play_on, thinned_curve
from benchmarks.paper.methods import BY_NAME, SCRATCH, Method
from benchmarks.paper.playing import OnRounds, Run, play
from benchmarks.paper.runs import Key
from benchmarks.paper.scoring import by_learner, scores, transfer_signs
from model.config import RECIPE

SERVICE = "service"
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Job:
    """A run to make.

    `test_limit` 0: the whole test sets; `changes`: fields set beside the method's own; `via`: the
    address of a service.
    """

    dataset: str
    method: str
    seed: int
    rounds: int
    continued_rounds: int = 0
    device: str = "cpu"
    data: str | None = None
    test_limit: int = 0
    changes: tuple[tuple[str, Any], ...] = ()
    via: str | None = None

    @property
    def label(self) -> str:
        """What the progress bar says."""
        return f"{self.dataset} · {self.method} · seed {self.seed}"

    @property
    def total_rounds(self) -> int:
        """Rounds to be played in all."""
        return self.continued_rounds + (0 if self.method == SCRATCH.name else self.rounds)

    def outcome(self, record: Mapping[str, Any]) -> str:
        """Its record in one line."""
        parts = [self.label]
        if "target" in record:
            parts.append(f"target {record['target']:.4f}")
        if record["continued"]:
            parts.append(f"regret {record['continued']['regret'][-1]:.0f}")
        return f"{', '.join(parts)} in {record['seconds']:.0f} s"

    @property
    def device_kind(self) -> str:
        """Where it runs; results of different kinds are not mixed."""
        return SERVICE if self.via else torch.device(self.device).type

    def task(self) -> TransferTask:
        """The task it plays."""
        return loaded(self.dataset, self.data, self.test_limit)

    def changed_method(self) -> Method:
        """The method with the job's changes."""
        method = BY_NAME[self.method]
        return replace(method, changes={**method.changes, **dict(self.changes)})

    def key(self) -> Key:
        """What its record is known by."""
        return tuple(self._identity(self.task(), self.changed_method()).values())

    def run(self, on_rounds: OnRounds) -> dict[str, Any]:
        """Play it; the record of the finished run."""
        task, method = self.task(), self.changed_method()
        if self.method == SCRATCH.name:
            found = self._from_scratch(task, method, on_rounds)
        elif self.via:
            found = self._over_http(task, method, on_rounds)
        else:
            found = self._in_process(task, method, on_rounds)
        name = SERVICE if self.via else device_name(self.device)
        return {
            **self._identity(task, method),
            "recipe": RECIPE.version,
            "commit": checked_out(),
            "device": name,
            "finished_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            **found,
        }

    def _identity(self, task: TransferTask, method: Method) -> dict[str, Any]:
        """In the order of `runs.KEY`."""
        return {
            "dataset": self.dataset,
            "method": self.method,
            "seed": self.seed,
            "rounds": self.rounds,
            "test_count": len(task.test_contexts),
            "config_digest": method.config(task).digest(),
            "device_kind": self.device_kind,
        }

    def _in_process(
        self, task: TransferTask, method: Method, on_rounds: OnRounds
    ) -> dict[str, Any]:
        run = play(task, method.config(task), self.seed, self.rounds, self.device, on_rounds)
        # Taken before the target opens: these are the zero-shot figures.
        found = {
            **scores(by_learner(run.learner), task, run.regret),
            **_costs(run),
            "transfer": transfer_signs(run.learner),
            "continued": None,
        }
        if self.continued_rounds:
            regret = play_on(run, task, self.seed, self.continued_rounds, on_rounds)
            found["continued"] = thinned_curve(regret)
        return found

    def _from_scratch(
        self, task: TransferTask, method: Method, on_rounds: OnRounds
    ) -> dict[str, Any]:
        run, regret = play_from_scratch(
            task, method.config(task), self.seed, self.continued_rounds, self.device, on_rounds
        )
        return {**_costs(run), "continued": thinned_curve(regret)}

    def _over_http(self, task: TransferTask, method: Method, on_rounds: OnRounds) -> dict[str, Any]:
        # Needs the service's client, which a machine that only computes does not have.
        from benchmarks.paper.via import play_over_http

        assert self.via is not None
        return play_over_http(self.via, task, method, self.seed, self.rounds, on_rounds)


@lru_cache(maxsize=64)
def loaded(dataset: str, data: str | None, test_limit: int) -> TransferTask:
    """A task, read once a process, with at most `test_limit` contexts for testing (0: all)."""
    task = load(dataset, data)
    if not test_limit:
        return task
    names = ("test_contexts", "test_rewards", "source_test_contexts", "source_test_rewards")
    parts = {name: getattr(task, name) for name in names}
    return replace(
        task,
        **{name: part[:test_limit] for name, part in parts.items() if part is not None},
    )


@lru_cache(maxsize=1)
def checked_out() -> str | None:
    """The commit that runs, with a + behind it if files differ from it; None outside a repository."""
    try:
        commit, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain")
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{commit}+" if changes else commit


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603
    return found.stdout.strip()


def device_name(device: str) -> str:
    """The accelerator, or the processor."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} thread(s)"


def _costs(run: Run) -> dict[str, Any]:
    return {
        "refusals": sum(not verdict.is_accepted for verdict in run.verdicts),
        "updates": len(run.verdicts),
        "seconds": run.seconds,
        "training_seconds": run.training_seconds,
    }
