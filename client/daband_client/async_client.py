"""The client. `client.py` is made of this file: run `python client/write_sync.py` after a change."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import httpx

from daband_client import answers, batches, settings
from daband_client.bodies import AsyncFileBody
from daband_client.calls import IMPORT_SECONDS, LONG_SECONDS, Call, given, path
from daband_client.contexts import Round, as_round
from daband_client.errors import NotTrainedError, ProblemError
from daband_client.frames import frame_rows, is_frame
from daband_client.ids import new_id
from daband_client.retries import Attempts, Retries
from daband_client.settings import Limits

T = TypeVar("T")

LOOK_SECONDS = 0.1  # between two looks at the state


class AsyncClient:
    """A running service; close the client, or use it with `async with`.

    Every call can be sent twice without harm, so each is sent again after a failure that may pass.
    """

    def __init__(
        self,
        url: str | None = None,
        retries: Retries | None = None,
        *,
        api_key: str | None = None,
        timeout_seconds: float = 10.0,
        limits: Limits | None = None,
        headers: Mapping[str, str] | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`url` and `api_key` are those of `DABAND_URL` and `DABAND_API_KEY` when left out.

        `headers` go with every request, for a proxy, say.
        """
        self._retries = retries or Retries()
        self._limits = limits or Limits()
        self._sleep = sleep
        self._had_answer = False
        self._http = httpx.AsyncClient(
            base_url=settings.address(url),
            headers=settings.headers(api_key, headers),
            timeout=settings.timeout(timeout_seconds),
            transport=transport,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let the connections go."""
        await self._http.aclose()

    @property
    def url(self) -> str:
        """Where the service is; may be set."""
        return str(self._http.base_url).rstrip("/")

    @url.setter
    def url(self, url: str) -> None:
        self._http.base_url = settings.address(url)
        self._had_answer = False

    # Experiments

    async def create_experiment(
        self,
        name: str,
        arms: Sequence[str],
        context: Mapping[str, Any],
        *,
        method: str = "daband-plus",
        seed: int = 0,
        config: Mapping[str, Any] | None = None,
        fallback_arm: str | None = None,
        durability: Literal["durable", "relaxed"] = "durable",
        reward_range: tuple[float, float] | None = None,
    ) -> answers.Experiment:
        """Create an experiment, or find it there just as declared.

        `context` is `{"kind": "shared", "shape": [16]}`, or of kind `per_arm`, `table` or `image`.
        `reward_range` is what 0 and 1 mean in the unit of an imported history's rewards.
        """
        wanted = {
            "name": name,
            "arms": list(arms),
            "context": dict(context),
            "method": method,
            "seed": seed,
            "config": dict(config or {}),
            "fallback_arm": fallback_arm,
            "durability": durability,
            "reward_range": None if reward_range is None else list(map(float, reward_range)),
        }
        try:
            return await self.send(Call("POST", "/experiments", answers.Experiment, wanted))
        except ProblemError as problem:
            if problem.slug != "experiment-exists":
                raise
            found = await self.experiment(name)
            if not found.declared.is_as(wanted):
                raise
            return found

    async def experiments(self) -> list[answers.Experiment]:
        """All experiments, the oldest first."""
        answer = await self.send(Call("GET", "/experiments", answers.ExperimentList))
        return answer.experiments

    async def experiment(self, name: str) -> answers.Experiment:
        """An experiment: as declared, and the configuration in force."""
        return await self.send(Call("GET", path("experiments", name), answers.Experiment))

    async def state(self, experiment: str) -> answers.State:
        """Where an experiment stands."""
        return await self.send(Call("GET", path("experiments", experiment, "state"), answers.State))

    async def set_status(
        self,
        experiment: str,
        status: Literal["active", "paused", "archived"],
        by: str | None = None,
        reason: str | None = None,
    ) -> answers.Experiment:
        """Pause, archive or resume (`active`); who and why go into the audit trail."""
        body = given(status=status, by=by, reason=reason)
        return await self.send(
            Call("PATCH", path("experiments", experiment), answers.Experiment, body)
        )

    async def delete_experiment(
        self, experiment: str, by: str | None = None, reason: str | None = None
    ) -> answers.Deleted:
        """Delete an experiment for good, with all its data."""
        to = path("experiments", experiment, confirm=experiment, by=by, reason=reason)
        return await self.send(Call("DELETE", to, answers.Deleted))

    async def open_target(
        self,
        experiment: str,
        best_reward: float = 1.0,
        by: str | None = None,
        reason: str | None = None,
    ) -> answers.PhaseChanged:
        """Open the target for rewards, for good; who and why go into the audit trail."""
        body = given(phase="continued", best_reward=float(best_reward), by=by, reason=reason)
        to = path("experiments", experiment, "phase")
        return await self.send(Call("POST", to, answers.PhaseChanged, body))

    async def audit(self, experiment: str) -> list[answers.AuditEntry]:
        """What happened to an experiment, in order."""
        to = path("experiments", experiment, "audit")
        answer = await self.send(Call("GET", to, answers.AuditTrail))
        return answer.entries

    async def acts(self, limit: int = 100) -> list[answers.Act]:
        """What was done to experiments, deleted ones included, the newest first."""
        answer = await self.send(Call("GET", path("audit", limit=limit), answers.Acts))
        return answer.entries

    # Rounds

    async def select(self, experiment: str, round_: Round) -> answers.Selected:
        """Decide one round."""
        body = {"experiment": experiment, **as_round(round_).body()}
        return await self.send(Call("POST", "/select", answers.Selected, body))

    async def select_many(
        self, experiment: str, rounds: Iterable[Round], request_id: str | None = None
    ) -> list[answers.Selected]:
        """Decide any number of rounds, 1000 at a time; each 1000 are decided all or none.

        Where rounds have so many arms that the service takes fewer at a time, so many are.
        """
        whole, listed = request_id or new_id(), list(rounds)
        parts = await self._send_all(
            lambda limits: batches.select_calls(experiment, listed, whole, limits)
        )
        return [each for part in parts for each in part.rounds]

    async def reward(self, decision_id: str, value: float) -> answers.Rewarded:
        """Report the reward of a decision, a number from 0 to 1."""
        body = {"decision_id": decision_id, "reward": float(value)}
        return await self.send(Call("POST", "/reward", answers.Rewarded, body))

    async def reward_many(self, rewards: Mapping[str, float]) -> list[answers.RewardOutcome]:
        """Report any number of rewards by decision id; each is recorded or refused by itself."""
        calls = batches.reward_calls(rewards, self._limits)
        parts = [await self.send(call) for call in calls]
        return [each for part in parts for each in part.rewards]

    async def import_history(
        self,
        experiment: str,
        table: Path | bytes,
        *,
        arm: str,
        reward: str,
        time: str | None = None,
        propensity: str | None = None,
        id: str | None = None,
        ignore: Sequence[str] = (),
        image: str | None = None,
        media: str | None = None,
        csv: Mapping[str, str] | None = None,
    ) -> answers.HistoryImported:
        """Import past rounds from a table, whole or not at all: CSV, Parquet or JSON lines.

        The arguments name columns; all others are context. The same table is imported once. Bytes
        need their `media` type; `csv` may say `separator`, `decimal` and `encoding`. Rounds of images
        are a zip archive of the images and one table; `image` is its column of their names.
        """
        columns = given(
            arm=arm, reward=reward, time=time, propensity=propensity, id=id, image=image
        )
        to = path("experiments", experiment, "history", **columns, ignore=ignore, **(csv or {}))
        content, kind = batches.table_body(table, media, AsyncFileBody)
        return await self.send(
            Call("POST", to, answers.HistoryImported, content, kind, IMPORT_SECONDS)
        )

    # The target

    async def target_select(
        self,
        experiment: str,
        contexts: Any,
        confidence_floor: float | None = None,
        store: bool = False,
        request_id: str | None = None,
        eligible_arms: Sequence[str] | None = None,
    ) -> answers.TargetSelected:
        """Ask the frozen target policy for any number of contexts, 1000 at a time.

        `contexts` are a DataFrame, a row of one (a Series), an array (n, …), a list, or a folder of
        images. With `store` they are kept as unlabeled data. The versions of the answer are those of
        the last 1000.
        """
        fields = given(
            experiment=experiment,
            confidence_floor=None if confidence_floor is None else float(confidence_floor),
            store=store,
            eligible_arms=None if eligible_arms is None else list(eligible_arms),
        )
        whole = request_id or new_id()
        rows = await self._rows(experiment, contexts)
        parts = await self._send_all(
            lambda limits: batches.target_calls(rows, fields, whole, limits)
        )
        return batches.joined_targets(parts, whole)

    async def nearest(
        self,
        experiment: str,
        contexts: Any,
        count: int = 3,
        eligible_arms: Sequence[str] | None = None,
    ) -> answers.NearestRounds:
        """The source rounds nearest to target contexts, as the encoder sees them; at most 100 for all together.

        `contexts` are given as for `target_select`. The key needs the scope that reads the log.
        """
        fields = given(
            count=int(count), eligible_arms=None if eligible_arms is None else list(eligible_arms)
        )
        rows = await self._rows(experiment, contexts)
        return await self.send(batches.nearest_call(experiment, rows, fields))

    async def upload_contexts(
        self, experiment: str, contexts: Any, request_id: str | None = None
    ) -> answers.ContextsStored:
        """Store unlabeled target contexts: a DataFrame or a row of it, an array, a list, images in a folder or zip.

        All or none of each part are stored; a part has at most 10^6 contexts and 256 MiB.
        """
        whole = request_id or new_id()
        rows = await self._rows(experiment, contexts)
        calls = batches.upload_calls(experiment, rows, whole, self._limits)
        parts = [await self.send(call) for call in calls]
        return batches.joined_uploads(parts, whole)

    async def transfer(self, experiment: str) -> answers.Transfer:
        """How the source carries over, by encoder version."""
        to = path("experiments", experiment, "transfer")
        return await self.send(Call("GET", to, answers.Transfer))

    async def report(self, experiment: str) -> str:
        """The transfer report, as an HTML page."""
        to = path("experiments", experiment, "report")
        return await self.send(Call("GET", to, str, timeout_seconds=LONG_SECONDS))

    async def log(
        self,
        experiment: str,
        before: int | None = None,
        *,
        limit: int = 50,
        domain: Literal["source", "target"] | None = None,
        arm: str | None = None,
        rewarded: bool | None = None,
    ) -> answers.LogPage:
        """Decisions with their rewards, the newest first; `next_before` of a page leads to the next.

        A page may have fewer than `limit` where filters are given, or none.
        """
        asked = given(before=before, limit=limit, domain=domain, arm=arm)
        if rewarded is not None:
            asked["rewarded"] = str(rewarded).lower()
        to = path("experiments", experiment, "log", **asked)
        return await self.send(Call("GET", to, answers.LogPage))

    async def decision(self, experiment: str, decision_id: str) -> answers.DecisionAgain:
        """One decision of the log, beside the same one derived again by its policy version."""
        to = path("experiments", experiment, "decisions", decision_id)
        return await self.send(Call("GET", to, answers.DecisionAgain))

    async def learning(
        self, experiment: str, domain: Literal["source", "target"] = "source", points: int = 60
    ) -> answers.Learning:
        """Mean reward and regret along the log, and what each arm earned."""
        to = path("experiments", experiment, "learning", domain=domain, points=points)
        return await self.send(Call("GET", to, answers.Learning))

    async def latents(self, experiment: str, limit: int = 300) -> answers.Latents:
        """Encoded contexts of both domains in two directions, at most `limit` of each."""
        to = path("experiments", experiment, "latents", limit=limit)
        return await self.send(Call("GET", to, answers.Latents))

    # Snapshots and candidates

    async def snapshots(self, experiment: str) -> list[answers.Snapshot]:
        """The snapshots that are kept, the newest first."""
        to = path("experiments", experiment, "snapshots")
        answer = await self.send(Call("GET", to, answers.SnapshotList))
        return answer.snapshots

    async def restore(
        self, experiment: str, version: int, by: str | None = None, reason: str | None = None
    ) -> answers.Restored:
        """Roll back to a version; who and why go into the audit trail."""
        to = path("experiments", experiment, "snapshots", version, "restore")
        body = given(request_id=new_id(), by=by, reason=reason)
        return await self.send(Call("POST", to, answers.Restored, body))

    async def policy(self, experiment: str, version: int) -> bytes:
        """The target policy of a version, as a safetensors file."""
        to = path("experiments", experiment, "snapshots", version, "policy")
        return await self.send(Call("GET", to, bytes, timeout_seconds=LONG_SECONDS))

    async def candidates(self, experiment: str) -> list[answers.Candidate]:
        """Trained encoders that do not serve, the newest first."""
        to = path("experiments", experiment, "candidates")
        answer = await self.send(Call("GET", to, answers.CandidateList))
        return answer.candidates

    async def promote(
        self, experiment: str, episode: int, by: str | None = None, reason: str | None = None
    ) -> answers.Promoted:
        """Serve a candidate all the same; who and why go into the audit trail."""
        to = path("experiments", experiment, "candidates", episode, "promote")
        body = given(request_id=new_id(), by=by, reason=reason)
        return await self.send(Call("POST", to, answers.Promoted, body))

    async def train(
        self, experiment: str, by: str | None = None, reason: str | None = None
    ) -> answers.TrainingAsked:
        """Update the encoder now, or after the update under way; who and why go into the audit trail."""
        body = given(request_id=new_id(), by=by, reason=reason)
        to = path("experiments", experiment, "train")
        return await self.send(Call("POST", to, answers.TrainingAsked, body))

    async def wait_until_trained(
        self,
        experiment: str,
        timeout_seconds: float = 600.0,
        on_look: Callable[[answers.State], object] = lambda state: None,
    ) -> answers.State:
        """The state once all rewards are learned and no update is due; `on_look` gets each before."""
        for _ in range(max(1, round(timeout_seconds / LOOK_SECONDS))):
            state = await self.state(experiment)
            if state.training.status == "failing":
                raise NotTrainedError(f"learning failed: {state.training.reason}")
            if state.is_settled:
                return state
            on_look(state)
            await self._sleep(LOOK_SECONDS)
        raise NotTrainedError(f"{experiment} was not trained within {timeout_seconds:g} s")

    async def candidate_policy(self, experiment: str, episode: int) -> bytes:
        """The target policy of a candidate as if it served, as a safetensors file."""
        to = path("experiments", experiment, "candidates", episode, "policy")
        return await self.send(Call("GET", to, bytes, timeout_seconds=LONG_SECONDS))

    # Offline evaluation

    async def evaluate(
        self,
        experiment: str,
        candidates: Sequence[Mapping[str, Any]],
        *,
        confidence: float = 0.95,
        domain: Literal["source", "target"] = "source",
        target: bool = False,
        seed: int = 0,
        request_id: str | None = None,
    ) -> answers.EvaluationJob:
        """Queue an evaluation of candidates on an experiment's log.

        A candidate is `{"kind": "uniform"}`, `{"kind": "arm", "arm": "low"}`, … (docs/api.md).
        """
        body = {
            "experiment": experiment,
            "candidates": [dict(each) for each in candidates],
            "confidence": confidence,
            "domain": domain,
            "target": target,
            "seed": seed,
            "request_id": request_id or new_id(),
        }
        return await self.send(Call("POST", "/evaluations", answers.EvaluationJob, body))

    async def evaluations(self, limit: int = 100) -> list[answers.EvaluationJob]:
        """The newest evaluations first, without their results."""
        to = path("evaluations", limit=limit)
        answer = await self.send(Call("GET", to, answers.EvaluationList))
        return answer.evaluations

    async def evaluation(self, evaluation_id: str) -> answers.EvaluationJob:
        """Where an evaluation stands, with its result once it is done."""
        return await self.send(
            Call("GET", path("evaluations", evaluation_id), answers.EvaluationJob)
        )

    async def cancel_evaluation(self, evaluation_id: str) -> answers.EvaluationJob:
        """Stop an evaluation; one that has ended stays as it is."""
        to = path("evaluations", evaluation_id, "cancel")
        return await self.send(Call("POST", to, answers.EvaluationJob, {}))

    async def evaluation_report(self, evaluation_id: str) -> str:
        """The result of an evaluation, as an HTML page."""
        to = path("evaluations", evaluation_id, "report")
        return await self.send(Call("GET", to, str, timeout_seconds=LONG_SECONDS))

    async def _rows(self, experiment: str, contexts: Any) -> Any:
        """A data frame as rows where the experiment's contexts are rows of a table."""
        if not is_frame(contexts):
            return contexts
        columns = (await self.experiment(experiment)).context.columns
        return contexts if columns is None else frame_rows(contexts, columns)

    # Sending

    async def _send_all(self, calls: Callable[[Limits], Iterable[Call[T]]]) -> list[T]:
        """The answers to a batch's calls, which are made smaller if the service asks for it."""
        limits = self._limits
        while True:
            try:
                return [await self.send(call) for call in calls(limits)]
            except ProblemError as problem:
                limits = limits.after(problem)

    async def send(self, call: Call[T]) -> T:
        """Send a call until it is answered for good or the attempts are used up."""
        request = call.request()
        attempts = Attempts(self._retries, self.url, self._had_answer)
        while True:
            try:
                answer = await self._http.request(**request)
            except httpx.TransportError as error:
                wait = attempts.after_error(error)
            else:
                self._had_answer = True
                again = attempts.after_answer(answer)
                if again is None:
                    return call.read(answer)
                wait = again
            await self._sleep(wait)
