"""Open Inference Protocol: tritonclient, unchanged, gets what `/target/select` answers."""

import base64
import json
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
from tritonclient.http import (
    InferenceServerClient,
    InferInput,
    InferRequestedOutput,
    InferResult,
)
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from model.state.export import open_exported
from service.codec.protocols.inference import OUTPUTS
from tests.integration.protocols.conftest import SPEC, Guarded
from tests.support.images import colours, png
from tests.support.keys import bearer
from tests.support.tables import BAD_ROWS, MOUSE

ROWS = np.random.default_rng(3).standard_normal((5, 4)).astype(np.float32)
ARMS = ["low", "mid", "high"]


class Triton:
    """The published client with a key; `is_binary` says how tensors travel."""

    def __init__(self, guarded: Guarded, key: str, *, is_binary: bool = True) -> None:
        self.client = InferenceServerClient(urlsplit(guarded.url).netloc)
        self.headers = bearer(key)
        self.is_binary = is_binary

    def infer(self, model: str, values: dict[str, np.ndarray], **options: Any) -> InferResult:
        inputs = [self.input(name, value) for name, value in values.items()]
        if not self.is_binary:
            named = options.pop("outputs", OUTPUTS)
            options["outputs"] = [InferRequestedOutput(each, binary_data=False) for each in named]
        return self.client.infer(model, inputs, headers=self.headers, **options)

    def input(self, name: str, values: np.ndarray) -> InferInput:
        made = InferInput(name, list(values.shape), np_to_triton_dtype(values.dtype))
        made.set_data_from_numpy(values, binary_data=self.is_binary)
        return made


@pytest.fixture(params=[True, False], ids=["binary", "json"])
def triton(guarded: Guarded, request: pytest.FixtureRequest) -> Triton:
    return Triton(guarded, guarded.owner, is_binary=request.param)


def texts(*values: str | None) -> np.ndarray:
    return np.array([each or "" for each in values], dtype=object)


def chosen(result: InferResult) -> list[str]:
    """The arms; the client gives bytes where they came in binary."""
    found = result.as_numpy("arm").tolist()
    return [each.decode() if isinstance(each, bytes) else each for each in found]


def assert_decided(result: InferResult, wanted: Any) -> None:
    """The tensors hold what `/target/select` answers, bit by bit."""
    decisions = wanted.decisions
    assert chosen(result) == [each.arm or "" for each in decisions]
    assert result.as_numpy("probabilities").tolist() == [
        list(each.probabilities.values()) for each in decisions
    ]
    for name in ("mean", "bonus"):
        found = result.as_numpy(name)
        assert found.dtype == np.float32
        assert found.tolist() == [np.float32(getattr(each, name)) for each in decisions]
    assert result.as_numpy("abstained").tolist() == [each.abstained for each in decisions]
    confidence = [each.transfer_confidence for each in decisions]
    assert result.as_numpy("transfer_confidence").tolist() == confidence


def test_vectors_are_decided(guarded: Guarded, triton: Triton):
    result = triton.infer("doses", {"context": ROWS}, request_id="mine")
    with guarded.client() as client:
        assert_decided(result, client.target_select("doses", ROWS))
    answer = result.get_response()
    assert (answer["model_name"], answer["model_version"], answer["id"]) == ("doses", "2", "mine")


def test_other_numbers_are_cast(guarded: Guarded, triton: Triton):
    with guarded.client() as client:
        wanted = client.target_select("doses", ROWS.round())
    for kind in ("float64", "float16", "int64", "int8"):
        assert_decided(triton.infer("doses", {"context": ROWS.round().astype(kind)}), wanted)


def test_columns_are_named_inputs(guarded: Guarded, triton: Triton):
    rows = [MOUSE, {**MOUSE, "age": None, "strain": "new", "stage": None}]
    result = triton.infer(
        "mice",
        {
            "age": np.array([41.0, np.nan]) if triton.is_binary else np.array([41.0, 40.0]),
            "strain": texts("B6", "new"),
            "treated_before": np.array([True, True]),
            "stage": texts("II", None),
        },
    )
    if not triton.is_binary:  # JSON has no NaN; tritonclient cannot send null
        rows[1]["age"] = 40.0
    with guarded.client() as client:
        assert_decided(result, client.target_select("mice", rows))


