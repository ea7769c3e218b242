"""All settings of a process: `DABAND_*` variables, with defaults that need no environment.

Choices of an experiment (α, ε, episode length, …) are not settings; they belong to the experiment.
"""

import ipaddress
import os
import secrets
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsConfigDict

from service.limits import MEBIBYTE, BudgetLimits, DecisionLimits, Quotas
from service.ops import failpoints

PREFIX = "DABAND_"
# Variables that are not settings: those of the tests, of the benchmarks and of the client commands.
TEST_PREFIXES = ("DABAND_TEST_", failpoints.VARIABLE)
BENCHMARK_DATA = "DABAND_DATA"
STANDARD_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
CLIENT_VARIABLES = ("DABAND_URL", "DABAND_API_KEY")

Seconds = Annotated[float, Field(ge=0, le=3600)]
PositiveSeconds = Annotated[float, Field(gt=0, le=3600)]


class Settings(BaseSettings):
    """The settings of one process, immutable while it runs."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8000, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    workers: int = Field(
        1, ge=1, le=64, description="serving processes; more than one needs Postgres and Redis"
    )
    data_dir: Path = Field(Path("data"), description="folder of the embedded database")
    database_url: SecretStr | None = Field(
        None,
        description="sqlite:///… or postgresql://…, also through PgBouncer or with several hosts "
        "(postgresql://user@h1:5432,h2:5432/name); empty: SQLite in the data folder",
    )
    archive_dir: str | None = Field(
        None,
        description="folder, or URL of a store (s3://bucket/daband), of archived rounds, which every "
        "process needs; empty, with SQLite: `archive` in the data folder",
    )
    redis_url: SecretStr | None = Field(
        None,
        description="redis://…, or redis+sentinel://host:port,host:port/service/database; "
        "empty: a bus inside the process",
    )
    device: str = Field(
        "cpu", pattern=r"^(cpu|cuda(:\d+)?)$", description="where encoders run: cpu, cuda, cuda:1"
    )
    trainer_inside: bool = Field(
        True, description="serving processes also train; false if `daband train` runs"
    )
    training: Literal["auto", "process", "thread"] = Field(
        "auto",
        description="where encoders train: in a separate process or in a thread; "
        "auto: a process on the CPU, a thread on a GPU",
    )
    trainer_metrics_port: int = Field(
        0, ge=0, le=65535, description="port of `daband train`'s own /metrics; 0: none"
    )

    auth: Literal["auto", "required", "off", "dangerously-off"] = Field(
        "auto",
        description="whether callers need a key: auto (yes, unless the address is loopback), required, "
        "off (allowed on loopback addresses only), dangerously-off (no key on any address)",
    )
    metrics_open: bool = Field(
        False, description="serve /metrics without a key, for private networks"
    )
    key_poll_seconds: PositiveSeconds = Field(
        2.0, description="longest delay until a new, rotated or revoked key takes effect"
    )
    key_requests_per_second: float = Field(
        1000.0,
        ge=0,
        le=1_000_000,
        description="default rate limit of a key, in each process; 0: none",
    )
    key_burst: int = Field(
        2000, ge=1, le=1_000_000, description="default burst of a key's rate limit"
    )
    cors_origins: str = Field(
        "", description="allowed CORS origins, separated by commas; empty: none"
    )
    console_signing_key: SecretStr = Field(
        default_factory=lambda: SecretStr(secrets.token_hex(32)),
        min_length=32,
        description="signs the console's sessions; several machines need the same one; "
        "empty: a new one at each start, which ends all sessions",
    )
    grafana_url: str = Field(
        "", pattern="^(https?://.*)?$", description="where the console links to Grafana"
    )

    startup_seconds: Seconds = Field(
        60.0,
        description="how long serve, train and migrate wait at their start for a database that is not "
        "ready; then they end with the reason",
    )
    storage_timeout_seconds: PositiveSeconds = Field(
        0.8, description="longest wait for the database; then 503 is answered, within 1 s in total"
    )
    redis_timeout_seconds: PositiveSeconds = Field(
        0.05, description="longest wait for a command of the bus"
    )
    poll_seconds: PositiveSeconds = Field(
        0.5, description="longest delay until new rewards and policies are noticed without the bus"
    )
    lease_seconds: PositiveSeconds = Field(
        10.0,
        description="without a renewal for this long, another trainer takes over the experiment",
    )
    kept_snapshots: int = Field(
        20, ge=1, le=100_000, description="newest snapshots kept, and the first of each encoder"
    )

    max_experiments: int = Field(
        Quotas().in_all, ge=1, le=10_000_000, description="maximum of experiments of all tenants"
    )
    max_tenant_experiments: int = Field(
        Quotas().per_tenant, ge=1, le=10_000_000, description="maximum of experiments per tenant"
    )
    max_snapshot_bytes: int = Field(
        BudgetLimits().snapshot_bytes,
        ge=MEBIBYTE,
        description="largest estimate of an experiment's snapshot",
    )
    max_learner_bytes: int = Field(
        BudgetLimits().learner_bytes,
        ge=MEBIBYTE,
        description="largest estimate of an experiment's memory in the trainer",
    )
    training_memory_bytes: int = Field(
        BudgetLimits().update_bytes,
        ge=512 * MEBIBYTE,
        description="memory of a training process, and the largest estimate of an encoder update",
    )
    max_update_seconds: PositiveSeconds = Field(
        BudgetLimits().update_seconds,
        description="longest estimate of an encoder update, on one core",
    )
    max_reward_seconds: PositiveSeconds = Field(
        BudgetLimits().reward_seconds,
        description="longest mean estimate of folding a reward, on one core",
    )
    max_answer_bytes: int = Field(
        DecisionLimits().answer_bytes,
        ge=4 * MEBIBYTE,
        description="largest estimate of the answer to a request for decisions",
    )
    max_event_bytes: int = Field(
        DecisionLimits().event_bytes,
        ge=4 * MEBIBYTE,
        description="largest estimate of what a request for decisions writes, in one transaction",
    )
    max_deciding_seconds: PositiveSeconds = Field(
        DecisionLimits().deciding_seconds,
        description="longest estimate of deciding a request, on one core",
    )
    training_processes: int = Field(
        3,
        ge=1,
        le=64,
        description="training processes: the first takes any job, the second short, others quick jobs",
    )
    training_deadline_seconds: PositiveSeconds = Field(
        900.0, description="longest time of an encoder update; a longer one is stopped and refused"
    )
    learning_pause_seconds: PositiveSeconds = Field(
        30.0,
        description="pause after an experiment's first learning failure; each further one doubles it",
    )
    learner_memory_bytes: int = Field(
        4096 * MEBIBYTE,
        ge=MEBIBYTE,
        description="estimated memory of all learners in a trainer; further experiments wait",
    )
    policy_memory_bytes: int = Field(
        2048 * MEBIBYTE,
        ge=MEBIBYTE,
        description="estimated memory of all policies in a serving process; the least recently used "
        "one is dropped; earlier versions take at most an eighth more",
    )
    learner_idle_seconds: PositiveSeconds = Field(
        30.0, description="a learner without events for this long is removed from memory"
    )

    max_body_bytes: int = Field(
        8 * MEBIBYTE, ge=1024, le=1024 * MEBIBYTE, description="largest request body"
    )
    max_upload_bytes: int = Field(
        4096 * MEBIBYTE,
        ge=1024,
        le=1024 * 1024 * MEBIBYTE,
        description="largest upload of target contexts, of a history or of a log file",
    )
    max_in_flight: int = Field(
        512, ge=1, le=100_000, description="maximum of requests in flight; others get 503"
    )
    overload_seconds: PositiveSeconds = Field(
        0.1,
        description="while even the fastest request takes longer, fewer requests may be in flight",
    )
    max_waiting: int = Field(
        4096,
        ge=1,
        le=1_000_000,
        description="contexts that may wait for a GPU, and events to be written",
    )
    relaxed_bound: int = Field(
        512,
        ge=1,
        le=1_000_000,
        description="maximum of answered but unwritten decisions of relaxed experiments in a serving "
        "process; further ones wait for their write",
    )
    header_timeout_seconds: PositiveSeconds = Field(
        10.0, description="longest time that a request's headers may take to arrive"
    )
    body_timeout_seconds: PositiveSeconds = Field(
        10.0, description="longest time that a request's body may take to arrive"
    )
    keep_alive_seconds: int = Field(
        30, ge=1, le=3600, description="how long an idle connection is kept"
    )
    slow_request_seconds: PositiveSeconds = Field(
        1.0, description="requests that take longer are logged"
    )

    drain_delay_seconds: Seconds = Field(
        0.5, description="time between being not ready and closing the listening socket at shutdown"
    )
    drain_seconds: PositiveSeconds = Field(
        20.0,
        description="how long shutdown waits for requests in flight, and then for unwritten decisions",
    )

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="lowest level that is logged"
    )
    log_format: Literal["auto", "json", "console"] = Field(
        "auto", description="auto: console on a terminal, JSON lines elsewhere"
    )

    otlp_endpoint: str | None = Field(
        None,
        description="where traces go, by OTLP/HTTP: http://collector:4318; empty: "
        "OTEL_EXPORTER_OTLP_ENDPOINT, and without that no traces",
    )

    @model_validator(mode="before")
    @classmethod
    def _know_every_variable(cls, values: Any) -> Any:
        problem = unknown_variable(os.environ)
        if problem is not None:
            raise ValueError(problem)
        failpoints.plan(os.environ)
        return values

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if not self.storage_url.startswith(("sqlite:", "postgresql:")):
            raise ValueError("DABAND_DATABASE_URL must be sqlite:///… or postgresql://…")
        if self.workers > 1 and (self.is_embedded or self.redis_url is None):
            raise ValueError(
                "workers > 1 needs Postgres and Redis: set DABAND_DATABASE_URL=postgresql://… "
                "and DABAND_REDIS_URL=redis://…, or use one worker"
            )
        if self.trace_endpoint is not None and find_spec("opentelemetry.sdk") is None:
            raise ValueError("traces need the otel extra: pip install 'daband[otel]'")
        if self.auth == "off" and not self.is_loopback:
            raise ValueError(
                f"DABAND_AUTH=off is for loopback addresses, not for {self.host}: make a key with "
                "`daband keys create` and set DABAND_AUTH=required; if something else controls "
                "access, DABAND_AUTH=dangerously-off serves every caller"
            )
        for origin in self.allowed_origins:
            if not origin.startswith(("http://", "https://")) or origin.count("/") != 2:
                raise ValueError(
                    "DABAND_CORS_ORIGINS must list origins such as https://lab.example"
                )
        return self

    @property
    def budget_limits(self) -> BudgetLimits:
        """The upper limits on an experiment's estimates."""
        return BudgetLimits(
            snapshot_bytes=self.max_snapshot_bytes,
            learner_bytes=self.max_learner_bytes,
            update_bytes=self.training_memory_bytes,
            update_seconds=self.max_update_seconds,
            reward_seconds=self.max_reward_seconds,
        )

    @property
    def decision_limits(self) -> DecisionLimits:
        """The upper limits on the estimates of a request for decisions."""
        return DecisionLimits(
            answer_bytes=self.max_answer_bytes,
            event_bytes=self.max_event_bytes,
            deciding_seconds=self.max_deciding_seconds,
        )

    @property
    def quotas(self) -> Quotas:
        return Quotas(self.max_tenant_experiments, self.max_experiments)

    @property
    def is_loopback(self) -> bool:
        """Whether the address is loopback; of names, only localhost is."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def needs_keys(self) -> bool:
        """Whether callers must send a key."""
        return self.auth == "required" or (self.auth == "auto" and not self.is_loopback)

    @property
    def allowed_origins(self) -> tuple[str, ...]:
        listed = (each.strip() for each in self.cors_origins.split(","))
        return tuple(each for each in listed if each)

    @property
    def storage_url(self) -> str:
        """The database's URL, including its password."""
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite:///{self.data_dir / 'daband.db'}"

    @property
    def archive_place(self) -> str | None:
        """Where archived rounds are; beside a database server only what is named.

        There the data folder may be a container's own, and gone with it.
        """
        if self.archive_dir or not self.is_embedded:
            return self.archive_dir or None
        return str(self.data_dir / "archive")

    @property
    def bus_url(self) -> str | None:
        """The bus's URL; None for the in-process bus."""
        return None if self.redis_url is None else self.redis_url.get_secret_value()

    @property
    def trains_in_process(self) -> bool:
        """Whether encoders train in a separate process."""
        return self.training == "process" or (self.training == "auto" and self.device == "cpu")

    @property
    def trace_endpoint(self) -> str | None:
        """The OTLP endpoint for traces; None if traces are off."""
        return self.otlp_endpoint or os.environ.get(STANDARD_ENDPOINT) or None

    @property
    def is_embedded(self) -> bool:
        """Whether the database is a SQLite file, which the service migrates itself."""
        return self.storage_url.startswith("sqlite")


