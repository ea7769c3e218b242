"""How a trainer works, and what all its experiments share."""

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
    """How a trainer works.

    A change that callers can notice is published at most every `publish_seconds`; mere progress
    through the log, every `progress_seconds`. Encoders that follow each other faster than
    `judge_seconds` are not all judged. Learners take `memory_bytes` at most, by estimate: one that
    has been idle for `idle_seconds` leaves memory, and where others wait one that has been there for
    `tenure_seconds` may have to. Publishing takes `publish_share` of the time at most.
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
    publish_share: float = 0.5


@dataclass(frozen=True, slots=True)
class TrainerStores:
    """What a trainer reads and writes."""

    experiments: Experiments
    event_log: EventLog
    snapshots: Snapshots
    candidates: Candidates
    transfers: Transfers
    leases: Leases
    failures: LearningFailures
    bus: SnapshotBus


class PublishingPace:
    """Keeps publishing to a share of a trainer's time, which may be that of a serving process.

    Large snapshots share half of it among themselves: they wait for each other, and small ones do
    not wait for them.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._small_at = self._large_at = 0.0

    def seconds_to_free(self, now: float, size_bytes: int) -> float:
        """Until an experiment whose last snapshot was so large may publish."""
        return (self._large_at if size_bytes > SMALL_BYTES else self._small_at) - now

    def note(self, now: float, size_bytes: int, seconds: float) -> None:
        """A snapshot was published just now, and took so long."""
        if size_bytes > SMALL_BYTES:
            self._large_at = now + 2 * seconds / self._share
        else:
            self._small_at = now + min(seconds / self._share, LONGEST_SMALL_PAUSE_SECONDS)


@dataclass(frozen=True, slots=True)
class TrainerResources:
    """What all experiments of one trainer share."""

    trainer_id: str
    stores: TrainerStores
    options: TrainerOptions
    metrics: Metrics
    jobs: JobQueue
    pace: PublishingPace