def test_columns_may_be_single_precision_and_stand_upright(guarded: Guarded, triton: Triton):
    columns = {
        "age": np.array([[41]], dtype=np.float32),
        "strain": texts("B6").reshape(1, 1),
        "treated_before": np.array([[1]], dtype=np.int64),
        "stage": texts("II").reshape(1, 1),
    }
    with guarded.client() as client:
        assert_decided(triton.infer("mice", columns), client.target_select("mice", [MOUSE]))


def test_the_slots_of_a_table_are_a_context(guarded: Guarded, triton: Triton):
    slots = np.zeros((2, 8), dtype=np.float32)
    with guarded.client() as client:
        wanted = client.target_select("mice", slots.tolist())
    assert_decided(triton.infer("mice", {"context": slots}), wanted)


def test_images_are_files_or_numbers(guarded: Guarded, triton: Triton):
    files = [png(each) for each in colours(2)]
    with guarded.client() as client:
        wanted = client.target_select("cells", files)
    sent = files if triton.is_binary else [base64.b64encode(each) for each in files]
    assert_decided(triton.infer("cells", {"context": np.array(sent, dtype=object)}), wanted)
    numbers = np.stack([each.transpose(2, 0, 1) for each in colours(2)]) / np.float32(127.5) - 1
    assert_decided(triton.infer("cells", {"context": numbers.astype(np.float32)}), wanted)


def test_arms_may_have_contexts_of_their_own(guarded: Guarded, triton: Triton):
    contexts = np.stack([ROWS[:3], ROWS[2:]])
    by_arm = [dict(zip(ARMS, each, strict=True)) for each in contexts]
    with guarded.client() as client:
        wanted = client.target_select("offers", by_arm)
    assert_decided(triton.infer("offers", {"context": contexts}), wanted)


def test_below_a_floor_the_model_abstains(triton: Triton):
    columns = {
        "age": np.array([41.0]),
        "strain": texts("B6"),
        "treated_before": np.array([True]),
        "stage": texts("II"),
    }
    result = triton.infer("mice", columns, parameters={"confidence_floor": 0.5})
    assert result.as_numpy("abstained").tolist() == [True]
    assert chosen(result) == ["low"]
    vector = triton.infer("doses", {"context": ROWS}, parameters={"confidence_floor": 1.0})
    decided = zip(chosen(vector), vector.as_numpy("abstained"), strict=True)
    assert {arm for arm, has_abstained in decided if has_abstained} == {""}


def test_versions_of_the_policy_are_versions_of_the_model(guarded: Guarded, triton: Triton):
    metadata = triton.client.get_model_metadata("doses", headers=triton.headers)
    assert metadata["versions"] == ["2", "1"]
    answers = {
        version: triton.infer("doses", {"context": ROWS}, model_version=version)
        for version in ("1", "2", "")
    }
    means = {version: each.as_numpy("mean").tolist() for version, each in answers.items()}
    assert answers["1"].get_response()["model_version"] == "1"
    assert means["1"] != means["2"] == means[""]
    assert answers["1"].as_numpy("mean").tolist() == offline(guarded, 1)
    assert not triton.client.is_model_ready("doses", "3", headers=triton.headers)
    with pytest.raises(InferenceServerException, match="no snapshot of this version") as raised:
        triton.infer("doses", {"context": ROWS}, model_version="3")
    assert raised.value.status() == "404"


def offline(guarded: Guarded, version: int) -> list[float]:
    """The means by the downloaded policy of a version."""
    with guarded.client() as client:
        policy = open_exported(client.policy("doses", version)).policy
    selection = policy.select_target(ROWS)
    return [float(selection.scores.mean[row, arm]) for row, arm in enumerate(selection.arms)]


def test_outputs_are_chosen_one_by_one(triton: Triton):
    outputs = [InferRequestedOutput("arm"), InferRequestedOutput("mean", binary_data=False)]
    inputs = [triton.input("context", ROWS)]
    result = triton.client.infer("doses", inputs, headers=triton.headers, outputs=outputs)
    assert [each["name"] for each in result.get_response()["outputs"]] == ["arm", "mean"]
    assert "data" in result.get_output("mean")
    assert "data" not in result.get_output("arm")
    assert set(chosen(result)) <= set(ARMS)
    assert len(result.as_numpy("mean")) == len(ROWS)


