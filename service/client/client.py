"""A typed client, sync and async, with retries.

Every call is safe to retry: selects and restores have a request id, rewards have their decision's id, and
creating an identical experiment again is not an error.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import httpx

from service.client import calls, evaluation_calls
from service.client.calls import Call, ProblemError, Result, Round
from service.codec import answers, requests

__all__ = ["AsyncClient", "Client", "ProblemError", "Retries", "Round"]

DEFAULT_URL = "http://127.0.0.1:8000"
RETRIED = frozenset({408, 429, 502, 503, 504})
EXISTS = "experiment-exists"


@dataclass(frozen=True, slots=True)
class Retries:
    """Waits between attempts: doubling up to a limit, with up to half of it random."""

    attempts: int = 8
    first_seconds: float = 0.1
    max_seconds: float = 5.0

    def waits(self) -> Iterator[float]:
        """The wait before each retry."""
        for number in range(self.attempts - 1):
            longest = min(self.max_seconds, self.first_seconds * 2**number)
            yield random.uniform(longest / 2, longest)  # noqa: S311


def _asked_seconds(answer: httpx.Response) -> float:
    """The seconds of Retry-After."""
    given = answer.headers.get("Retry-After", "")
    return float(given) if given.isdigit() else 0.0


def _authorisation(api_key: str | None) -> dict[str, str]:
    return {} if api_key is None else {"Authorization": f"Bearer {api_key}"}


def _request(call: Call[Any]) -> dict[str, Any]:
    headers = {} if call.content is None else {"Content-Type": call.media}
    found: dict[str, Any] = {
        "method": call.method,
        "url": call.path,
        "content": call.content,
        "headers": headers,
    }
    if call.timeout_seconds is not None:
        found["timeout"] = call.timeout_seconds
    return found


class Client:
    """The synchronous client; close it, or use it with `with`."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        retries: Retries | None = None,
        *,
        api_key: str | None = None,
        timeout_seconds: float = 10.0,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._retries = retries or Retries()
        self._sleep = sleep
        self._http = httpx.Client(
            base_url=url,
            headers=_authorisation(api_key),
            timeout=timeout_seconds,
            transport=transport,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def create_experiment(self, **declared: Any) -> answers.Experiment:
        """Create an experiment, or return an identical existing one."""
        wanted = requests.ExperimentRequest(**declared)
        try:
            return self.send(calls.create_experiment(wanted))
        except ProblemError as problem:
            if problem.slug != EXISTS:
                raise
            found = self.experiment(wanted.name)
            if not calls.is_as_wanted(wanted, found):
                raise
            return found

    def experiments(self) -> list[answers.Experiment]:
        """All experiments, the oldest first."""
        return self.send(calls.experiments()).experiments

    def experiment(self, name: str) -> answers.Experiment:
        """An experiment as declared."""
        return self.send(calls.experiment(name))

    def evaluate(
        self, experiment: str, candidates: Sequence[Mapping[str, Any]], **options: Any
    ) -> answers.EvaluationJob:
        """Queue an offline evaluation of candidates on an experiment's log."""
        return self.send(evaluation_calls.evaluate(experiment, candidates, options))

    def evaluation(self, evaluation_id: str) -> answers.EvaluationJob:
        """An evaluation's status, with its result when it is done."""
        return self.send(evaluation_calls.evaluation(evaluation_id))

    def cancel_evaluation(self, evaluation_id: str) -> answers.EvaluationJob:
        """Cancel an evaluation, unless it has ended."""
        return self.send(evaluation_calls.cancel_evaluation(evaluation_id))

    def set_status(
        self,
        name: str,
        status: requests.Status,
        by: str | None = None,
        reason: str | None = None,
    ) -> answers.Experiment:
        """Pause (`paused`), archive (`archived`) or resume (`active`)."""
        return self.send(calls.set_status(name, status, by, reason))

    def delete_experiment(
        self, name: str, by: str | None = None, reason: str | None = None
    ) -> answers.Deleted:
        """Delete an experiment permanently, with all its data."""
        return self.send(calls.delete_experiment(name, by, reason))

    def acts(self, limit: int = 100) -> list[answers.Act]:
        """Administrative acts on experiments, including deleted ones, the newest first."""
        return (self.send(calls.acts(limit))).entries

    def select(self, experiment: str, round_: Round) -> answers.Selected:
        """Decide one round."""
        return self.send(calls.select(experiment, round_))

    def select_many(self, experiment: str, rounds: Iterable[Round]) -> list[answers.Selected]:
        """Decide many rounds under one policy, all or none."""
        return self.send(calls.select_many(experiment, rounds)).rounds

    def reward(self, decision_id: str, value: float) -> answers.Rewarded:
        """Report the reward of a decision."""
        return self.send(calls.reward(decision_id, value))

    def reward_many(self, rewards: Mapping[str, float]) -> list[answers.RewardOutcome]:
        """Report rewards by decision id; each is recorded or refused independently."""
        return self.send(calls.reward_many(rewards)).rewards

    def state(self, experiment: str) -> answers.State:
        """The state of an experiment."""
        return self.send(calls.state(experiment))

    def snapshots(self, experiment: str) -> list[answers.Snapshot]:
        """All kept snapshots, the newest first."""
        return self.send(calls.snapshots(experiment)).snapshots

    def restore(
        self, experiment: str, version: int, by: str | None = None, reason: str | None = None
    ) -> answers.Restored:
        """Roll back to a version; `by` and `reason` go into the audit trail."""
        return self.send(calls.restore(experiment, version, by, reason))

    def target_select(
        self,
        experiment: str,
        contexts: Any,
        confidence_floor: float | None = None,
        store: bool = False,
        request_id: str | None = None,
    ) -> answers.TargetSelected:
        """Decide with the frozen target policy, for at most 1000 contexts."""
        call = calls.target_select(experiment, contexts, confidence_floor, store, request_id)
        return self.send(call)

    def upload_contexts(
        self, experiment: str, contexts: Any, request_id: str | None = None
    ) -> answers.ContextsStored:
        """Store unlabeled target contexts (n, *shape), all or none."""
        return self.send(calls.upload_contexts(experiment, contexts, request_id))

    def open_target(self, experiment: str, best_reward: float = 1.0) -> answers.PhaseChanged:
        """Accept target rewards from now on, irrevocably."""
        return self.send(calls.open_target(experiment, best_reward))

    def transfer(self, experiment: str) -> answers.Transfer:
        """The transfer of an experiment, by encoder version."""
        return self.send(calls.transfer(experiment))

    def audit(self, experiment: str) -> list[answers.AuditEntry]:
        """The audit trail of an experiment, in order."""
        return self.send(calls.audit(experiment)).entries

    def candidates(self, experiment: str) -> list[answers.Candidate]:
        """Trained encoders that are not served, the newest first."""
        return self.send(calls.candidates(experiment)).candidates

    def promote(
        self, experiment: str, episode: int, by: str | None = None, reason: str | None = None
    ) -> answers.Promoted:
        """Promote a candidate; `by` and `reason` go into the audit trail."""
        return self.send(calls.promote(experiment, episode, by, reason))

    def train(
        self, experiment: str, by: str | None = None, reason: str | None = None
    ) -> answers.TrainingAsked:
        """Update the encoder now, or after the update under way; who and why go into the audit trail."""
        return self.send(calls.train(experiment, by, reason))

    def policy(self, experiment: str, version: int) -> bytes:
        """The target policy of a version, as a safetensors file."""
        return self.send(calls.policy(experiment, version))

    def report(self, experiment: str) -> str:
        """The transfer report, as an HTML page."""
        return (self.send(calls.report(experiment))).decode()

    def send(self, call: Call[Result]) -> Result:
        """Send a call, with retries, and return its answer."""
        request = _request(call)
        for wait in self._retries.waits():
            try:
                answer = self._http.request(**request)
                if answer.status_code not in RETRIED:
                    return call.read(answer)
                self._sleep(max(wait, _asked_seconds(answer)))
            except httpx.TransportError:
                self._sleep(wait)
        return call.read(self._http.request(**request))


class AsyncClient:
    """The client for asyncio; close it, or use it with `async with`."""

    def __init__(
        self,
        url: str = DEFAULT_URL,
        retries: Retries | None = None,
        *,
        api_key: str | None = None,
        timeout_seconds: float = 10.0,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._retries = retries or Retries()
        self._sleep = sleep
        self._http = httpx.AsyncClient(
            base_url=url,
            headers=_authorisation(api_key),
            timeout=timeout_seconds,
            transport=transport,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def create_experiment(self, **declared: Any) -> answers.Experiment:
        """Create an experiment, or return an identical existing one."""
        wanted = requests.ExperimentRequest(**declared)
        try:
            return await self.send(calls.create_experiment(wanted))
        except ProblemError as problem:
            if problem.slug != EXISTS:
                raise
            found = await self.experiment(wanted.name)
            if not calls.is_as_wanted(wanted, found):
                raise
            return found

    async def experiments(self) -> list[answers.Experiment]:
        """All experiments, the oldest first."""
        return (await self.send(calls.experiments())).experiments

    async def experiment(self, name: str) -> answers.Experiment:
        """An experiment as declared."""
        return await self.send(calls.experiment(name))

    async def evaluate(
        self, experiment: str, candidates: Sequence[Mapping[str, Any]], **options: Any
    ) -> answers.EvaluationJob:
        """Queue an offline evaluation of candidates on an experiment's log."""
        return await self.send(evaluation_calls.evaluate(experiment, candidates, options))

    async def evaluation(self, evaluation_id: str) -> answers.EvaluationJob:
        """An evaluation's status, with its result when it is done."""
        return await self.send(evaluation_calls.evaluation(evaluation_id))

    async def cancel_evaluation(self, evaluation_id: str) -> answers.EvaluationJob:
        """Cancel an evaluation, unless it has ended."""
        return await self.send(evaluation_calls.cancel_evaluation(evaluation_id))

    async def set_status(
        self,
        name: str,
        status: requests.Status,
        by: str | None = None,
        reason: str | None = None,
    ) -> answers.Experiment:
        """Pause (`paused`), archive (`archived`) or resume (`active`)."""
        return await self.send(calls.set_status(name, status, by, reason))

    async def delete_experiment(
        self, name: str, by: str | None = None, reason: str | None = None
    ) -> answers.Deleted:
        """Delete an experiment permanently, with all its data."""
        return await self.send(calls.delete_experiment(name, by, reason))

    async def acts(self, limit: int = 100) -> list[answers.Act]:
        """Administrative acts on experiments, including deleted ones, the newest first."""
        return (await self.send(calls.acts(limit))).entries

    async def select(self, experiment: str, round_: Round) -> answers.Selected:
        """Decide one round."""
        return await self.send(calls.select(experiment, round_))

    async def select_many(self, experiment: str, rounds: Iterable[Round]) -> list[answers.Selected]:
        """Decide many rounds under one policy, all or none."""
        return (await self.send(calls.select_many(experiment, rounds))).rounds

    async def reward(self, decision_id: str, value: float) -> answers.Rewarded:
        """Report the reward of a decision."""
        return await self.send(calls.reward(decision_id, value))

    async def reward_many(self, rewards: Mapping[str, float]) -> list[answers.RewardOutcome]:
        """Report rewards by decision id; each is recorded or refused independently."""
        return (await self.send(calls.reward_many(rewards))).rewards

    async def state(self, experiment: str) -> answers.State:
        """The state of an experiment."""
        return await self.send(calls.state(experiment))

    async def snapshots(self, experiment: str) -> list[answers.Snapshot]:
        """All kept snapshots, the newest first."""
        return (await self.send(calls.snapshots(experiment))).snapshots

    async def restore(
        self, experiment: str, version: int, by: str | None = None, reason: str | None = None
    ) -> answers.Restored:
        """Roll back to a version; `by` and `reason` go into the audit trail."""
        return await self.send(calls.restore(experiment, version, by, reason))

    async def target_select(
        self,
        experiment: str,
        contexts: Any,
        confidence_floor: float | None = None,
        store: bool = False,
        request_id: str | None = None,
    ) -> answers.TargetSelected:
        """Decide with the frozen target policy, for at most 1000 contexts."""
        call = calls.target_select(experiment, contexts, confidence_floor, store, request_id)
        return await self.send(call)

    async def upload_contexts(
        self, experiment: str, contexts: Any, request_id: str | None = None
    ) -> answers.ContextsStored:
        """Store unlabeled target contexts (n, *shape), all or none."""
        return await self.send(calls.upload_contexts(experiment, contexts, request_id))

    async def open_target(self, experiment: str, best_reward: float = 1.0) -> answers.PhaseChanged:
        """Accept target rewards from now on, irrevocably."""
        return await self.send(calls.open_target(experiment, best_reward))

    async def transfer(self, experiment: str) -> answers.Transfer:
        """The transfer of an experiment, by encoder version."""
        return await self.send(calls.transfer(experiment))

    async def audit(self, experiment: str) -> list[answers.AuditEntry]:
        """The audit trail of an experiment, in order."""
        return (await self.send(calls.audit(experiment))).entries

    async def candidates(self, experiment: str) -> list[answers.Candidate]:
        """Trained encoders that are not served, the newest first."""
        return (await self.send(calls.candidates(experiment))).candidates

    async def promote(
        self, experiment: str, episode: int, by: str | None = None, reason: str | None = None
    ) -> answers.Promoted:
        """Promote a candidate; `by` and `reason` go into the audit trail."""
        return await self.send(calls.promote(experiment, episode, by, reason))

    async def train(
        self, experiment: str, by: str | None = None, reason: str | None = None
    ) -> answers.TrainingAsked:
        """Update the encoder now, or after the update under way; who and why go into the audit trail."""
        return await self.send(calls.train(experiment, by, reason))

    async def policy(self, experiment: str, version: int) -> bytes:
        """The target policy of a version, as a safetensors file."""
        return await self.send(calls.policy(experiment, version))

    async def report(self, experiment: str) -> str:
        """The transfer report, as an HTML page."""
        return (await self.send(calls.report(experiment))).decode()

    async def send(self, call: Call[Result]) -> Result:
        """Send a call, with retries, and return its answer."""
        request = _request(call)
        for wait in self._retries.waits():
            try:
                answer = await self._http.request(**request)
                if answer.status_code not in RETRIED:
                    return call.read(answer)
                await self._sleep(max(wait, _asked_seconds(answer)))
            except httpx.TransportError:
                await self._sleep(wait)
        return call.read(await self._http.request(**request))
