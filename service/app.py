"""The composition root: builds all parts and connects them."""

import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache, partial
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from service.auth.key_ring import KeyRing
from service.auth.sessions import Sessions
from service.bus.bus import InProcessBus, RedisBus, RedisOptions, SnapshotBus
from service.bus.refusals import Refusal
from service.console.pages.system import SystemFacts
from service.console.problem_pages import ProblemPages
from service.console.routing import console_routes, open_console
from service.deciding.batcher import RequestBatcher
from service.deciding.long_work import LongWork
from service.deciding.policies import Policies, PolicyOptions
from service.deciding.request_limits import RequestLimits
from service.deciding.reward import Rewarding
from service.deciding.scorer import Placement, Scorer
from service.deciding.select import RecentDecisions, Selecting
from service.deciding.target import TargetSelecting
from service.deciding.uploads import Uploading
from service.deciding.versions import Versions
from service.evaluating.jobs import EvaluationJobs
from service.evaluating.running import EvaluationStores
from service.evaluating.unfinished import UnfinishedHistories
from service.evaluating.uploaded_log import UploadedLogs
from service.http.concurrency_limit import ConcurrencyLimit, LoadLimits, MetricsBuffer, Shedding
from service.http.cors import CrossOrigin, SecurityHeaders
from service.http.dialects import Dialects
from service.http.fast_path import FastPath, FastRoutes
from service.http.middleware import (
    Admission,
    Admit,
    Authorising,
    Guard,
    Limits,
    RequestScope,
    admit_everyone,
)
from service.http.problems import Problems
from service.learning.jobs.job import JobRunner, ThreadRunner
from service.learning.jobs.process_runner import ProcessRunner
from service.learning.jobs.queue import JobQueue
from service.learning.resources import TrainerOptions, TrainerStores
from service.learning.trainer import Trainer
from service.metrics import Metrics
from service.ops import tracing
from service.ops.supervisor import Readiness, Supervisor
from service.routes import (
    candidates,
    decisions,
    evaluations,
    experiments,
    history,
    lifecycle,
    ops,
    snapshots,
    target,
    transfer,
)
from service.routes.browsing import decision, export, learning, log as log_pages, nearest
from service.routes.documentation import add_docs_page, describe
from service.routes.protocols import flags, inference
from service.services import Services
from service.settings import Settings, shown
from service.storage.audit import AuditTrail
from service.storage.candidates import Candidates
from service.storage.database import Database, DatabaseOptions
from service.storage.drivers import migrate
from service.storage.erasing import Erasing
from service.storage.evaluations import Evaluations
from service.storage.events.browsing import Browsing
from service.storage.events.group_commit import CommitOptions
from service.storage.events.history import History
from service.storage.events.history_parts import HistoryParts
from service.storage.events.log import EventLog
from service.storage.experiments import Experiments
from service.storage.keys import Keys
from service.storage.learning_failures import LearningFailures
from service.storage.leases import Leases
from service.storage.snapshots import Snapshots
from service.storage.startup import patiently
from service.storage.transfers import Transfers

# The fraction of a trainer's time for publishing, inside a serving process and in its own process.
INSIDE_FRACTION, ALONE_FRACTION = 0.1, 0.5
# Of the memory of current policies, what earlier versions may take beside them.
EARLIER_FRACTION = 0.125

log = logging.getLogger(__name__)


class OutdatedSchemaError(Exception):
    """The database schema is not the one that this version needs: run `daband migrate`."""

    def __init__(self) -> None:
        super().__init__(type(self).__doc__)


