"""The shapes of answers about the log and about what was learned of it, as they are documented."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from service.codec.answers import Decision, Schema
from service.codec.requests import Context, Identifier, Request

DomainName = Literal["source", "target"]


class LogFilters(Request):
    """GET /experiments/{name}/log/export: which decisions; all filters may be left out."""

    domain: DomainName | None = None
    arm: Identifier | None = None
    rewarded: bool | None = None


class LogQuery(LogFilters):
    """GET /experiments/{name}/log: the same, page by page."""

    before: Annotated[int, Field(ge=1, le=2**63 - 1)] | None = Field(
        default=None, description="an offset; without it the newest"
    )
    limit: Annotated[int, Field(ge=1, le=200)] = 50


class LoggedReward(Schema):
    """The reward of a decision, with its place in the log."""

    reward: float
    offset: int
    at: datetime


class LoggedDecision(Schema):
    """A decision of the log with the probability and the scores of its arm."""

    decision_id: str
    offset: int
    at: datetime
    request_id: str | None
    domain: DomainName
    arm: str
    propensity: float | None = Field(description="null in imported history that does not know it")
    mean: float | None
    bonus: float | None
    policy_version: int | None
    encoder_version: int
    row_id: str | None = Field(description="the id of an imported row")
    reward: LoggedReward | None


class LogPage(Schema):
    """Decisions, the newest first; `next_before` is the `before` of the next page, null at the end."""

    experiment: str
    last_offset: int
    entries: list[LoggedDecision]
    next_before: int | None


class DecisionAgain(Schema):
    """A decision as it was logged and as it is derived again from its policy version, context and id."""

    experiment: str
    decision_id: str
    offset: int
    at: datetime
    request_id: str | None
    domain: DomainName
    policy_version: int | None
    encoder_version: int
    logged: Decision
    derived: Decision | None
    is_equal: bool | None = Field(description="byte for byte; null if it cannot be derived")
    largest_difference: float | None = Field(description="of any probability, mean or bonus")
    problem: str | None = Field(description="why it cannot be derived")
    reward: LoggedReward | None


class LearningPoint(Schema):
    """The rewards in a block of the log, after one offset and up to another."""

    after: int
    offset: int
    rewards: int
    mean: float
    regret: float | None = Field(description="the best reward less the mean, where it is known")


class ArmRecord(Schema):
    """How often an arm was chosen, and what it earned; `mean` is null without a reward."""

    arm: str
    decisions: int
    rewards: int
    mean: float | None


class Learning(Schema):
    """Rewards along the log. Of a long log each block is a sample: `is_complete` is false."""

    experiment: str
    domain: DomainName
    last_offset: int
    is_complete: bool
    best_reward: float | None = Field(description="1 where exactly one arm pays; null if unknown")
    points: list[LearningPoint]
    arms: list[ArmRecord]


class LatentPoint(Schema):
    """An encoded context in two directions, and the arm that is rated best for it."""

    domain: DomainName
    x: float
    y: float
    arm: str | None


class Latents(Schema):
    """Encoded contexts of both domains; `explained` is the share of their variance that is shown."""

    experiment: str
    policy_version: int
    encoder_version: int
    explained: float
    points: list[LatentPoint]


class NearRound(Schema):
    """A source round: what was done and earned in a context that the encoder sees as similar."""

    decision_id: str
    offset: int
    distance: float = Field(description="between the latents of both contexts, at most 2")
    arm: str
    reward: float
    row_id: str | None = Field(description="the id of an imported row")
    context: Context = Field(description="with arms of their own, that of the chosen arm")


class NearRounds(Schema):
    """The nearest source rounds of one context, the nearest first."""

    nearest: list[NearRound]


class NearestRounds(Schema):
    """The nearest source rounds of each context, out of a sample of the log between two offsets."""

    experiment: str
    policy_version: int
    encoder_version: int
    sampled: int
    first_offset: int | None
    last_offset: int | None
    contexts: list[NearRounds]