def unknown_variable(environment: Mapping[str, str]) -> str | None:
    """The error message for the first unknown `DABAND_*` variable, if there is one."""
    known = [variable(name) for name in Settings.model_fields]
    for name in sorted(environment):
        candidate = name.upper()
        if not candidate.startswith(PREFIX) or candidate.startswith(TEST_PREFIXES):
            continue
        if candidate not in (*known, BENCHMARK_DATA, *CLIENT_VARIABLES):
            nearest = get_close_matches(candidate, known, n=1, cutoff=0.0)[0]
            return f"there is no setting {candidate}; did you mean {nearest}?"
    return None


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return f"{PREFIX}{name.upper()}"


def described() -> Iterator[tuple[str, str, str]]:
    """Variable, default and meaning of every setting."""
    for name, field in Settings.model_fields.items():
        yield variable(name), _default(field), field.description or ""


def shown(settings: Settings) -> list[tuple[str, str, str]]:
    """Variable, value and meaning of every setting; secrets are hidden."""
    values = settings.model_dump().values()
    return [
        (name, "" if value is None else str(value), meaning)
        for (name, _, meaning), value in zip(described(), values, strict=True)
    ]


def _default(field: FieldInfo) -> str:
    is_open = field.default is None or field.default_factory is not None
    return "" if is_open else str(field.default).lower()
