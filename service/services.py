"""The collaborators of the routes: built once by `app`, passed on by the server's lifespan."""

from dataclasses import dataclass

from service.deciding.batcher import RequestBatcher
from service.deciding.long_work import LongWork
from service.deciding.policies import Policies
from service.deciding.request_limits import RequestLimits
from service.deciding.reward import Rewarding
from service.deciding.select import Selecting
from service.deciding.target import TargetSelecting
from service.deciding.uploads import Uploading
from service.deciding.versions import Versions
from service.evaluating.uploaded_log import UploadedLogs
from service.learning.resources import TrainerStores
from service.limits import BudgetLimits
from service.metrics import Metrics
from service.ops.supervisor import Readiness
from service.storage.audit import AuditTrail
from service.storage.database import Database
from service.storage.evaluations import Evaluations
from service.storage.events.browsing import Browsing
from service.storage.events.history import History


@dataclass(frozen=True)
class Services(TrainerStores):
    """The collaborators of the routes: a trainer's stores, and what answers requests."""

    database: Database
    history: History
    browsing: Browsing
    audit: AuditTrail
    evaluations: Evaluations
    uploaded_logs: UploadedLogs
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
    request_limits: RequestLimits
    long_work: LongWork
