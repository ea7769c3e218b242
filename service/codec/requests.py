"""The shapes of requests for the OpenAPI description.

`bodies` defines what is accepted; a test compares the two field by field.
"""

import dataclasses
from enum import StrEnum
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field

from model import MAX_ARMS, SYSTEMS, BanditConfig
from service import DEFAULT_METHOD
from service.columns.resolving import MAX_SAMPLE
from service.columns.schema import MAX_COLUMNS
from service.experiment_spec import CONFIG_FIELDS

Identifier = Annotated[
    str,
    Field(
        min_length=1,
        max_length=128,
        description="opaque text of at most 128 bytes, compared byte for byte; no NUL",
    ),
]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
Number = Annotated[float, Field(allow_inf_nan=False)]
Numbers = (
    list[Number] | list[list[Number]] | list[list[list[Number]]] | list[list[list[list[Number]]]]
)
Cell = bool | Number | Annotated[str, Field(max_length=128)] | None
Row = Annotated[dict[str, Cell], Field(description="a row of a table: its columns by name")]
ColumnName = Annotated[str, Field(min_length=1, max_length=128)]
Status = Literal["active", "paused", "archived"]
Method = Annotated[str, Field(json_schema_extra={"enum": list(SYSTEMS)})]


JSON_TYPES = {int: "integer", float: "number", bool: "boolean", str: "string"}


def _config_schema() -> dict[str, Any]:
    """The fields of an experiment's configuration, with types, bounds and meanings."""
    types = get_type_hints(BanditConfig)
    fields = [each for each in dataclasses.fields(BanditConfig) if each.name in CONFIG_FIELDS]
    return {each.name: _field_schema(types[each.name], each.metadata) for each in fields}


def _field_schema(kind: Any, says: Any) -> dict[str, Any]:
    unit = f", in {says['unit']}" if says["unit"] else ""
    found: dict[str, Any] = {"description": f"{says['meaning']}{unit}"}
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return found | {"type": "string", "enum": list(kind)}
    if kind in (str, bool):
        return found | {"type": JSON_TYPES[kind]}
    low, high = says["bounds"]
    limits = {"minimum": low, "maximum": high}
    if kind not in JSON_TYPES:
        most = {} if says["max_items"] is None else {"maxItems": says["max_items"]}
        return found | {"type": "array", "items": {"type": "integer"} | limits} | most
    return found | {"type": JSON_TYPES[kind]} | limits


def example(**fields: Any) -> ConfigDict:
    """The configuration of a body with an example, which a reader of `/docs` can send."""
    return ConfigDict(json_schema_extra={"examples": [fields]})


SOURCE, TARGET = {"context": [0.1, 0.2, 0.3, 0.4]}, {"context": [0.3, 0.1, 0.2, 0.5]}


class Request(BaseModel):
    """A request; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ImageRequest(Request):
    """A context that is an image."""

    image: Annotated[
        str,
        Field(
            description="a PNG or JPEG file in base64; in msgpack its bytes",
            json_schema_extra={"contentEncoding": "base64"},
        ),
    ]


Context = Numbers | ImageRequest | Row


class ColumnRequest(Request):
    """A column of a table; a sample tells what is left out."""

    name: Annotated[str, Field(min_length=1, max_length=128)] = Field(examples=["age"])
    type: Literal["numeric", "categorical", "boolean", "ordinal"] | None = None
    unit: Annotated[str, Field(max_length=128)] | None = Field(None, examples=["years"])
    values: list[str | int] | None = Field(
        None, description="the levels; of an ordinal column from the lowest to the highest"
    )
    missing: bool | None = Field(None, description="whether a row may lack it")
    fill: float | str | None = Field(
        None,
        description="what stands for a missing number or level; the sample's median by default",
    )


class ContextRequest(Request):
    """What a context looks like: shared by all arms, one for each arm, a row of a table or an image."""

    kind: Literal["shared", "per_arm", "table", "image"] = Field(examples=["shared"])
    shape: (
        Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1, max_length=4)] | None
    ) = Field(
        None,
        examples=[[16]],
        description="of an image: channels (1 or 3), height, width; of a table it follows from its columns",
    )
    columns: Annotated[list[ColumnRequest], Field(min_length=1, max_length=MAX_COLUMNS)] | None = (
        Field(None, description="of a table; those of its sample when absent")
    )
    sample: Annotated[list[dict[str, Cell]], Field(max_length=MAX_SAMPLE)] | None = Field(
        None, description="rows of both domains, without rewards; they are not stored"
    )
    per_arm: bool = Field(
        False, description="of a table or an image: whether each arm has one of its own"
    )
    resize: bool = Field(
        False, description="of an image: whether other sizes are resized to the shape, or refused"
    )


class ExperimentRequest(Request):
    """An experiment to create."""

    model_config = example(
        name="doses",
        arms=["low", "mid", "high"],
        context={"kind": "shared", "shape": [4]},
        method=DEFAULT_METHOD,
        seed=7,
        config={"episode_length": 64},
        fallback_arm="low",
    )

    name: Name = Field(examples=["doses"])
    arms: Annotated[list[Identifier], Field(max_length=MAX_ARMS)] = Field(
        default=[], examples=[["low", "mid", "high"]]
    )
    context: ContextRequest
    method: Method = DEFAULT_METHOD
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    config: dict[str, Any] = Field(
        default={},
        description="differences from the values of the method",
        examples=[{"episode_length": 64, "alpha": 0.05, "epsilon": 0.05}],
        json_schema_extra={"properties": _config_schema(), "additionalProperties": False},
    )
    fallback_arm: Identifier | None = Field(
        None, description="the target policy's answer when it abstains"
    )
    durability: Literal["durable", "relaxed"] = Field(
        "durable",
        description="relaxed: decisions are answered some milliseconds before they are durable; a "
        "crash of the process loses at most DABAND_RELAXED_BOUND of them",
    )
    reward_range: Annotated[list[Number], Field(min_length=2, max_length=2)] | None = Field(
        None,
        description="what the rewards 0 and 1 mean in the unit of a history's outcomes",
        examples=[[0, 120]],
    )


class HistoryQuery(Request):
    """How a table of past rounds is read: what its columns mean, and its text if it is CSV."""

    arm: ColumnName
    reward: ColumnName = Field(description="in the unit of the experiment's `reward_range`")
    time: ColumnName | None = Field(None, description="orders the rounds: numbers or ISO 8601")
    propensity: ColumnName | None = Field(
        None, description="the probability of the arm; without it there is no offline evaluation"
    )
    id: ColumnName | None = None
    ignore: list[ColumnName] = Field(default=[], description="columns to leave out")
    image: ColumnName | None = Field(
        None, description="the files' names, for an archive of images and one table"
    )
    separator: Annotated[str, Field(min_length=1, max_length=1)] | None = None
    decimal: Annotated[str, Field(min_length=1, max_length=1)] | None = None
    encoding: Annotated[str, Field(max_length=32)] = "utf-8"


class StatusRequest(Request):
    """Pause, archive or resume an experiment."""

    model_config = example(status="paused", by="ann", reason="a new batch of mice")

    status: Status
    by: Annotated[str, Field(max_length=500)] | None = Field(None, description="who did it")
    reason: Annotated[str, Field(max_length=500)] | None = None


class SideRequest(Request):
    """One domain's contexts in a round."""

    context: Context | None = Field(None, description="the shared context, as it is declared")
    contexts: dict[str, Context] | None = Field(None, description="a context for each arm")


