"""What the service answers.

Fields that this version does not know are ignored, and words such as a status are plain strings:
a newer service may add to both.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct, convert, to_builtins


class ContextShape(Struct, frozen=True):
    """What a context looks like; `kind` is `shared`, `per_arm`, `image` or `table`, which has columns."""

    kind: str
    shape: list[int] = []
    columns: list[dict[str, Any]] | None = None
    per_arm: bool = False
    resize: bool = False

    def is_as(self, wanted: Mapping[str, Any]) -> bool:
        """Whether this is what was declared; a sample is resolved by the service alone."""
        declared = {name: value for name, value in wanted.items() if name != "sample"}
        return _is_included(declared, to_builtins(self))


class Declared(Struct, frozen=True, kw_only=True):
    """An experiment as it was declared; `config` holds what differs from the method's values."""

    name: str
    arms: list[str]
    context: ContextShape
    method: str
    seed: int
    config: dict[str, Any]
    fallback_arm: str | None = None
    durability: str = "durable"
    reward_range: list[float] | None = None

    def is_as(self, wanted: Mapping[str, Any]) -> bool:
        """Whether a declaration would give this experiment."""
        context = self.context
        declared = convert({**wanted, "context": to_builtins(context)}, Declared)
        return bool(self == declared) and context.is_as(wanted["context"])


def _is_included(wanted: Any, found: Any) -> bool:
    """Whether all that is wanted was found, and maybe more; null leaves a field open."""
    if wanted is None:
        return True
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        return all(_is_included(value, found.get(name)) for name, value in wanted.items())
    if isinstance(wanted, list | tuple) and isinstance(found, list):
        is_as_long = len(wanted) == len(found)
        return is_as_long and all(map(_is_included, wanted, found))
    # An integer names a level by its digits; a column that may not be missing does not say so.
    return bool(wanted == found or str(wanted) == found or (wanted is False and found is None))


class BatchLimits(Struct, frozen=True):
    """The largest batches that the service takes if every round or context offers all declared arms."""

    select_batch_rounds: int
    target_select_contexts: int


class Experiment(Declared, frozen=True, kw_only=True):
    """An experiment; `config` is the configuration in force, every field of it. Lists have no `limits`.

    `phase` is `zero_shot` or `continued`; `status` is `active`, `paused` or `archived`.
    """

    experiment_id: str
    recipe: int
    declared: Declared
    phase: str
    status: str
    created_at: datetime
    limits: BatchLimits | None = None


class ExperimentList(Struct, frozen=True):
    """All experiments, the oldest first."""

    experiments: list[Experiment]


class Deleted(Struct, frozen=True):
    """An experiment that is unknown from now on; its data is erased soon after."""

    experiment: str
    experiment_id: str
    status: str


class HistoryImported(Struct, frozen=True):
    """Past rounds that the service holds: `created` now, at least in part, or `already_recorded`."""

    experiment: str
    sha256: str
    rows: int
    rewards: int
    propensities: int
    status: str


class Score(Struct, frozen=True):
    """What the policy thinks of an arm: `ucb` = `mean` + `bonus`."""

    mean: float
    bonus: float
    ucb: float


class Decision(Struct, frozen=True):
    """The chosen arm, with the exact probability of every eligible arm."""

    decision_id: str
    arm: str
    probabilities: dict[str, float]
    scores: dict[str, Score]


class Selected(Struct, frozen=True):
    """The decisions of a round."""

    experiment: str
    request_id: str
    policy_version: int
    source: Decision | None = None
    target: Decision | None = None


class SelectedBatch(Struct, frozen=True):
    """The decisions of many rounds, in their order."""

    experiment: str
    rounds: list[Selected]


class Problem(Struct, frozen=True):
    """RFC 9457: what went wrong."""

    type: str
    title: str
    status: int
    detail: str
    instance: str | None = None
    request_id: str | None = None
    errors: list[dict[str, str]] | None = None


class Rewarded(Struct, frozen=True):
    """What became of a reward: `status` is `created` or `already_recorded`."""

    decision_id: str
    status: str
    offset: int


class RewardOutcome(Struct, frozen=True):
    """The same for one reward of many; `problem` says why it was `refused`."""

    decision_id: str
    status: str
    offset: int | None = None
    problem: Problem | None = None


class RewardedBatch(Struct, frozen=True):
    """What became of each reward, in their order."""

    rewards: list[RewardOutcome]


class TargetDecision(Struct, frozen=True):
    """The target policy's arm for a context, or the fallback arm where it abstained."""

    arm: str | None
    probabilities: dict[str, float]
    mean: float
    bonus: float
    transfer_confidence: float
    abstained: bool