def test_the_server_and_its_models_describe_themselves(triton: Triton):
    client, headers = triton.client, triton.headers
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
    assert client.is_model_ready("doses", headers=headers)
    assert client.is_model_ready("doses", "1", headers=headers)
    found = client.get_model_metadata("mice", headers=headers)
    assert (found["name"], found["platform"], found["versions"]) == ("mice", "daband", ["0"])
    assert {each["name"]: each["datatype"] for each in found["inputs"]} == {
        "age": "FP64",
        "strain": "BYTES",
        "treated_before": "BOOL",
        "stage": "BYTES",
    }
    vector = client.get_model_metadata("doses", "1", headers=headers)
    assert vector["inputs"] == [{"name": "context", "datatype": "FP32", "shape": [-1, 4]}]
    by_arm = client.get_model_metadata("offers", headers=headers)
    assert by_arm["inputs"][0]["shape"] == [-1, 3, 4]


def test_metadata_says_what_is_answered(triton: Triton):
    described = triton.client.get_model_metadata("doses", headers=triton.headers)["outputs"]
    outputs = triton.infer("doses", {"context": ROWS}).get_response()["outputs"]
    assert [(each["name"], each["datatype"]) for each in described] == [
        (each["name"], each["datatype"]) for each in outputs
    ]
    for shape, output in zip((each["shape"] for each in described), outputs, strict=True):
        assert output["shape"] == [len(ROWS), *shape[1:]]


def test_a_model_without_declared_arms_is_not_ready(guarded: Guarded, triton: Triton):
    client, headers = triton.client, triton.headers
    assert not client.is_model_ready("open", headers=headers)
    assert not client.is_model_ready("open", "0", headers=headers)
    outputs = client.get_model_metadata("open", headers=headers)["outputs"]
    assert {"name": "probabilities", "datatype": "FP64", "shape": [-1, -1]} in outputs
    body = {"inputs": [{**CONTEXT, "shape": [1, 1, 4], "data": FLAT}]}
    answer = asked(guarded, "open", body)
    assert (answer.status_code, list(answer.json())) == (422, ["error"])
    assert "declares no arms" in answer.json()["error"]


def test_keys_and_tenants_hold(guarded: Guarded):
    expected = [
        (guarded.stranger, "404", "no experiment of this name"),
        (guarded.weak, "403", "does not allow this: it lacks the scope `target`.$"),
        ("daband_none", "401", "wrong, has expired or was revoked"),
    ]
    for key, status, text in expected:
        with pytest.raises(InferenceServerException, match=text) as raised:
            Triton(guarded, key).infer("doses", {"context": ROWS})
        assert raised.value.status() == status
    assert not Triton(guarded, guarded.stranger).client.is_model_ready(
        "doses", headers=bearer(guarded.stranger)
    )


@pytest.mark.parametrize(("row", "column", "text"), BAD_ROWS[3:5] + BAD_ROWS[7:8])
def test_a_row_that_does_not_fit_is_named(
    guarded: Guarded, row: dict[str, Any], column: str, text: str
):
    names = [{"name": name, "value": value} for name, value in row.items()]
    inputs = [
        {
            "name": each["name"],
            "shape": [1],
            "datatype": kind_of(each["value"]),
            "data": [each["value"]],
        }
        for each in names
    ]
    answer = asked(guarded, "mice", {"inputs": inputs})
    assert answer.status_code == 422
    assert f"#/contexts/0/{column}" in answer.json()["error"]
    assert text in answer.json()["error"]


def kind_of(value: object) -> str:
    kinds: dict[type, str] = {bool: "BOOL", int: "INT64", float: "FP64"}
    return kinds.get(type(value), "BYTES")


def asked(guarded: Guarded, model: str, body: Any, **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body)
    named = {each.replace("_", "-"): value for each, value in headers.items()}
    return guarded.http.post(
        f"{guarded.url}/v2/models/{model}/infer",
        content=content,
        headers={**bearer(guarded.owner), **named},
    )


CONTEXT: dict[str, Any] = {"name": "context", "shape": [1, 4], "datatype": "FP32"}
FLAT = [1.0, 2.0, 3.0, 4.0]


