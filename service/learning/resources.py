"""A trainer's options and the resources that all its experiments share."""

from dataclasses import dataclass

from service.bus.bus import SnapshotBus
from service.learning.jobs.queue import JobQueue
from service.metrics import Metrics
from service.storage.candidates import Candidates
from service.storage.events.log import EventLog
from service.storage.experiments import Experiments
from service.storage.learning_failures import LearningFailures
from service.storage.leases import Leases
from service.storage.snapshots import Snapshots
from service.storage.transfers import Transfers

SMALL_BYTES = 8 << 20
LONGEST_SMALL_PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class TrainerOptions:
    """The options of a trainer.

    A change that callers can notice is published at most every `publish_seconds`; mere progress through
    the log, every `progress_seconds`. Judgements start at most every `judge_seconds`. Learners take at
    most `memory_bytes`, by estimate: one that is idle for `idle_seconds` leaves memory. If others wait,
    one that has been led for `tenure_seconds` may have to leave. Publishing takes at most
    `publish_fraction` of the time.
    """

    device: str = "cpu"
    poll_seconds: float = 1.0
    lease_seconds: float = 10.0
    kept_snapshots: int = 20
    gather_seconds: float = 0.05
    publish_seconds: float = 0.25
    progress_seconds: float = 5.0
    judge_seconds: float = 2.0
    idle_seconds: float = 30.0
    tenure_seconds: float = 10.0
    memory_bytes: int = 4 << 30
    page_rows: int = 512
    publish_fraction: float = 0.5


@dataclass(frozen=True)
class TrainerStores:
    """The stores that a trainer reads and writes."""

    experiments: Experiments
    event_log: EventLog
    snapshots: Snapshots
    candidates: Candidates
    transfers: Transfers
    leases: Leases
    failures: LearningFailures
    bus: SnapshotBus


class PublishingPace:
    """Limits publishing to a fraction of a trainer's time, because it may run in a serving process.

    Large snapshots get half of it: they wait for each other, and small ones do not wait for them.
    """

    def __init__(self, fraction: float) -> None:
        self._fraction = fraction
        self._small_at = self._large_at = 0.0

    def seconds_to_free(self, now: float, size_bytes: int) -> float:
        """Seconds until an experiment with a last snapshot of this size may publish."""
        return (self._large_at if size_bytes > SMALL_BYTES else self._small_at) - now

    def note(self, now: float, size_bytes: int, seconds: float) -> None:
        """Record a published snapshot and its duration."""
        if size_bytes > SMALL_BYTES:
            self._large_at = now + 2 * seconds / self._fraction
        else:
            self._small_at = now + min(seconds / self._fraction, LONGEST_SMALL_PAUSE_SECONDS)


@dataclass(frozen=True, slots=True)
class TrainerResources:
    """The resources that all experiments of one trainer share."""

    trainer_id: str
    stores: TrainerStores
    options: TrainerOptions
    metrics: Metrics
    jobs: JobQueue
    pace: PublishingPace
