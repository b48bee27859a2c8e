"""The request path over a model that only pretends, and REST's routes to it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving import apis
from serving.errors import Code, RequestError
from serving.model_server_config import ModelConfig
from serving.server.call import Call
from serving.server.core import ServerCore
from serving.server.rest import HttpRequest, RestApi, inflate
from serving.server.service import ModelServer
from serving.server.steps import finish
from serving.tensors import Array, to_array, to_proto


class Doubler:
    """y = 2x, and z = x."""

    def __init__(self) -> None:
        built = apis.SignatureDef(method_name="tensorflow/serving/predict")
        for name, side in (("x", "inputs"), ("y", "outputs"), ("z", "outputs")):
            info = getattr(built, side)[name]
            info.name, info.dtype = f"{name}:0", 9
            info.tensor_shape.dim.add(size=-1)
        self.signatures: Mapping[str, Any] = {"serving_default": built}
        self.failure: Exception | None = None

    def run(
        self,
        signature_name: str,
        inputs: Mapping[str, Array],
        wanted: Sequence[str],
        deadline: float | None = None,
    ) -> dict[str, Array]:
        if self.failure is not None:
            raise self.failure
        outputs = {"y": 2 * inputs["x"], "z": inputs["x"]}
        return {name: outputs[name] for name in wanted or outputs}

    def close(self) -> None:
        pass


@pytest.fixture
def model() -> Doubler:
    return Doubler()


@pytest.fixture
def server(model: Doubler, tmp_path: Path) -> Iterator[ModelServer]:
    (tmp_path / "m" / "5").mkdir(parents=True)
    (tmp_path / "m" / "5" / "saved_model.pb").touch()
    core = ServerCore(lambda *_: model)
    core.begin([ModelConfig(name, tmp_path / name) for name in ("m", "empty")])
    yield ModelServer(core)
    core.close()


def grpc() -> Call:
    return Call("Predict", "grpc")


def request(name: str = "m", **spec: Any) -> Any:
    version = spec.pop("version", None)
    built = apis.PredictRequest(model_spec=apis.ModelSpec(name=name, **spec))
    if version is not None:
        built.model_spec.version.value = version
    built.inputs["x"].CopyFrom(to_proto(np.array([1, 2])))
    return built


def test_predict_answers_with_outputs_and_the_spec_that_served(
    server: ModelServer,
) -> None:
    response = finish(server.predict(request(), grpc()))
    assert to_array(response.outputs["y"]).tolist() == [2, 4]
    assert set(response.outputs) == {"y", "z"}
    spec = response.model_spec
    assert (spec.name, spec.version.value) == ("m", 5)
    assert spec.signature_name == "serving_default"


def test_output_filter_chooses_outputs(server: ModelServer) -> None:
    asked = request()
    asked.output_filter.append("z")
    assert set(finish(server.predict(asked, grpc())).outputs) == {"z"}


@pytest.mark.parametrize(
    ("asked", "code", "text"),
    [
        (apis.PredictRequest(), Code.INVALID_ARGUMENT, "Missing ModelSpec"),
        (
            request(""),
            Code.INVALID_ARGUMENT,
            "ModelSpec has no name specified.",
        ),
        (
            request("n"),
            Code.NOT_FOUND,
            "Servable not found for request: Latest(n)",
        ),
        (
            request("n", version=3),
            Code.NOT_FOUND,
            "Servable not found for request: Specific(n, 3)",
        ),
        (
            request("empty"),
            Code.NOT_FOUND,
            "Servable not found for request: Latest(empty)",
        ),
        (
            request(version=4),
            Code.NOT_FOUND,
            "Servable not found for request: Specific(m, 4)",
        ),
        (
            request(version_label="canary"),
            Code.INVALID_ARGUMENT,
            "Unrecognized servable version label: canary",
        ),
        (
            request(signature_name="s"),
            Code.FAILED_PRECONDITION,
            'Serving signature key "s" not found.',
        ),
    ],
)
def test_predict_refuses_in_tensorflow_servings_words(
    server: ModelServer, asked: Any, code: Code, text: str
) -> None:
    with pytest.raises(RequestError) as caught:
        finish(server.predict(asked, grpc()))
    assert (caught.value.code, str(caught.value)) == (code, text)


def test_metadata_must_be_asked_for_by_its_one_name(server: ModelServer) -> None:
    for fields in ([], ["weather"]):
        asked = apis.GetModelMetadataRequest(metadata_field=fields)
        asked.model_spec.name = "m"
        with pytest.raises(RequestError, match="metadata_field|weather"):
            server.get_model_metadata(asked, grpc())


def test_status_ignores_the_label(server: ModelServer) -> None:
    asked = apis.GetModelStatusRequest()
    asked.model_spec.name, asked.model_spec.version_label = "m", "canary"
    (entry,) = server.get_model_status(asked, grpc()).model_version_status
    assert entry.version == 5


def ask(
    server: ModelServer, method: str, target: str, body: Any = None
) -> tuple[int, Any]:
    content = b"" if body is None else json.dumps(body).encode()
    response = RestApi(server).answer(HttpRequest(method, target, content))
    return response.status, json.loads(response.body)


ROWS = {"instances": [1, 2]}


@pytest.mark.parametrize(
    "target",
    [
        "/v1/models/m:predict",
        "/v1/models/m/versions/5:predict",
        "/V1/Models/m:Predict",
        "/v1/models/m:predict?x=1",
    ],
)
def test_rest_predicts_by_name_and_version(server: ModelServer, target: str) -> None:
    status, body = ask(server, "POST", target, ROWS)
    assert (status, body["predictions"][1]) == (200, {"y": 4, "z": 2})


@pytest.mark.parametrize(
    ("method", "target", "status", "text"),
    [
        ("GET", "/", 404, "Not found: /"),
        ("GET", "/x?y=1", 404, "Not found: /x"),
        (
            "GET",
            "/v1/models/m:predict",
            400,
            "Malformed request: GET /v1/models/m:predict",
        ),
        ("PUT", "/v1/models/m", 400, "Malformed request: PUT /v1/models/m"),
        ("GET", "/v1/models", 400, "Missing model name in request."),
        ("GET", "/v1/models/n", 404, "Could not find any versions of model n"),
        (
            "GET",
            "/v1/models/m/versions/4",
            404,
            "Could not find version 4 of model m",
        ),
        (
            "GET",
            "/v1/models/n/metadata",
            404,
            "Servable not found for request: Latest(n)",
        ),
        (
            "GET",
            "/v1/models/m/versions/4/metadata",
            404,
            "Servable not found for request: Specific(m, 4)",
        ),
    ],
)
def test_rest_refuses_in_tensorflow_servings_words(
    server: ModelServer, method: str, target: str, status: int, text: str
) -> None:
    assert ask(server, method, target) == (status, {"error": text})


def test_rest_names_an_unknown_signature(server: ModelServer) -> None:
    body = ROWS | {"signature_name": "s"}
    assert ask(server, "POST", "/v1/models/m:predict", body) == (
        400,
        {"error": 'Serving signature name: "s" not found in signature def'},
    )


@pytest.mark.parametrize("version", [str(2**63), "9" * 20, "9" * 5000])
def test_rest_refuses_a_version_that_is_no_int64(
    server: ModelServer, version: str
) -> None:
    target = f"/v1/models/m/versions/{version}:predict"
    status, body = ask(server, "POST", target, ROWS)
    assert status == 400
    expected = f"Failed to convert version: {version[:100]} to numeric."
    assert body["error"] == expected


def test_rest_names_an_unknown_label(server: ModelServer) -> None:
    assert ask(server, "POST", "/v1/models/m/labels/canary:predict", ROWS) == (
        400,
        {"error": "Unrecognized servable version label: canary"},
    )


def test_rest_takes_a_version_or_a_label_but_not_both(server: ModelServer) -> None:
    target = "/v1/models/m/versions/5/labels/canary:predict"
    assert ask(server, "POST", target, ROWS) == (
        400,
        {"error": f"Malformed request: POST {target}"},
    )


def test_answer_to_a_name_that_utf8_cannot_hold_is_utf8(server: ModelServer) -> None:
    body = json.dumps(ROWS | {"signature_name": "\ud800"}).encode()
    request = HttpRequest("POST", "/v1/models/m:predict", body)
    response = RestApi(server).answer(request)
    assert response.status == 400
    assert r"name: \"\ud800\" not found" in response.body.decode()


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (Code.INVALID_ARGUMENT, 400),
        (Code.FAILED_PRECONDITION, 400),
        (Code.OUT_OF_RANGE, 400),
        (Code.UNAUTHENTICATED, 401),
        (Code.PERMISSION_DENIED, 403),
        (Code.NOT_FOUND, 404),
        (Code.ABORTED, 409),
        (Code.ALREADY_EXISTS, 409),
        (Code.RESOURCE_EXHAUSTED, 429),
        (Code.CANCELLED, 499),
        (Code.INTERNAL, 500),
        (Code.UNKNOWN, 500),
        (Code.DATA_LOSS, 500),
        (Code.UNIMPLEMENTED, 501),
        (Code.UNAVAILABLE, 503),
        (Code.DEADLINE_EXCEEDED, 504),
    ],
)
def test_status_codes_over_http(
    server: ModelServer, model: Doubler, code: Code, status: int
) -> None:
    model.failure = RequestError(code, "no")
    assert ask(server, "POST", "/v1/models/m:predict", ROWS) == (
        status,
        {"error": "no"},
    )


def test_unexpected_error_is_an_answer_and_the_server_goes_on(
    server: ModelServer, model: Doubler
) -> None:
    model.failure = KeyError("a fault of ours")
    assert ask(server, "POST", "/v1/models/m:predict", ROWS)[0] == 500
    model.failure = None
    assert ask(server, "POST", "/v1/models/m:predict", ROWS)[0] == 200


def test_gzip_body_that_is_cut_off_or_broken_is_refused() -> None:
    import gzip

    whole = gzip.compress(b"{}" * 1000)
    assert inflate(whole) == b"{}" * 1000
    for broken in (whole[:-9], b"no gzip", b""):
        with pytest.raises(RequestError, match="Cannot inflate the gzip body"):
            inflate(broken)
