"""The collaborators of the routes: built once by `app`, passed on by the server's lifespan."""

from dataclasses import dataclass

from service.bus.bus import SnapshotBus
from service.deciding.batcher import RequestBatcher
from service.deciding.policies import Policies
from service.deciding.reward import Rewarding
from service.deciding.select import Selecting
from service.deciding.target import TargetSelecting
from service.deciding.uploads import Uploading
from service.deciding.versions import Versions
from service.evaluating.uploaded_log import UploadedLogs
from service.limits import BudgetLimits
from service.metrics import Metrics
from service.ops.supervisor import Readiness
from service.storage.audit import AuditTrail
from service.storage.candidates import Candidates
from service.storage.database import Database
from service.storage.evaluations import Evaluations
from service.storage.events.browsing import Browsing
from service.storage.events.history import History
from service.storage.events.log import EventLog
from service.storage.experiments import Experiments
from service.storage.learning_failures import LearningFailures
from service.storage.snapshots import Snapshots
from service.storage.transfers import Transfers


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
    browsing: Browsing
    audit: AuditTrail
    evaluations: Evaluations
    uploaded_logs: UploadedLogs
    bus: SnapshotBus
    policies: Policies
    versions: Versions
    selecting: Selecting
    batcher: RequestBatcher
    rewarding: Rewarding
    target_selecting: TargetSelecting
    uploading: Uploading
    readiness: Readiness
    metrics: Metrics
    limits: BudgetLimits