class ContextsStored(Struct, frozen=True):
    """Unlabeled target contexts that are durable: `created` now, or `already_recorded`."""

    experiment: str
    request_id: str
    status: str
    contexts: int
    offset: int


class TargetSelected(Struct, frozen=True):
    """The target policy's decisions, in the order of the contexts; `stored` says what was kept."""

    experiment: str
    policy_version: int
    encoder_version: int
    decisions: list[TargetDecision]
    stored: ContextsStored | None = None


class RunningUpdate(Struct, frozen=True):
    """An encoder update under way, and what it was begun with."""

    episode: int
    rewards: int
    target_contexts: int


class Training(Struct, frozen=True):
    """Whether an encoder is being trained, or why learning fails and when it is tried again.

    `due_updates` follow the one that is `running`. `judgement` is that of the served encoder's transfer: `due`
    until it is `done` or `failed`, `none` without an encoder update or with too little data.
    """

    status: str
    due_updates: int = 0
    running: RunningUpdate | None = None
    judgement: str = "none"
    stage: str | None = None
    reason: str | None = None
    failures: int | None = None
    since: datetime | None = None
    retry_at: datetime | None = None


class State(Struct, frozen=True):
    """Where an experiment stands; `noted` is what its trainer noted last."""

    experiment: str
    phase: str
    status: str
    counts: dict[str, int]
    policy_version: int
    encoder_version: int
    state_hash: str | None
    head_offset: int
    folded_offset: int
    lag: int
    snapshot_at: datetime | None
    training: Training = Training(status="idle")
    noted: dict[str, Any] = {}

    @property
    def is_settled(self) -> bool:
        """Whether the published policy is the last one that the log leads to."""
        now = self.training
        is_idle = now.status == "idle" and now.running is None and not now.due_updates
        return is_idle and self.policy_version > 0 and self.lag == 0

    @property
    def updates(self) -> tuple[int, int | None]:
        """Encoder updates that are done, and how many there will be, once that is known."""
        begun = int(self.noted.get("episode", 0))
        total = begun + self.training.due_updates
        return begun - (self.training.running is not None), total or None


class PhaseChanged(Struct, frozen=True):
    """The phase from this offset of the log on."""

    experiment: str
    phase: str
    best_reward: float
    offset: int
    status: str


class Snapshot(Struct, frozen=True):
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


class SnapshotList(Struct, frozen=True):
    """The snapshots that are kept, the newest first."""

    experiment: str
    snapshots: list[Snapshot]


class Restored(Struct, frozen=True):
    """The restore is in the log; the trainer carries it out when it gets there."""

    experiment: str
    version: int
    offset: int
    status: str


class Candidate(Struct, frozen=True):
    """A trained encoder that does not serve, and what the gate said of it."""

    episode: int
    sha256: str
    size_bytes: int
    is_pinned: bool
    created_at: datetime
    verdict: dict[str, Any]


class CandidateList(Struct, frozen=True):
    """The candidates that are kept, the newest first."""

    experiment: str
    candidates: list[Candidate]


class TrainingAsked(Struct, frozen=True):
    """The request is in the log; the trainer carries it out when it gets there."""

    experiment: str
    offset: int
    status: str


class Promoted(Struct, frozen=True):
    """The promotion is in the log; the trainer carries it out when it gets there."""

    experiment: str
    episode: int
    offset: int
    status: str


class Act(Struct, frozen=True):
    """What was done to an experiment: paused, active, archived, deleted, erased."""

    experiment: str
    experiment_id: str
    at: datetime
    what: str
    by: str | None
    reason: str | None
    key_id: str | None


class Acts(Struct, frozen=True):
    """What was done to experiments, the newest first."""

    entries: list[Act]


class AuditEntry(Struct, frozen=True):
    """Something that happened to an experiment; `offset` is its place in the log, if it has one."""

    offset: int | None
    at: datetime
    what: str
    details: dict[str, Any]


class AuditTrail(Struct, frozen=True):
    """What happened to an experiment, in order."""

    experiment: str
    entries: list[AuditEntry]


class TransferVerdict(Struct, frozen=True):
    """`aligned`, `weak` or `do not trust`, and why it is not better."""

    word: str
    reasons: list[str]


class ExpectedReward(Struct, frozen=True):
    """The expected mean reward of the policy on the target in [0, 1], and a lower bound."""

    reward: float
    lower: float


class Abstention(Struct, frozen=True):
    """What is left if the policy abstains below a confidence; None: nothing is decided."""

    confidence_floor: float
    decided_share: float
    expected_reward: float | None