class ServiceApp(FastAPI):
    """FastAPI behind our middleware, with the fast path beside it."""

    middleware_app: ASGIApp
    shedding: Shedding
    fast_path: FastPath

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the middleware, which calls `without_middleware` for requests that it does not answer."""
        await self.middleware_app(scope, receive, send)

    async def without_middleware(self, scope: Scope, receive: Receive, send: Send) -> None:
        """FastAPI without our middleware."""
        await super().__call__(scope, receive, send)


@cache
def api_routes() -> list[BaseRoute]:
    """The routes of the API; FastAPI prepares them with the first request, once for all apps."""
    routers = (
        decisions.router,
        target.fast_router,
        target.router,
        experiments.router,
        history.router,
        lifecycle.router,
        snapshots.router,
        candidates.router,
        transfer.router,
        log_pages.router,
        decision.router,
        export.router,
        nearest.router,
        learning.router,
        evaluations.router,
        ops.router,
        inference.router,
        flags.router,
    )
    api = APIRouter()
    for router in routers:
        api.include_router(router)
    return api.routes


def create_app(settings: Settings) -> ServiceApp:
    """The service as an ASGI app; it opens nothing before its lifespan begins."""
    metrics, readiness, keys = Metrics(), Readiness(), KeyRing()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, Services]]:
        async with running_services(settings, metrics, readiness, keys) as services:
            yield {"services": services}  # the state of every request

    app = ServiceApp(
        title="daband",
        version="1",
        description="Decisions by domain-adaptive contextual bandits.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        routes=[*api_routes(), *console_routes()],
    )
    app.state.readiness = readiness
    add_docs_page(app)
    sessions = Sessions(keys, settings.console_signing_key.get_secret_value())
    facts = SystemFacts(shown(settings), settings.grafana_url, settings.needs_keys)
    open_console(app, sessions if settings.needs_keys else None, facts)
    app.openapi = lambda: describe(app, needs_keys=settings.needs_keys)  # type: ignore[method-assign]
    _add_middleware(app, settings, metrics, readiness, keys, sessions)
    return app


def _add_middleware(
    app: ServiceApp,
    settings: Settings,
    metrics: Metrics,
    readiness: Readiness,
    keys: KeyRing,
    sessions: Sessions,
) -> None:
    """Wrap the app in middleware; the last added runs first."""
    problems = Problems(metrics)
    problems.install(app)
    limit = ConcurrencyLimit(LoadLimits(settings.max_in_flight, settings.overload_seconds))
    buffer = MetricsBuffer(metrics, limit)
    limits = Limits(
        settings.max_body_bytes,
        settings.body_timeout_seconds,
        settings.max_upload_bytes,
    )
    outermost = app.build_middleware_stack()
    # `RequestScope` answers crashes as problems instead of Starlette's middleware.
    assert isinstance(outermost, ServerErrorMiddleware)  # noqa: S101
    app.middleware_stack = outermost.app
    fast = (*decisions.router.routes, *target.fast_router.routes)
    routes = FastRoutes(app.without_middleware, routes=fast, problems=problems)
    admission = Admission(routes, problems=problems, limits=limits)
    guard = Guard(admission, _admitting(settings, problems, keys, sessions))
    requests = RequestScope(
        guard,
        problems=problems,
        buffer=buffer,
        readiness=readiness,
        slow_seconds=settings.slow_request_seconds,
    )
    origins = CrossOrigin(
        requests,
        problems=problems,
        allowed=settings.allowed_origins,
        is_unguarded=not settings.needs_keys,
    )
    app.shedding = Shedding(
        origins, metrics=metrics, buffer=buffer, readiness=readiness, limit=limit
    )
    app.middleware_app = SecurityHeaders(ProblemPages(Dialects(app.shedding)))
    app.fast_path = FastPath(
        routes=routes, guard=guard, requests=requests, shedding=app.shedding, limits=limits
    )


def _admitting(settings: Settings, problems: Problems, keys: KeyRing, sessions: Sessions) -> Admit:
    """The check of API keys, if keys are required."""
    if settings.needs_keys:
        return Authorising(
            problems=problems,
            keys=keys.caller,
            sessions=sessions.caller,
            is_metrics_open=settings.metrics_open,
        ).admit
    if not settings.is_loopback:
        log.warning("API keys are off: every caller has full access", extra={"action": "keys_off"})
    return admit_everyone


@asynccontextmanager
async def running_services(
    settings: Settings, metrics: Metrics, readiness: Readiness, keys: KeyRing
) -> AsyncIterator[Services]:
    """All running services; on exit they close in reverse order, after accepted events are written."""
    async with AsyncExitStack() as stack:
        stack.enter_context(tracing.exporting(settings.trace_endpoint, "api"))
        if tracing.is_on():
            message = "requests are traced: selects are not batched"
            log.info(message, extra={"action": "tracing_on"})
        database = await stack.enter_async_context(opened_database(settings, metrics, waits=True))
        stores, supervisor = await _running_stores(stack, database, settings, metrics, readiness)
        if settings.needs_keys:
            store = Keys(database)
            await patiently(database, partial(keys.refresh, store), settings.startup_seconds)
            supervisor.start("keys", keys.follow(store, settings.key_poll_seconds))
        placement = Placement(settings.device, metrics.lost_devices.inc)
        scorer = Scorer(placement, settings.max_waiting, metrics.observe_scoring)
        stack.push_async_callback(scorer.close)
        policies = Policies(
            stores.experiments,
            stores.snapshots,
            stores.bus,
            placement,
            PolicyOptions(settings.poll_seconds, settings.policy_memory_bytes),
            metrics,
        )
        supervisor.start_restarting("policies", policies.run)
        if settings.trainer_inside:
            # Serving never depends on training: a trainer that dies is restarted.
            inside = _supervise(stack, metrics, readiness)
            work = _background_work(stores, database, settings, metrics, INSIDE_FRACTION)
            for name, make in work.items():
                inside.start_restarting(name, make)
        recent = RecentDecisions()
        request_limits, long_work = RequestLimits(settings.decision_limits), LongWork()
        stack.callback(long_work.close)
        selecting = Selecting(scorer, stores.event_log, recent, metrics, request_limits, long_work)
        uploading = Uploading(stores.event_log, stores.bus, metrics)
        evaluations = Evaluations(database)
        uploaded_logs = UploadedLogs(evaluations, settings.budget_limits)
        stack.push_async_callback(uploaded_logs.close)
        yield Services(
            **vars(stores),
            database=database,
            history=History(database),
            browsing=Browsing(database),
            audit=AuditTrail(database),
            evaluations=evaluations,
            uploaded_logs=uploaded_logs,
            policies=policies,
            versions=Versions(
                stores.snapshots,
                placement,
                int(EARLIER_FRACTION * settings.policy_memory_bytes),
            ),
            selecting=selecting,
            batcher=RequestBatcher(selecting),
            rewarding=Rewarding(stores.experiments, stores.event_log, stores.bus, recent, metrics),
            target_selecting=TargetSelecting(
                uploading, metrics, request_limits, long_work, placement
            ),
            uploading=uploading,
            readiness=readiness,
            metrics=metrics,
            limits=settings.budget_limits,
            request_limits=request_limits,
            long_work=long_work,
        )


@asynccontextmanager
async def running_trainer(
    settings: Settings, metrics: Metrics, readiness: Readiness
) -> AsyncIterator[None]:
    """A running trainer in its own process."""
    async with AsyncExitStack() as stack:
        stack.enter_context(tracing.exporting(settings.trace_endpoint, "trainer"))
        database = await stack.enter_async_context(
            opened_database(settings, metrics, waits=True, is_patient=True)
        )
        stores, _ = await _running_stores(stack, database, settings, metrics, readiness)
        supervisor = _supervise(stack, metrics, readiness)
        work = _background_work(stores, database, settings, metrics, ALONE_FRACTION)
        for name, make in work.items():
            supervisor.start(name, make())
        yield


@asynccontextmanager
async def opened_database(
    settings: Settings,
    metrics: Metrics | None = None,
    *,
    waits: bool = False,
    is_patient: bool = False,
) -> AsyncIterator[Database]:
    """The database that the settings name, with the schema that this code needs.

    With `waits` it may still be starting.
    """
    options = DatabaseOptions(
        timeout_seconds=settings.storage_timeout_seconds,
        lock_timeout_seconds=0.8 * settings.storage_timeout_seconds,
        is_patient=is_patient,
        archive_place=settings.archive_place,
    )
    metrics = metrics or Metrics()
    on_error = metrics.count_storage_error
    async with Database.opened(settings.storage_url, options, on_error) as database:
        check = partial(_ensure_schema, database, settings)
        await patiently(database, check, settings.startup_seconds if waits else 0)
        yield database


async def _ensure_schema(database: Database, settings: Settings) -> None:
    if await migrate.is_current(database):
        return
    if not settings.is_embedded:
        raise OutdatedSchemaError
    await migrate.upgrade(database)
    log.info("the embedded database was migrated", extra={"action": "schema_migrated"})


async def _running_stores(
    stack: AsyncExitStack,
    database: Database,
    settings: Settings,
    metrics: Metrics,
    readiness: Readiness,
) -> tuple[TrainerStores, Supervisor]:
    """The stores, with the bus and the log running; the log writes accepted events before it closes."""
    stores = await _open_stores(stack, database, settings, metrics)
    supervisor = _supervise(stack, metrics, readiness)
    metrics.count_start()
    supervisor.start_restarting("bus", stores.bus.run)
    supervisor.start("event-log", stores.event_log.run(), may_end=True)
    stack.push_async_callback(stores.event_log.close)
    return stores, supervisor


async def _open_stores(
    stack: AsyncExitStack, database: Database, settings: Settings, metrics: Metrics
) -> TrainerStores:
    bus = await _bus(database, settings, metrics)
    stack.push_async_callback(bus.close)
    commit = CommitOptions(
        max_waiting=settings.max_waiting,
        timeout_seconds=settings.storage_timeout_seconds,
        relaxed_bound=settings.relaxed_bound,
        drain_seconds=settings.drain_seconds,
    )
    return TrainerStores(
        experiments=Experiments(database, settings.quotas),
        event_log=EventLog(
            database, commit, metrics.observe_append, metrics.unwritten_decisions.set
        ),
        snapshots=Snapshots(database),
        candidates=Candidates(database),
        transfers=Transfers(database),
        leases=Leases(database),
        failures=LearningFailures(database, settings.learning_pause_seconds),
        bus=bus,
    )


async def _bus(database: Database, settings: Settings, metrics: Metrics) -> SnapshotBus:
    metrics.expect_bus_refusals(Refusal)
    if settings.bus_url is None:
        return InProcessBus(on_refusal=metrics.count_bus_refusal)
    signing_key = Snapshots(database).signing_key
    return RedisBus(
        settings.bus_url,
        await patiently(database, signing_key, settings.startup_seconds),
        RedisOptions(timeout_seconds=settings.redis_timeout_seconds),
        metrics.count_bus_failure,
        metrics.count_bus_refusal,
    )


def _supervise(stack: AsyncExitStack, metrics: Metrics, readiness: Readiness) -> Supervisor:
    def on_restart(task: str) -> None:
        metrics.task_deaths.labels(task).inc()

    def on_death(task: str) -> None:
        on_restart(task)
        readiness.fail(task)

    supervisor = Supervisor(on_death, metrics.expect_task, on_restart)
    stack.push_async_callback(supervisor.close)
    return supervisor


def _background_work(
    stores: TrainerStores,
    database: Database,
    settings: Settings,
    metrics: Metrics,
    publish_fraction: float,
) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
    """What a trainer's process does, by the name of the task."""
    read = EvaluationStores(stores.experiments, stores.event_log, stores.snapshots)
    evaluations, parts = Evaluations(database), HistoryParts(database)
    return {
        "trainer": lambda: _trainer(stores, settings, metrics, publish_fraction).run(),
        "evaluations": lambda: EvaluationJobs(read, evaluations, settings.poll_seconds).run(),
        "erasing": lambda: Erasing(database, stores.bus.forget).run(),
        "histories": lambda: UnfinishedHistories(
            parts, stores.experiments, stores.event_log, stores.bus
        ).run(),
    }


def _trainer(
    stores: TrainerStores, settings: Settings, metrics: Metrics, publish_fraction: float
) -> Trainer:
    options = TrainerOptions(
        device=settings.device,
        poll_seconds=settings.poll_seconds,
        lease_seconds=settings.lease_seconds,
        kept_snapshots=settings.kept_snapshots,
        idle_seconds=settings.learner_idle_seconds,
        memory_bytes=settings.learner_memory_bytes,
        publish_fraction=publish_fraction,
    )
    jobs = JobQueue(
        _runners(settings, metrics),
        settings.training_deadline_seconds,
        metrics.waiting_trainings.set,
    )
    return Trainer(stores, options, metrics, jobs)


def _runners(settings: Settings, metrics: Metrics) -> list[JobRunner]:
    if not settings.trains_in_process:
        return [ThreadRunner()]
    memory_bytes, on_death = settings.training_memory_bytes, metrics.training_process_deaths.inc
    return [
        ProcessRunner(settings.device, memory_bytes, on_death)
        for _ in range(settings.training_processes)
    ]
