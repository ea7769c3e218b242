"""All settings of a process: `DABAND_*` variables over defaults that need no environment at all.

What an experiment chooses (α, ε, episode length, …) is no setting: it belongs to the experiment.
"""

import ipaddress
import os
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsConfigDict

from service.limits import MEBIBYTE, BudgetLimits, Quotas
from service.ops import failpoints

PREFIX = "DABAND_"
# Where the tests find their servers, and where they want a process to fail; no settings of ours.
TEST_PREFIXES = ("DABAND_TEST_", failpoints.VARIABLE)
BENCHMARK_DATA = "DABAND_DATA"  # where the benchmarks find their data sets; no setting either
STANDARD_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
# Where the commands that ask a running service find it, and their key; no settings either.
CLIENT_VARIABLES = ("DABAND_URL", "DABAND_API_KEY")

Seconds = Annotated[float, Field(ge=0, le=3600)]
PositiveSeconds = Annotated[float, Field(gt=0, le=3600)]


class Settings(BaseSettings):
    """One process's settings; they do not change while it runs."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8000, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    workers: int = Field(
        1, ge=1, le=64, description="serving processes; more than one needs Postgres and Redis"
    )
    data_dir: Path = Field(Path("data"), description="folder of the embedded database")
    database_url: SecretStr | None = Field(
        None, description="sqlite:///… or postgresql://…; empty: SQLite in the data folder"
    )
    redis_url: SecretStr | None = Field(
        None, description="redis://…; empty: a bus inside the process"
    )
    device: str = Field(
        "cpu", pattern=r"^(cpu|cuda(:\d+)?)$", description="where encoders run: cpu, cuda, cuda:1"
    )
    trainer_inside: bool = Field(
        True, description="serving processes train, too; false where `daband train` runs"
    )
    training: Literal["auto", "process", "thread"] = Field(
        "auto",
        description="where encoders train: a process of their own, or a thread beside all else; "
        "auto: a process on the CPU, a thread on a GPU",
    )
    trainer_metrics_port: int = Field(
        0, ge=0, le=65535, description="port of `daband train`'s own /metrics; 0: none"
    )

    auth: Literal["auto", "required", "off", "dangerously-off"] = Field(
        "auto",
        description="who needs a key: auto (everybody, unless the address is loopback), required, "
        "off (refused unless the address is loopback), dangerously-off (nobody, on any address)",
    )
    metrics_open: bool = Field(
        False, description="/metrics without a key, where only the own network reaches it"
    )
    key_poll_seconds: PositiveSeconds = Field(
        2.0, description="longest time that a new, rotated or revoked key goes unnoticed"
    )
    key_requests_per_second: float = Field(
        1000.0,
        ge=0,
        le=1_000_000,
        description="rate limit of a key made without one, in each process; 0: none",
    )
    key_burst: int = Field(
        2000, ge=1, le=1_000_000, description="requests at once of a key made without a limit"
    )
    cors_origins: str = Field(
        "", description="origins whose pages may call, separated by commas; empty: none"
    )

    storage_timeout_seconds: PositiveSeconds = Field(
        0.8, description="longest wait for the database; 503 follows, in all within 1 s"
    )
    redis_timeout_seconds: PositiveSeconds = Field(
        0.05, description="longest wait for a command of the bus"
    )
    poll_seconds: PositiveSeconds = Field(
        0.5, description="longest time that new rewards and policies go unnoticed without the bus"
    )
    lease_seconds: PositiveSeconds = Field(
        10.0, description="after this silence another trainer takes an experiment over"
    )
    kept_snapshots: int = Field(
        20, ge=1, le=100_000, description="newest snapshots kept, beside the first of each encoder"
    )

    max_experiments: int = Field(
        Quotas().in_all, ge=1, le=10_000_000, description="most experiments of all tenants together"
    )
    max_tenant_experiments: int = Field(
        Quotas().per_tenant, ge=1, le=10_000_000, description="most experiments of one tenant"
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
        description="longest estimate of folding a reward, on one core and on average",
    )
    training_processes: int = Field(
        3,
        ge=1,
        le=64,
        description="processes that train encoders: one any, the second short jobs, others quick ones",
    )
    training_deadline_seconds: PositiveSeconds = Field(
        900.0, description="an encoder update that takes longer is stopped and refused"
    )
    learning_pause_seconds: PositiveSeconds = Field(
        30.0,
        description="pause after an experiment's first failure to learn; each further one doubles it",
    )
    learner_memory_bytes: int = Field(
        4096 * MEBIBYTE,
        ge=MEBIBYTE,
        description="memory of all learners in a trainer, by estimate; others wait",
    )
    policy_memory_bytes: int = Field(
        2048 * MEBIBYTE,
        ge=MEBIBYTE,
        description="memory of all policies in a serving process, by estimate; the one asked for "
        "least recently makes room",
    )
    learner_idle_seconds: PositiveSeconds = Field(
        30.0, description="a learner leaves memory after so long without events"
    )

    max_body_bytes: int = Field(
        8 * MEBIBYTE, ge=1024, le=1024 * MEBIBYTE, description="largest request body"
    )
    max_upload_bytes: int = Field(
        4096 * MEBIBYTE,
        ge=1024,
        le=1024 * 1024 * MEBIBYTE,
        description="largest upload of target contexts",
    )
    max_in_flight: int = Field(
        512, ge=1, le=100_000, description="most requests at work; others are refused with 503"
    )
    overload_seconds: PositiveSeconds = Field(
        0.1,
        description="while even the fastest request takes longer, fewer may be at work at once",
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
        description="most decisions of relaxed experiments that a serving process has answered and "
        "not yet written; further ones wait for their write",
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
        0.5, description="how long a stopping server is not ready before it stops listening"
    )
    drain_seconds: PositiveSeconds = Field(
        20.0,
        description="how long a stopping server waits for requests at work, and then for the "
        "database to take what was answered",
    )

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="least level that is logged"
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
            raise ValueError("DABAND_DATABASE_URL is sqlite:///… or postgresql://…")
        if self.workers > 1 and (self.is_embedded or self.redis_url is None):
            raise ValueError(
                "workers > 1 needs Postgres and Redis: set DABAND_DATABASE_URL=postgresql://… "
                "and DABAND_REDIS_URL=redis://…, or use one worker"
            )
        if self.trace_endpoint is not None and find_spec("opentelemetry.sdk") is None:
            raise ValueError("traces need the extra otel: pip install 'daband[otel]'")
        if self.auth == "off" and not self.is_loopback:
            raise ValueError(
                f"DABAND_AUTH=off is for loopback addresses, not for {self.host}: make a key with "
                "`daband keys create` and set DABAND_AUTH=required; where something else keeps "
                "strangers out, DABAND_AUTH=dangerously-off serves everybody"
            )
        for origin in self.allowed_origins:
            if not origin.startswith(("http://", "https://")) or origin.count("/") != 2:
                raise ValueError("DABAND_CORS_ORIGINS lists origins such as https://lab.example")
        return self

    @property
    def budget_limits(self) -> BudgetLimits:
        """The most that an experiment may need."""
        return BudgetLimits(
            snapshot_bytes=self.max_snapshot_bytes,
            learner_bytes=self.max_learner_bytes,
            update_bytes=self.training_memory_bytes,
            update_seconds=self.max_update_seconds,
            reward_seconds=self.max_reward_seconds,
        )

    @property
    def quotas(self) -> Quotas:
        """The most experiments there may be."""
        return Quotas(self.max_tenant_experiments, self.max_experiments)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches the address; a name other than localhost may be any."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def needs_keys(self) -> bool:
        """Whether callers must bring a key."""
        return self.auth == "required" or (self.auth == "auto" and not self.is_loopback)

    @property
    def allowed_origins(self) -> tuple[str, ...]:
        """The origins whose pages may call."""
        listed = (each.strip() for each in self.cors_origins.split(","))
        return tuple(each for each in listed if each)

    @property
    def storage_url(self) -> str:
        """The database's URL, password and all."""
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite:///{self.data_dir / 'daband.db'}"

    @property
    def bus_url(self) -> str | None:
        """The bus's URL, none for the one inside the process."""
        return None if self.redis_url is None else self.redis_url.get_secret_value()

    @property
    def trains_in_process(self) -> bool:
        """Whether encoders train in a process of their own."""
        return self.training == "process" or (self.training == "auto" and self.device == "cpu")

    @property
    def trace_endpoint(self) -> str | None:
        """Where traces go, none for nowhere."""
        return self.otlp_endpoint or os.environ.get(STANDARD_ENDPOINT) or None

    @property
    def is_embedded(self) -> bool:
        """Whether the database is a SQLite file, which the service migrates by itself."""
        return self.storage_url.startswith("sqlite")


def unknown_variable(environment: Mapping[str, str]) -> str | None:
    """What is wrong with the first `DABAND_*` variable that no setting reads, if there is one."""
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


def markdown_table() -> str:
    """The settings as the table of the documentation."""
    rows = [f"| `{name}` | `{default}` | {meaning} |" for name, default, meaning in described()]
    return "\n".join(("| variable | default | meaning |", "|---|---|---|", *rows))


def _default(field: FieldInfo) -> str:
    return "" if field.default is None else str(field.default).lower()