def tensor(**fields: Any) -> dict[str, Any]:
    return {"inputs": [{**CONTEXT, "data": FLAT, **fields}]}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"{", "#"),
        ({"inputs": []}, "#/inputs"),
        (tensor(datatype="FP128"), "Must be one of BYTES, BOOL"),
        (tensor(shape=[1, 5]), "not as `shape` says"),
        (tensor(shape=[2, 2]), "Expected numbers of shape ['n', 4]"),
        (tensor(shape=[-1, 4]), "#/inputs/0/shape"),
        (tensor(data=["1", 2, 3, 4]), "Expected `float | null`"),
        (tensor(data=[True, 2, 3, 4]), "Expected `float | null`"),
        (tensor(data=[[1, 2], [3]]), "#/inputs/0/data"),
        (tensor(data=[1e39, 2, 3, 4]), "finite"),
        (tensor(data=[None, 2, 3, 4]), "finite"),
        (tensor(datatype="INT8", data=[300, 2, 3, 4]), "Expected INT8 values"),
        (tensor(datatype="BOOL", data=[True] * 4), "Expected numbers of shape"),
        (tensor(datatype="BYTES", data=["1"] * 4), "takes numbers as `context`"),
        (tensor(name="contexts"), "takes one input, `context`"),
        (tensor(parameters={"shared_memory_region": "x"}), "shared_memory_region"),
        (tensor(parameters={"binary_data_size": 16}), "either `data` or"),
        ({"inputs": [CONTEXT]}, "either `data` or"),
        ({"inputs": tensor()["inputs"] * 2}, "names of inputs must be unique"),
        ({**tensor(), "outputs": [{"name": "reward"}]}, "Must be one of arm"),
        ({**tensor(), "parameters": {"confidence_flour": 1}}, "confidence_flour"),
        ({**tensor(), "parameters": {"confidence_floor": 2}}, "confidence_floor"),
        (tensor(shape=[0, 4], data=[]), "1 to 1000 contexts"),
    ],
)
def test_what_does_not_fit_is_refused_in_the_protocols_shape(
    guarded: Guarded, body: Any, text: str
):
    answer = asked(guarded, "doses", body)
    assert (answer.status_code, list(answer.json())) == (422, ["error"])
    assert answer.headers["content-type"] == "application/json"
    assert text in answer.json()["error"]


@pytest.mark.parametrize(
    ("length", "size", "tail", "text"),
    [
        ("99999", 16, b"", "length of the JSON"),
        ("-1", 16, b"", "length of the JSON"),
        (None, 16, bytes(15), "ends before the tensor does"),
        (None, 15, bytes(15), "multiple of 4 bytes"),
        (None, 16, bytes(17), "must add up"),
    ],
)
def test_binary_tensors_must_be_whole(
    guarded: Guarded, length: str | None, size: int, tail: bytes, text: str
):
    head = json.dumps({"inputs": [{**CONTEXT, "parameters": {"binary_data_size": size}}]}).encode()
    header = {"Inference_Header_Content_Length": length or str(len(head))}
    answer = asked(guarded, "doses", head + tail, **header)
    assert answer.status_code == 422
    assert text in answer.json()["error"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"\x01\x00", "ends in its length"),
        (b"\x09\x00\x00\x00B6", "longer than the tensor"),
        (b"\x01\x00\x00\x00\xff", "must be UTF-8"),
    ],
)
def test_binary_text_must_be_whole(guarded: Guarded, content: bytes, text: str):
    size = {"binary_data_size": len(content)}
    column = {"name": "strain", "shape": [1], "datatype": "BYTES", "parameters": size}
    head = json.dumps({"inputs": [column]}).encode()
    header = {"Inference_Header_Content_Length": str(len(head))}
    answer = asked(guarded, "mice", head + content, **header)
    assert answer.status_code == 422
    assert text in answer.json()["error"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2/nothing", 404),
        ("PUT", "/v2", 405),
        ("GET", "/v2/models/a%2Fb", 404),
        ("GET", "/v2/models/doses/versions/one", 422),
    ],
)
def test_errors_of_all_layers_have_the_protocols_shape(
    guarded: Guarded, method: str, path: str, status: int
):
    answer = guarded.http.request(method, guarded.url + path, headers=bearer(guarded.owner))
    assert (answer.status_code, list(answer.json())) == (status, ["error"])
    assert int(answer.headers["content-length"]) == len(answer.content)
    bare = guarded.http.get(f"{guarded.url}/v2/models/doses")
    assert (bare.status_code, list(bare.json())) == (401, ["error"])
    assert "www-authenticate" in bare.headers
    packed = asked(guarded, "doses", b"", Content_Encoding="gzip")
    assert (packed.status_code, list(packed.json())) == (415, ["error"])


def test_rows_may_be_nested_or_flat(guarded: Guarded):
    flat, nested = (
        asked(guarded, "doses", tensor(data=data)).json()["outputs"] for data in (FLAT, [FLAT])
    )
    assert flat == nested
    assert SPEC.arms == tuple(ARMS)
