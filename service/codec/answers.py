"""The shapes of answers, as they are documented."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.codec.requests import Identifier, Method, Name, Request, Status

Phase = Literal["zero_shot", "continued"]


class Schema(BaseModel):
    """An answer; clients ignore unknown fields."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Column(Schema):
    """A column of a table with nothing left open; `values` are its levels, frozen."""

    name: str
    type: Literal["numeric", "categorical", "boolean", "ordinal"]
    unit: str | None = None
    values: list[str] = []
    missing: bool = False
    fill: float | str | None = None


class ContextShape(Schema):
    """What a context looks like; the shape of a table follows from its columns."""

    kind: Literal["shared", "per_arm", "table", "image"]
    shape: list[int]
    columns: list[Column] | None = None
    per_arm: bool = False
    resize: bool = False


class Declared(Schema):
    """An experiment as declared; `config` holds the differences from the method's values."""

    name: str
    arms: list[str]
    context: ContextShape
    method: str
    seed: int
    config: dict[str, Any]
    fallback_arm: str | None = None
    durability: Literal["durable", "relaxed"] = "durable"
    reward_range: list[float] | None = None


class BatchLimits(Schema):
    """The largest batches that pass if every round or context offers all declared arms."""

    select_batch_rounds: int = Field(description="of `/select/batch`, with both domains")
    target_select_contexts: int


class Experiment(Declared):
    """An experiment with its phase, its status and the configuration in force."""

    experiment_id: str
    config: dict[str, Any] = Field(
        description="every field of the configuration in force, resolved when it was created"
    )
    recipe: int = Field(description="the version of the methods' values that resolved it")
    declared: Declared
    phase: Phase
    status: Status
    created_at: datetime
    limits: BatchLimits | None = Field(
        None, description="of one experiment that declares its arms, not in lists"
    )


class ExperimentList(Schema):
    """All experiments, the oldest first."""

    experiments: list[Experiment]


class HistoryImported(Schema):
    """Past rounds that the log holds: `created` now, at least in part, or `already_recorded`."""

    experiment: str
    sha256: str = Field(description="of the rounds, whatever the format of the file")
    rows: int
    rewards: int
    propensities: int = Field(description="rounds whose propensity is known")
    status: Literal["created", "already_recorded"]


class Score(Schema):
    """The policy's scores of an arm: `ucb` = `mean` + `bonus`."""

    mean: float
    bonus: float
    ucb: float


class Decision(Schema):
    """The chosen arm, with the exact probability of every eligible arm."""

    decision_id: str
    arm: str
    probabilities: dict[str, float]
    scores: dict[str, Score]


class Selected(Schema):
    """The decisions of a round."""

    experiment: str
    request_id: str
    policy_version: int
    source: Decision | None = None
    target: Decision | None = None


class SelectedBatch(Schema):
    """The decisions of many rounds, in their order."""

    experiment: str
    rounds: list[Selected]


class TargetDecision(Schema):
    """The target policy's arm for a context, or the fallback arm if it abstained.

    `probabilities`, `mean` and `bonus` are always the policy's.
    """

    arm: str | None
    probabilities: dict[str, float]
    mean: float
    bonus: float
    transfer_confidence: float
    abstained: bool


class TargetSelected(Schema):
    """The target policy's decisions, in the order of the contexts; `stored` describes stored contexts."""

    experiment: str
    policy_version: int
    encoder_version: int
    decisions: list[TargetDecision]
    stored: "ContextsStored | None" = None


class ContextsStored(Schema):
    """Unlabeled target contexts that are durable, stored now or before."""

    experiment: str
    request_id: str
    status: Literal["created", "already_recorded"]
    contexts: int
    offset: int