class RoundRequest(Request):
    """One round; a source side, a target side or both."""

    request_id: Identifier | None = Field(
        None, description="a repeated id gets the same answer; generated if absent"
    )
    source: SideRequest | None = None
    target: SideRequest | None = None
    eligible_arms: list[Identifier] | None = None


class SelectRequest(RoundRequest):
    """One round of an experiment."""

    model_config = example(experiment="doses", request_id="r-1", source=SOURCE, target=TARGET)

    experiment: Name


class SelectBatchRequest(Request):
    """Many rounds of an experiment, decided under one policy, all or none."""

    model_config = example(
        experiment="doses",
        rounds=[{"request_id": f"r-{number}", "source": SOURCE} for number in (2, 3)],
    )

    experiment: Name
    rounds: Annotated[list[RoundRequest], Field(min_length=1, max_length=1000)]


class TargetSelectRequest(Request):
    """One target context or many; per-arm contexts are objects by arm."""

    model_config = example(
        experiment="doses", contexts=[TARGET["context"], [1.1, 0.4, 0.3, 0.5]], confidence_floor=0.2
    )

    experiment: Name
    context: Context | dict[str, Context] | None = None
    contexts: Annotated[list[Context | dict[str, Context]], Field(max_length=1000)] | None = None
    confidence_floor: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="abstain if the transfer confidence is lower"
    )
    store: bool = Field(False, description="keep the contexts as unlabeled data")
    request_id: Identifier | None = Field(None, description="with `store`: makes a retry safe")
    eligible_arms: list[Identifier] | None = None


class NearestRequest(Request):
    """One target context or many, whose nearest source rounds are wanted."""

    model_config = example(contexts=[TARGET["context"]], count=3)

    context: Context | dict[str, Context] | None = None
    contexts: Annotated[list[Context | dict[str, Context]], Field(max_length=100)] | None = None
    count: Annotated[int, Field(ge=1, le=20)] = Field(
        3, description="rounds for each context; at most 100 for all together"
    )
    eligible_arms: list[Identifier] | None = None


class RewardRequest(Request):
    """The reward of a decision."""

    model_config = example(
        decision_id="the decision_id of the source that /select answered", reward=1
    )

    decision_id: Identifier
    reward: Annotated[float, Field(ge=0, le=1)]


class RewardBatchRequest(Request):
    """Rewards of many decisions, each recorded or refused independently."""

    model_config = example(
        rewards=[{"decision_id": "a decision_id that /select answered", "reward": 1}]
    )

    rewards: Annotated[list[RewardRequest], Field(min_length=1, max_length=1000)]


class PhaseRequest(Request):
    """Accept target rewards from now on; this cannot be undone."""

    model_config = example(phase="continued", best_reward=1)

    phase: Literal["continued"]
    best_reward: Annotated[float, Field(ge=0, le=1)] = Field(
        1.0, description="the reward that the regret of target rewards is relative to"
    )
    by: Annotated[str, Field(max_length=500)] | None = Field(None, description="who did it")
    reason: Annotated[str, Field(max_length=500)] | None = None


class AuditRequest(Request):
    """A manual act; a request id makes a retry safe."""

    model_config = example(by="ann", reason="looked at the report")

    request_id: Identifier | None = None
    by: Annotated[str, Field(max_length=500)] | None = Field(None, description="who did it")
    reason: Annotated[str, Field(max_length=500)] | None = None
