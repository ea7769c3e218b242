"""Open Inference Protocol: a request as contexts of `/target/select`, and its answer as tensors."""

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta, Raw, Struct

from service.codec.bodies import Finite, MediaType, TargetSelectBody, decode
from service.codec.protocols.tensors import (
    TEXT,
    Tensor,
    TensorBody,
    bytes_of,
    datatype_of,
    tensors_of,
    texts_of,
)
from service.codec.target_contexts import TargetRows, binary_target_rows, target_rows
from service.codec.wire import Answer, Header
from service.columns.schema import MAX_COLUMNS, ColumnType
from service.errors import refuse
from service.experiment_spec import ExperimentSpec
from service.records import CONTEXT_TYPE

CONTEXT = "context"
HEADER_LENGTH = "inference-header-content-length"
OUTPUTS = ("arm", "probabilities", "mean", "bonus", "transfer_confidence", "abstained")
VALUES_A_SLICE = 10_000
DATATYPES = ("BYTES", "FP64", "FP32", "FP32", "FP64", "BOOL")
COLUMN_TYPES = {ColumnType.NUMERIC: "FP64", ColumnType.BOOLEAN: "BOOL"}
BYTES: Header = (b"content-type", MediaType.BYTES.value.encode())


class OutputParameters(Struct, frozen=True, forbid_unknown_fields=True):
    """How an output is sent."""

    binary_data: bool | None = None


class OutputBody(Struct, forbid_unknown_fields=True):
    """A requested output."""

    name: str
    parameters: OutputParameters = OutputParameters()


class InferParameters(Struct, frozen=True, forbid_unknown_fields=True):
    """`priority` and `timeout` are accepted and have no effect."""

    confidence_floor: Finite | None = None
    binary_data_output: bool = False
    priority: int = 0
    timeout: int | None = None


class InferBody(Struct, forbid_unknown_fields=True):
    """POST /v2/models/{name}/infer: the JSON part."""

    inputs: Annotated[list[TensorBody], Meta(min_length=1, max_length=MAX_COLUMNS)]
    id: str | None = None
    parameters: InferParameters = InferParameters()
    outputs: list[OutputBody] = []


class Inference(NamedTuple):
    """A request with its tensors."""

    body: InferBody
    inputs: list[Tensor]


def inference_of(content: bytes, header_length: str | None) -> Inference:
    """A request; `header_length` is the length of its JSON if binary tensors follow."""
    size = len(content) if header_length is None else _length(header_length, len(content))
    body = decode(content[:size], InferBody)
    for place, output in enumerate(body.outputs):
        if output.name not in OUTPUTS:
            refuse(f"Must be one of {', '.join(OUTPUTS)}.", f"#/outputs/{place}/name")
    if len({each.name for each in body.outputs}) != len(body.outputs):
        refuse("The names of outputs must be unique.", "#/outputs")
    inputs = tensors_of(body.inputs, content[size:])
    if len({each.name for each in inputs}) != len(inputs):
        refuse("The names of inputs must be unique.", "#/inputs")
    return Inference(body, inputs)


def _length(given: str, most: int) -> int:
    if not given.isdecimal() or len(given) > len(str(most)) or int(given) > most:
        refuse("`Inference-Header-Content-Length` must be the length of the JSON.")
    return int(given)


def check_askable(spec: ExperimentSpec) -> None:
    """Refuse an experiment whose arms are not known beforehand: they are the columns of an output."""
    if not spec.arms:
        refuse("This experiment declares no arms, so it cannot be asked in this way.")


def contexts_of(spec: ExperimentSpec, inputs: Sequence[Tensor]) -> list[TargetRows]:
    """The contexts of all inputs: columns by name, or one input `context`."""
    check_askable(spec)
    if spec.table is not None and not _is_context(spec, inputs):
        return _of_columns(spec, inputs)
    if [each.name for each in inputs] != [CONTEXT]:
        refuse(f"This experiment takes one input, `{CONTEXT}`.", "#/inputs")
    if inputs[0].values.dtype == object:
        return _of_images(spec, inputs[0])
    return _of_numbers(spec, inputs[0].values)


def _is_context(spec: ExperimentSpec, inputs: Sequence[Tensor]) -> bool:
    """Whether the rows of a table are sent as their slots."""
    assert spec.table is not None  # noqa: S101
    return [each.name for each in inputs] == [CONTEXT] and CONTEXT not in spec.table.by_name