class TransferVersion(Struct, frozen=True):
    """What was said of one encoder version; `gate` is what let it serve."""

    encoder_version: int
    offset: int
    at: datetime
    verdict: TransferVerdict
    signs: dict[str, float]
    diagnostics: dict[str, float]
    gate: AuditEntry | None
    expected: ExpectedReward | None = None


class TargetRegret(Struct, frozen=True):
    """Target rewards against the declared best; `curve` is [rewards, cumulative regret]."""

    rewards: int
    best_reward: float | None
    cumulative: float
    curve: list[tuple[int, float]]


class Transfer(Struct, frozen=True):
    """How the source carries over to the target, by encoder version.

    The lower bound of `expected` holds unless one of `conditions` is so.
    """

    experiment: str
    phase: str
    encoder_version: int
    verdict: TransferVerdict | None
    versions: list[TransferVersion]
    gate: list[AuditEntry]
    target_regret: TargetRegret
    expected: ExpectedReward | None = None
    conditions: list[str] = []
    abstention: list[Abstention] = []


class LoggedReward(Struct, frozen=True):
    """The reward of a decision, with its place in the log."""

    reward: float
    offset: int
    at: datetime


class LoggedDecision(Struct, frozen=True):
    """A decision of the log with the probability and the scores of its arm."""

    decision_id: str
    offset: int
    at: datetime
    request_id: str | None
    domain: str
    arm: str
    propensity: float | None
    mean: float | None
    bonus: float | None
    policy_version: int | None
    encoder_version: int
    row_id: str | None
    reward: LoggedReward | None


class DecisionAgain(Struct, frozen=True):
    """A decision as it was logged, and as it is derived again; `problem` says why it cannot be."""

    experiment: str
    decision_id: str
    offset: int
    at: datetime
    request_id: str | None
    domain: str
    policy_version: int | None
    encoder_version: int
    logged: Decision
    derived: Decision | None
    is_equal: bool | None
    largest_difference: float | None
    problem: str | None
    reward: LoggedReward | None


class NearRound(Struct, frozen=True):
    """A source round in a context that the encoder sees as similar; `context` is as callers send it."""

    decision_id: str
    offset: int
    distance: float
    arm: str
    reward: float
    row_id: str | None
    context: Any


class NearRounds(Struct, frozen=True):
    """The nearest source rounds of one context, the nearest first."""

    nearest: list[NearRound]


class NearestRounds(Struct, frozen=True):
    """The nearest source rounds of each context, out of `sampled` rounds of the log."""

    experiment: str
    policy_version: int
    encoder_version: int
    sampled: int
    first_offset: int | None
    last_offset: int | None
    contexts: list[NearRounds]


class LogPage(Struct, frozen=True):
    """Decisions, the newest first; `next_before` is the `before` of the next page, none at the end."""

    experiment: str
    last_offset: int
    entries: list[LoggedDecision]
    next_before: int | None


class LearningPoint(Struct, frozen=True):
    """The rewards in a block of the log; `regret` is none where the best reward is unknown."""

    after: int
    offset: int
    rewards: int
    mean: float
    regret: float | None


class ArmRecord(Struct, frozen=True):
    """How often an arm was chosen, and what it earned."""

    arm: str
    decisions: int
    rewards: int
    mean: float | None


class Learning(Struct, frozen=True):
    """Rewards along the log; of a long log each block is a sample, and it is not complete."""

    experiment: str
    domain: str
    last_offset: int
    is_complete: bool
    best_reward: float | None
    points: list[LearningPoint]
    arms: list[ArmRecord]


class LatentPoint(Struct, frozen=True):
    """An encoded context in two directions, and the arm that is rated best for it."""

    domain: str
    x: float
    y: float
    arm: str | None


class Latents(Struct, frozen=True):
    """Encoded contexts of both domains; `explained` is the share of their variance that is shown."""

    experiment: str
    policy_version: int
    encoder_version: int
    explained: float
    points: list[LatentPoint]


class Progress(Struct, frozen=True):
    """Events of the log that were read, of those there were at the start."""

    done: int
    total: int


class EvaluationJob(Struct, frozen=True):
    """An offline evaluation and, once it is `done`, its result."""

    evaluation_id: str
    experiment: str
    status: str
    progress: Progress
    created_at: datetime
    ended_at: datetime | None
    problem: str | None
    request: dict[str, Any]
    result: dict[str, Any] | None


class EvaluationList(Struct, frozen=True):
    """The newest evaluations first, without their results."""

    evaluations: list[EvaluationJob]