class Problem(BaseModel):
    """An RFC 9457 problem; `type` is the path of its explanation."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: str
    title: str
    status: int
    detail: str
    instance: str | None = None
    request_id: str | None = None
    errors: list[dict[str, str]] | None = None


class Rewarded(Schema):
    """A durable reward, recorded now or before."""

    decision_id: str
    status: Literal["created", "already_recorded"]
    offset: int


class RewardOutcome(Schema):
    """The outcome of one reward of a batch; `problem` says why it was refused."""

    decision_id: str
    status: Literal["created", "already_recorded", "refused"]
    offset: int | None = None
    problem: Problem | None = None


class RewardedBatch(Schema):
    """The outcome of each reward, in order."""

    rewards: list[RewardOutcome]


class RunningUpdate(Schema):
    """An encoder update under way, and what it was begun with."""

    episode: int
    rewards: int
    target_contexts: int


class Training(Schema):
    """Whether an encoder is being trained, or why learning fails and when it is retried.

    `due_updates` follow the one that is `running`. `judgement` is that of the served encoder's transfer: `due`
    until it is done, `none` without an encoder update or with too little data.
    """

    status: Literal["idle", "running", "failing"]
    due_updates: int = 0
    running: RunningUpdate | None = None
    judgement: Literal["none", "due", "done", "failed"] = "none"
    stage: Literal["training", "folding"] | None = None
    reason: str | None = None
    failures: int | None = None
    since: datetime | None = None
    retry_at: datetime | None = None


class State(BaseModel):
    """The state of an experiment; the trainer's notes are extra fields."""

    model_config = ConfigDict(frozen=True, extra="allow")

    experiment: str
    phase: Phase
    status: Status
    counts: dict[str, int]
    policy_version: int
    encoder_version: int
    state_hash: str | None
    head_offset: int
    folded_offset: int
    lag: int
    snapshot_at: datetime | None
    training: Training = Training(status="idle")


class PhaseChanged(Schema):
    """The phase from this offset of the log on."""

    experiment: str
    phase: Phase
    best_reward: float
    offset: int
    status: Literal["created", "already_recorded"]


class Snapshot(Schema):
    """A saved version of an experiment's learner."""

    version: int
    offset: int
    encoder_version: int
    epoch: int
    state_hash: str
    sha256: str
    size_bytes: int
    is_pinned: bool
    created_at: datetime
    note: dict[str, Any]


class SnapshotList(Schema):
    """The snapshots that are kept, the newest first."""

    experiment: str
    snapshots: list[Snapshot]


class Restored(Schema):
    """The restore is in the log; the trainer carries it out when it gets there."""

    experiment: str
    version: int
    offset: int
    status: Literal["created", "already_recorded"]


class Candidate(Schema):
    """A trained encoder that is not served, with the gate's verdict."""

    episode: int
    sha256: str
    size_bytes: int
    is_pinned: bool
    created_at: datetime
    verdict: dict[str, Any]


class CandidateList(Schema):
    """The candidates that are kept, the newest first."""

    experiment: str
    candidates: list[Candidate]


class TrainingAsked(Schema):
    """The request is in the log; the trainer carries it out when it gets there."""

    experiment: str
    offset: int
    status: Literal["created", "already_recorded"]


class Promoted(Schema):
    """The promotion is in the log; the trainer carries it out when it gets there."""

    experiment: str
    episode: int
    offset: int
    status: Literal["created", "already_recorded"]


class Deleted(Schema):
    """A deleted experiment; its data is erased soon after."""

    experiment: str
    experiment_id: str
    status: Literal["deleted"]


class Act(Schema):
    """An administrative act on an experiment: paused, active, archived, deleted, erased."""

    experiment: str
    experiment_id: str
    at: datetime
    what: str
    by: str | None
    reason: str | None
    key_id: str | None


class Acts(Schema):
    """Administrative acts on experiments, the newest first."""

    entries: list[Act]


class AuditEntry(Schema):
    """An entry of an experiment's audit trail; `details` are the event's payload.

    `offset` is its offset in the log, null for acts outside the log.
    """

    offset: int | None
    at: datetime
    what: str
    details: dict[str, Any]


class AuditTrail(Schema):
    """All events of an experiment except decisions, rewards and contexts, in order."""

    experiment: str
    entries: list[AuditEntry]


