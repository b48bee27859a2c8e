"""Classify, Regress, MultiInference, metadata, status, health, reflection, metrics."""

import json
from typing import Any

import pytest
from contract_server import MODELS, Contracted, StatusError, examples, model_spec

from serving import apis

HALF = "half_plus_two"
CLASSIFY, REGRESS = "tensorflow/serving/classify", "tensorflow/serving/regress"


def regress(server: Contracted, source: Any, signature: str = "regress_x_to_y") -> Any:
    request = apis.RegressionRequest(
        model_spec=model_spec(HALF, signature=signature), input=source
    )
    return server.call("PredictionService", "Regress", request)


def classify(
    server: Contracted, source: Any, signature: str = "classify_x_to_y"
) -> Any:
    request = apis.ClassificationRequest(
        model_spec=model_spec(HALF, signature=signature), input=source
    )
    return server.call("PredictionService", "Classify", request)


def test_regress_over_grpc(server: Contracted) -> None:
    response = regress(server, examples({"x": 80.0}, {"x": 200.0}))
    assert [r.value for r in response.result.regressions] == [42.0, 102.0]
    assert response.model_spec.version.value == 124
    assert response.model_spec.signature_name == "regress_x_to_y"


def test_classify_over_grpc(server: Contracted) -> None:
    response = classify(server, examples({"x": 20.0}))
    [one] = response.result.classifications
    assert [(c.label, c.score) for c in one.classes] == [("", 12.0)]


def test_context_belongs_to_every_example_and_an_example_wins(
    server: Contracted,
) -> None:
    source = apis.Input()
    listed = source.example_list_with_context
    listed.context.features.feature["x"].float_list.value.append(80.0)
    listed.examples.add()
    listed.examples.add().features.feature["x"].float_list.value.append(200.0)
    response = regress(server, source)
    assert [r.value for r in response.result.regressions] == [42.0, 102.0]


def test_regress_and_classify_over_rest(server: Contracted) -> None:
    body = {"signature_name": "regress_x_to_y", "examples": [{"x": 80.0}, {"x": 200.0}]}
    path = f"/v1/models/{HALF}"
    assert server.rest("POST", f"{path}:regress", body) == (
        200,
        {"results": [42.0, 102.0]},
    )
    body = {"signature_name": "classify_x_to_y", "examples": [{"x": 20.0}]}
    assert server.rest("POST", f"{path}:classify", body) == (
        200,
        {"results": [[["", 12.0]]]},
    )
    body = {
        "signature_name": "regress_x_to_y",
        "context": {"x": 80.0},
        "examples": [{}, {"x": [200.0]}],
    }
    assert server.rest("POST", f"{path}:regress", body) == (
        200,
        {"results": [42.0, 102.0]},
    )


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"examples": []},
        {"examples": [1]},
        {"examples": [{"x": [1.0, "a"]}]},
        {"examples": [{"x": {"y": 1}}]},
        {"examples": [{"x": None}]},
        {"examples": [{}], "context": 1},
    ],
)
def test_examples_that_are_refused(server: Contracted, body: dict[str, Any]) -> None:
    body["signature_name"] = "regress_x_to_y"
    status, answer = server.rest("POST", f"/v1/models/{HALF}:regress", body)
    assert status == 400
    assert answer["error"]


def test_empty_input_and_unknown_signature_are_refused(server: Contracted) -> None:
    with pytest.raises(StatusError, match="Input is empty") as refused:
        regress(server, apis.Input())
    assert refused.value.code == "INVALID_ARGUMENT"
    with pytest.raises(StatusError) as refused:
        regress(server, examples({"x": 1.0}), "nothing")
    assert refused.value.code == "INVALID_ARGUMENT"
    with pytest.raises(StatusError, match="Missing ModelSpec"):
        server.call("PredictionService", "Classify", b"")


def test_several_signatures_on_the_same_examples(server: Contracted) -> None:
    request = apis.MultiInferenceRequest(input=examples({"x": 80.0}))
    for name, method in (("regress_x_to_y", REGRESS), ("classify_x_to_y", CLASSIFY)):
        request.tasks.add(
            model_spec=model_spec(HALF, signature=name), method_name=method
        )
    response = server.call("PredictionService", "MultiInference", request)
    first, second = response.results
    assert first.regression_result.regressions[0].value == 42.0
    assert second.classification_result.classifications[0].classes[0].score == 42.0
    assert second.model_spec.signature_name == "classify_x_to_y"