def _of_columns(spec: ExperimentSpec, inputs: Sequence[Tensor]) -> list[TargetRows]:
    if spec.is_per_arm:
        refuse(f"This experiment takes one input, `{CONTEXT}`: the slots of each arm.", "#/inputs")
    columns = [_column(each) for each in inputs]
    if len({len(each) for each in columns}) != 1:
        refuse("All columns must have the same length.", "#/inputs")
    names = [each.name for each in inputs]
    return _objects(
        spec, [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    )


def _column(tensor: Tensor) -> list[Any]:
    shape = tensor.values.shape
    if len(shape) > 1 and shape != (shape[0], 1):
        refuse(f"Column `{tensor.name}` must have the shape [n] or [n, 1].", "#/inputs")
    if tensor.values.dtype == object:
        return texts_of(tensor)
    values: list[Any] = tensor.values.reshape(-1).tolist()
    return values


def _of_images(spec: ExperimentSpec, tensor: Tensor) -> list[TargetRows]:
    if spec.image is None or spec.is_per_arm:
        refuse(f"This experiment takes numbers as `{CONTEXT}`.", "#/inputs/0/datatype")
    try:
        files = [msgspec.convert(each, bytes) for each in tensor.values.flat]
    except msgspec.ValidationError:
        refuse("Expected PNG or JPEG files, in JSON in base64.", "#/inputs/0/data")
    return _objects(spec, [{"image": each} for each in files])


def _objects(spec: ExperimentSpec, objects: list[dict[str, Any]]) -> list[TargetRows]:
    body = TargetSelectBody(experiment=spec.name, contexts=Raw(msgspec.msgpack.encode(objects)))
    return target_rows(spec, body, MediaType.MSGPACK)


def _of_numbers(spec: ExperimentSpec, values: np.ndarray) -> list[TargetRows]:
    shape = (*((len(spec.arms),) if spec.is_per_arm else ()), *spec.context_shape)
    if values.dtype == np.bool_ or values.shape[1:] != shape:
        refuse(f"Expected numbers of shape {['n', *shape]}.", "#/inputs/0")
    with np.errstate(over="ignore"):  # what is too large is refused as not finite
        content = values.astype(CONTEXT_TYPE).tobytes()
    return binary_target_rows(spec, content, MediaType.BYTES, None)


def answer_of(
    spec: ExperimentSpec, version: int, inference: Inference, table: np.ndarray
) -> Answer:
    """The answer: the columns of `/target/select`'s table as tensors."""
    body, binary = inference.body, list[bytes]()
    outputs = []
    for wanted in body.outputs or [OutputBody(name) for name in OUTPUTS]:
        is_binary = wanted.parameters.binary_data
        if is_binary is None:
            is_binary = body.parameters.binary_data_output
        values = _values(spec, table, wanted.name)
        outputs.append(_output(wanted.name, values, binary if is_binary else None))
    content: dict[str, Any] = {"model_name": spec.name, "model_version": str(version)}
    if body.id is not None:
        content["id"] = body.id
    head = msgspec.json.encode({**content, "outputs": outputs})
    if not binary:
        return Answer(head)
    length = (HEADER_LENGTH.encode(), b"%d" % len(head))
    return Answer(b"".join((head, *binary)), content_type=BYTES, headers=(length,))


def _values(spec: ExperimentSpec, table: np.ndarray, name: str) -> np.ndarray:
    if name != "arm":
        return np.asarray(table[name])
    return np.asarray(np.array([*spec.arms, ""], dtype=object)[table["arm"]])  # none is -1


def _output(name: str, values: np.ndarray, binary: list[bytes] | None) -> dict[str, Any]:
    described = {"name": name, "datatype": datatype_of(values), "shape": values.shape}
    if binary is None:
        return {**described, "data": _listed(values.reshape(-1))}
    binary.append(bytes_of(values))
    return {**described, "parameters": {"binary_data_size": len(binary[-1])}}


def _listed(values: np.ndarray) -> Raw:
    """Values as a list in JSON, encoded in slices: a thread lets others work between them."""
    starts = range(0, len(values), VALUES_A_SLICE)
    parts = (
        msgspec.json.encode(values[start : start + VALUES_A_SLICE].tolist())[1:-1]
        for start in starts
    )
    return Raw(b"[%b]" % b",".join(parts))


def inputs_of(spec: ExperimentSpec) -> list[dict[str, Any]]:
    """The inputs of a model's metadata; -1 stands for the number of contexts."""
    if spec.table is not None and not spec.is_per_arm:
        return [
            {"name": each.name, "datatype": COLUMN_TYPES.get(each.type, TEXT), "shape": [-1]}
            for each in spec.table.columns
        ]
    own = (len(spec.arms) or -1,) if spec.is_per_arm else ()
    return [{"name": CONTEXT, "datatype": "FP32", "shape": [-1, *own, *spec.context_shape]}]


def outputs_of(spec: ExperimentSpec) -> list[dict[str, Any]]:
    """The outputs of a model's metadata."""
    return [
        {
            "name": name,
            "datatype": datatype,
            "shape": [-1, len(spec.arms) or -1] if name == "probabilities" else [-1],
        }
        for name, datatype in zip(OUTPUTS, DATATYPES, strict=True)
    ]