class TransferVerdict(Schema):
    """`aligned`, `weak` or `do not trust`, and the reasons why it is not better."""

    word: Literal["aligned", "weak", "do not trust"]
    reasons: list[str]


class ExpectedReward(Schema):
    """The expected mean reward of the policy on the target, without target rewards, and a lower bound.

    Both lie in [0, 1], as rewards do: for a declared reward range, 0 is its lowest value and 1 its highest.
    """

    reward: float
    lower: float


class Abstention(Schema):
    """What is left if the policy abstains below a confidence; null: nothing is decided."""

    confidence_floor: float
    decided_share: float
    expected_reward: float | None


class TransferVersion(Schema):
    """The judgement of one encoder version; `gate` is the event that activated it."""

    encoder_version: int
    offset: int
    at: datetime
    verdict: TransferVerdict
    expected: ExpectedReward | None
    signs: dict[str, float]
    diagnostics: dict[str, float]
    gate: AuditEntry | None


class TargetRegret(Schema):
    """Target rewards against the declared best; `curve` is [rewards, cumulative regret]."""

    rewards: int
    best_reward: float | None
    cumulative: float
    curve: list[tuple[int, float]]


class Transfer(Schema):
    """How the source transfers to the target, by encoder version."""

    experiment: str
    phase: Phase
    encoder_version: int
    verdict: TransferVerdict | None
    expected: ExpectedReward | None
    conditions: list[str]
    abstention: list[Abstention]
    versions: list[TransferVersion]
    gate: list[AuditEntry]
    target_regret: TargetRegret


class Health(Schema):
    """The process is alive."""

    status: Literal["ok"]


class Ready(Schema):
    """The process accepts requests."""

    status: Literal["ready"]


class ProblemType(Schema):
    """The explanation of a problem type."""

    type: str
    title: str
    status: int
    detail: str


EvaluationStatus = Literal["queued", "running", "done", "failed", "cancelled"]


class CandidateRequest(Request):
    """A policy to evaluate: `uniform`, an `arm`, a stored `version`, or a `system` that learns."""

    kind: Literal["uniform", "arm", "version", "system"] = Field(examples=["uniform"])
    arm: Identifier | None = None
    version: Annotated[int, Field(ge=1, le=2**63 - 1)] | None = None
    method: Method | None = None
    config: dict[str, Any] = Field(default={}, examples=[{"alpha": 0.2}])


class EvaluationRequest(Request):
    """An offline evaluation to queue."""

    experiment: Name = Field(examples=["doses"])
    candidates: Annotated[list[CandidateRequest], Field(min_length=1, max_length=32)]
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    domain: Literal["source", "target"] = "source"
    target: bool = Field(default=False, description="value candidates in the target as well")
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    request_id: Identifier | None = None


class FileEvaluationQuery(Request):
    """How a log file is read and what is estimated from it."""

    experiment: Name = Field(
        examples=["doses"], description="the experiment beside whose evaluations this one is kept"
    )
    candidate: Annotated[
        list[Annotated[str, Field(max_length=1024)]], Field(min_length=1, max_length=32)
    ] = Field(examples=[["uniform", "arm:mid"]], description="`uniform`, `arm:…` or `system:…`")
    format: Literal["jsonl", "dsjson", "csv"] = "jsonl"
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    domain: Literal["source", "target"] = "source"
    min_propensity: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None, description="the smallest possible propensity of the policy that wrote the log"
    )
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    skip_bad: bool = Field(default=False, description="count bad lines instead of refusing them")


class CancelRequest(Request):
    """An empty body."""


class Progress(Schema):
    """The number of log events read, and their total at the start; 0 of a file, of which rounds count."""

    done: int
    total: int


class EvaluationJob(Schema):
    """An evaluation and, once it is done, its result."""

    evaluation_id: str
    experiment: str
    status: EvaluationStatus
    progress: Progress
    created_at: datetime
    ended_at: datetime | None
    problem: str | None
    request: dict[str, Any]
    result: dict[str, Any] | None


class EvaluationList(Schema):
    """The newest evaluations first, without their results."""

    evaluations: list[EvaluationJob]