@pytest.mark.parametrize(
    ("tasks", "code"),
    [
        ([], "INVALID_ARGUMENT"),
        ([("", "regress_x_to_y", REGRESS)], "INVALID_ARGUMENT"),
        (
            [(HALF, "regress_x_to_y", REGRESS), ("m", "regress_x_to_y", REGRESS)],
            "INVALID_ARGUMENT",
        ),
        ([(HALF, "regress_x_to_y", REGRESS)] * 2, "INVALID_ARGUMENT"),
        ([(HALF, "regress_x_to_y", "tensorflow/serving/predict")], "UNIMPLEMENTED"),
    ],
)
def test_tasks_that_are_refused(
    server: Contracted, tasks: list[tuple[str, str, str]], code: str
) -> None:
    request = apis.MultiInferenceRequest(input=examples({"x": 80.0}))
    for model, signature, method in tasks:
        request.tasks.add(
            model_spec=model_spec(model, signature=signature), method_name=method
        )
    with pytest.raises(StatusError) as refused:
        server.call("PredictionService", "MultiInference", request)
    assert refused.value.code == code


def test_metadata_over_rest_is_the_originals(server: Contracted) -> None:
    path = f"/v1/models/{HALF}/versions/123/metadata"
    status, answer = server.rest("GET", path)
    expected = json.loads((MODELS.parent / "half_plus_two.metadata.json").read_text())
    expected["model_spec"]["name"] = HALF
    assert (status, answer) == (200, expected)


def test_metadata_over_grpc_must_be_asked_for_by_name(server: Contracted) -> None:
    request = apis.GetModelMetadataRequest(model_spec=model_spec(HALF))
    with pytest.raises(StatusError) as refused:
        server.call("PredictionService", "GetModelMetadata", request)
    assert refused.value.code == "INVALID_ARGUMENT"
    request.metadata_field.append("signature_def")
    response = server.call("PredictionService", "GetModelMetadata", request)
    signatures = apis.SignatureDefMap()
    response.metadata["signature_def"].Unpack(signatures)
    assert "regress_x_to_y" in signatures.signature_def
    assert response.model_spec.version.value == 124


def test_status_of_all_versions_of_one_and_of_none(server: Contracted) -> None:
    assert server.states(HALF) == {124: "AVAILABLE", 123: "AVAILABLE"}
    assert server.states(HALF, 123) == {123: "AVAILABLE"}
    for model, version in (("nobody", None), (HALF, 7)):
        with pytest.raises(StatusError) as refused:
            server.status(model, version)
        assert refused.value.code == "NOT_FOUND"


def test_status_over_rest(server: Contracted) -> None:
    status, answer = server.rest("GET", f"/v1/models/{HALF}/versions/123")
    assert (status, answer) == (
        200,
        {
            "model_version_status": [
                {
                    "version": "123",
                    "state": "AVAILABLE",
                    "status": {"error_code": "OK", "error_message": ""},
                }
            ]
        },
    )


def test_health_service_says_serving(server: Contracted) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    stub = health_pb2_grpc.HealthStub(server.channel)
    for service in ("", "tensorflow.serving.PredictionService"):
        response = stub.Check(
            health_pb2.HealthCheckRequest(service=service), timeout=30
        )
        assert response.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.improves("reflection")
def test_services_are_described(server: Contracted) -> None:
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    stub = reflection_pb2_grpc.ServerReflectionStub(server.channel)
    asked = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(
            file_containing_symbol="tensorflow.serving.PredictionService"
        ),
    ]
    services, file = list(stub.ServerReflectionInfo(iter(asked), timeout=30))
    names = {s.name for s in services.list_services_response.service}
    assert {f"tensorflow.serving.{n}Service" for n in ("Model", "Prediction")} <= names
    assert b"Predict" in b"".join(file.file_descriptor_response.file_descriptor_proto)


def test_unknown_methods_are_unimplemented(server: Contracted) -> None:
    import grpc

    call = server.channel.unary_unary("/tensorflow.serving.PredictionService/Guess")
    with pytest.raises(grpc.RpcError) as refused:
        call(b"", timeout=30)
    assert refused.value.code().name == "UNIMPLEMENTED"


def test_metrics_have_the_originals_names(server: Contracted) -> None:
    server.predict(HALF, {"x": [1.0]})
    server.rest_predict(HALF, {"inputs": [1.0]})
    status, _, body = server.http("GET", "/monitoring/prometheus/metrics")
    text = body.decode()
    assert status == 200
    assert "# TYPE :tensorflow:serving:request_count counter" in text
    assert (
        f':tensorflow:serving:request_count{{model_name="{HALF}",status="OK"}}' in text
    )
    assert ":tensorflow:serving:request_latency_bucket{" in text
    assert ":tensorflow:serving:runtime_latency_count{" in text
    assert 'le="18"' in text


@pytest.mark.improves("metrics")
def test_our_metrics_tell_versions_and_protocols_apart(server: Contracted) -> None:
    server.predict(HALF, {"x": [1.0]}, label="stable")
    _, _, body = server.http("GET", "/monitoring/prometheus/metrics")
    assert (
        'taxiway_requests_total{model="half_plus_two",version="123",label="stable",'
        'signature="serving_default",protocol="grpc",code="OK"}'
    ) in body.decode()
