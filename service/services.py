"""What the routes work with: built once by `app`, handed on by the server's lifespan."""

from dataclasses import dataclass

from service.limits import BudgetLimits
from service.metrics import Metrics
from service.policies import Policies
from service.readiness import Readiness
from service.rewarding import Rewarding
from service.selecting import Selecting
from service.snapshot_bus import SnapshotBus
from service.storage.audit import AuditTrail
from service.storage.candidates import Candidates
from service.storage.database import Database
from service.storage.evaluations import Evaluations
from service.storage.event_log import EventLog
from service.storage.experiments import Experiments
from service.storage.history import History
from service.storage.learning_failures import LearningFailures
from service.storage.snapshots import Snapshots
from service.storage.transfers import Transfers
from service.target_selecting import TargetSelecting
from service.turn_selecting import TurnSelecting
from service.uploading import Uploading


@dataclass(frozen=True, slots=True)
class Services:
    """The collaborators of the routes."""

    database: Database
    experiments: Experiments
    event_log: EventLog
    snapshots: Snapshots
    candidates: Candidates
    transfers: Transfers
    failures: LearningFailures
    history: History
    audit: AuditTrail
    evaluations: Evaluations
    bus: SnapshotBus
    policies: Policies
    selecting: Selecting
    turn_selecting: TurnSelecting
    rewarding: Rewarding
    target_selecting: TargetSelecting
    uploading: Uploading
    readiness: Readiness
    metrics: Metrics
    limits: BudgetLimits
