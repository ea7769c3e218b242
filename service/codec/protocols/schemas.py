"""The shapes of these protocols' requests and answers, as they are documented."""

from typing import Any

from pydantic import Field

from service.codec.answers import Schema


class FlagEvaluationRequest(Schema):
    """A context: the user as `targetingKey`, and the columns of the experiment or its `context`."""

    context: dict[str, Any] = Field(default_factory=dict)


class FlagError(Schema):
    """Every error of OpenFeature remote evaluation; of one flag it names the `key`."""

    errorCode: str  # noqa: N815 - the protocol's name
    errorDetails: str | None = None  # noqa: N815 - the protocol's name
    key: str | None = None


class FlagEvaluation(Schema):
    """The arm of an experiment, as a flag; without a `value` the application takes its default."""

    key: str
    value: bool | float | str | None = None
    variant: str
    reason: str
    metadata: dict[str, bool | float | str]


class FlagEvaluations(Schema):
    """All flags of the target, each evaluated or refused alone."""

    flags: list[FlagEvaluation | FlagError]


class InferenceError(Schema):
    """Every error of the Open Inference Protocol."""

    error: str


class ServerLive(Schema):
    """The process is alive."""

    live: bool


class ServerReady(Schema):
    """The process takes requests."""

    ready: bool


class ModelReady(ServerReady):
    """A version of a model can be asked."""

    name: str


class ServerMetadata(Schema):
    """The service."""

    name: str
    version: str
    extensions: list[str]


class TensorMetadata(Schema):
    """A named tensor; -1 in its shape is the number of contexts."""

    name: str
    datatype: str
    shape: list[int]


class ModelMetadata(Schema):
    """An experiment's target policy; `versions` are those that can be asked, the newest first."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class TensorValues(TensorMetadata):
    """A tensor with its values, row by row; binary data follows the JSON instead."""

    data: list[Any] | None = None
    parameters: dict[str, Any] | None = None


class RequestedOutput(Schema):
    """An output; `binary_data` of its parameters asks for it in binary."""

    name: str
    parameters: dict[str, Any] | None = None


class InferRequest(Schema):
    """Contexts as named tensors."""

    inputs: list[TensorValues]
    id: str | None = None
    parameters: dict[str, Any] | None = Field(
        None, description="`confidence_floor`, `binary_data_output`"
    )
    outputs: list[RequestedOutput] | None = None


class InferAnswer(Schema):
    """Decisions as named tensors."""

    model_name: str
    model_version: str
    id: str | None = None
    outputs: list[TensorValues]
