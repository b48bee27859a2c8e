"""Predict over both APIs: known answers, ModelSpecs, filters, types, refusals."""

import gzip
import json
import math
from typing import Any

import numpy as np
import pytest
from contract_server import Contracted, StatusError, predict_request

HALF = "half_plus_two"


def test_half_plus_two_over_rest_in_both_formats(server: Contracted) -> None:
    rows = server.rest_predict(HALF, {"instances": [2.0, 3.0, 4.0]})
    assert rows == (200, {"predictions": [3.0, 3.5, 4.0]})
    columns = server.rest_predict(HALF, {"inputs": [2.0, 3.0, 4.0]})
    assert columns == (200, {"outputs": [3.0, 3.5, 4.0]})


def test_half_plus_two_over_grpc(server: Contracted) -> None:
    assert server.predict(HALF, {"x": [2.0, 3.0]})["y"].tolist() == [3.0, 3.5]


def test_tf1_model_is_served(server: Contracted) -> None:
    assert server.predict("half_plus_three", {"x": [2.0]})["y"].tolist() == [4.0]


def test_matrix_keeps_its_shape(server: Contracted) -> None:
    x = [[1.0, 2.0], [3.0, 4.0]]
    status, body = server.rest_predict("matrix", {"instances": x})
    assert (status, body) == (200, {"predictions": [[2.5, 3.0], [3.5, 4.0]]})


def test_outputs_are_in_value_fields_and_spec_is_filled(server: Contracted) -> None:
    response = server.call(
        "PredictionService", "Predict", predict_request(HALF, {"x": [2.0]})
    )
    assert response.outputs["y"].float_val[:] == [3.0]
    assert not response.outputs["y"].tensor_content
    spec = response.model_spec
    assert (spec.name, spec.version.value) == (HALF, 124)
    assert spec.signature_name == "serving_default"


@pytest.mark.parametrize("spec", [{"version": 123}, {"label": "stable"}])
def test_version_and_label_choose(server: Contracted, spec: dict[str, Any]) -> None:
    request = predict_request(HALF, {"x": [2.0]}, **spec)
    response = server.call("PredictionService", "Predict", request)
    assert response.model_spec.version.value == 123


@pytest.mark.parametrize("place", ["versions/123", "labels/stable", "Versions/123"])
def test_version_and_label_choose_over_rest(server: Contracted, place: str) -> None:
    path = f"/v1/models/{HALF}/{place}:predict"
    assert server.rest("POST", path, {"inputs": [2.0]}) == (200, {"outputs": [3.0]})


def test_values_that_are_not_packed_or_are_repeated_are_read(
    server: Contracted,
) -> None:
    """tensor.proto: the last value fills the shape; old writers do not pack."""
    request = predict_request(HALF, {})
    tensor = request.inputs["x"]
    tensor.dtype = 1
    tensor.tensor_shape.dim.add(size=3)
    tensor.float_val.append(2.0)
    response = server.call("PredictionService", "Predict", request)
    assert response.outputs["y"].float_val[:] == [3.0, 3.0, 3.0]
    one = bytes.fromhex("2d") + np.float32(2).tobytes()  # field 5, wire type 5
    two = bytes.fromhex("2d") + np.float32(4).tobytes()
    shape = bytes.fromhex("120412020802")
    packed = b"\x08\x01" + shape + one + two
    entry = b"\x0a\x01x\x12" + bytes([len(packed)]) + packed
    spec = (
        b"\x0a" + bytes([len(HALF) + 2]) + b"\x0a" + bytes([len(HALF)]) + HALF.encode()
    )
    raw = spec + b"\x12" + bytes([len(entry)]) + entry
    response = server.call("PredictionService", "Predict", raw)
    assert response.outputs["y"].float_val[:] == [3.0, 4.0]


@pytest.mark.parametrize(
    ("spec", "code", "text"),
    [
        (
            {"model": "nobody"},
            "NOT_FOUND",
            "Servable not found for request: Latest(nobody)",
        ),
        (
            {"version": 7},
            "NOT_FOUND",
            "Servable not found for request: Specific(half_plus_two, 7)",
        ),
        (
            {"label": "beta"},
            "INVALID_ARGUMENT",
            "Unrecognized servable version label: beta",
        ),
        (
            {"signature": "nothing"},
            "FAILED_PRECONDITION",
            'Serving signature key "nothing" not found.',
        ),
    ],
)
def test_specs_that_name_nothing(
    server: Contracted, spec: dict[str, Any], code: str, text: str
) -> None:
    chosen = {"model": HALF, **spec}
    with pytest.raises(StatusError) as refused:
        server.predict(inputs={"x": [1.0]}, **chosen)
    assert refused.value.code == code
    assert text in refused.value.text


def test_request_without_a_model_spec_is_refused(server: Contracted) -> None:
    with pytest.raises(StatusError) as refused:
        server.call("PredictionService", "Predict", b"")
    assert refused.value.code == "INVALID_ARGUMENT"
    assert "Missing ModelSpec" in refused.value.text


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ({}, "input size does not match signature"),
        ({"x": [1.0], "z": [1.0]}, "Sent extra: {z}"),
        ({"z": [1.0]}, "Missing but required: {x}"),
    ],
)
def test_inputs_that_are_not_the_signatures(
    server: Contracted, inputs: dict[str, Any], text: str
) -> None:
    with pytest.raises(StatusError, match=text) as refused:
        server.predict(HALF, inputs)
    assert refused.value.code == "INVALID_ARGUMENT"


def test_output_filter_chooses_and_unknown_or_double_names_are_refused(
    server: Contracted,
) -> None:
    assert list(server.predict(HALF, {"x": [1.0]}, filters=["y"])) == ["y"]
    for filters, text in (
        (["q"], "not found in signature: q"),
        (["y", "y"], "duplicate"),
    ):
        with pytest.raises(StatusError, match=text) as refused:
            server.predict(HALF, {"x": [1.0]}, filters=filters)
        assert refused.value.code == "INVALID_ARGUMENT"


def test_long_messages_are_cut(server: Contracted) -> None:
    with pytest.raises(StatusError) as refused:
        server.predict(HALF, {"x": [1.0]}, filters=["q" * 5000])
    assert refused.value.text.endswith("...TRUNCATED")
    assert len(refused.value.text) == 1024 + len("...TRUNCATED")


def test_every_type_goes_both_ways_over_grpc(server: Contracted) -> None:
    strings = np.array([b"a\x00b", "é".encode() * 40], object)
    inputs = {
        "f": np.array([1.5, math.inf], np.float32),
        "d": np.array([1 / 3, -0.0], np.float64),
        "i": np.array([-1, 2**31 - 1], np.int32),
        "l": np.array([2**53 + 1, -(2**63)], np.int64),
        "u": np.array([2**64 - 1, 0], np.uint64),
        "b": np.array([True, False]),
        "s": strings,
    }
    outputs = server.predict("echo", inputs)
    for name, array in inputs.items():
        assert outputs[f"{name}_out"].tolist() == array.tolist()
        assert outputs[f"{name}_out"].dtype == array.dtype


def one(server: Contracted, signature: str, text: str) -> tuple[int, str]:
    """Send a value as text, so that its spelling is the test's."""
    body = f'{{"signature_name": "{signature}", "inputs": {text}}}'
    status, _, answer = server.http("POST", "/v1/models/echo:predict", body)
    return status, answer.decode()


@pytest.mark.parametrize(
    ("signature", "text", "expected"),
    [
        ("l", "9007199254740993", "9007199254740993"),
        ("u", "18446744073709551615", "18446744073709551615"),
        ("l", "-9223372036854775808", "-9223372036854775808"),
        ("f", "[NaN, Infinity, -Infinity]", "[NaN, Infinity, -Infinity]"),
        ("f", "1", "1.0"),
        ("f", "0.1", "0.1"),
        ("f", "1e30", "1e+30"),
        ("f", "0.123456789", "0.123456791"),
        ("d", "0.1234567890123", "0.1234567890123"),
        ("b", "[true, false]", "[true, false]"),
        ("s", '"caf\u00e9"', '"caf\u00e9"'),
        ("s", '{"b64": "YQ=="}', '"a"'),
        ("as_bytes", '["a"]', '"b64": "YQ=="'),
        ("i", "[]", "[]"),
    ],
)
def test_values_over_rest(
    server: Contracted, signature: str, text: str, expected: str
) -> None:
    status, answer = one(server, signature, text)
    assert status == 200, answer
    if signature == "d":
        assert json.loads(answer)["outputs"] == float(expected)
    else:
        assert expected in answer


@pytest.mark.parametrize(
    ("signature", "text"),
    [
        ("i", "1.0"),
        ("i", "2147483648"),
        ("l", "9223372036854775808"),
        ("u", "-1"),
        ("f", "true"),
        ("f", '"1"'),
        ("f", "null"),
        ("b", "1"),
        ("s", "1"),
        ("s", '{"b64": "@@"}'),
        ("s", '{"b64": "-_-_"}'),
        ("f", "[1, [2]]"),
    ],
)
def test_values_of_another_type_are_refused_over_rest(
    server: Contracted, signature: str, text: str
) -> None:
    status, answer = one(server, signature, text)
    assert status == 400
    assert json.loads(answer)["error"]


@pytest.mark.improves("error text")
def test_base64_of_the_other_alphabet_is_named(server: Contracted) -> None:
    assert "the alphabet is" in one(server, "s", '{"b64": "-_-_"}')[1]


@pytest.mark.improves("error text")
def test_instances_of_unequal_length_are_named_by_index(server: Contracted) -> None:
    status, body = server.rest_predict("matrix", {"instances": [[1.0, 2.0], [3.0]]})
    assert status == 400
    assert "instances[1]" in body["error"]


def test_instances_of_unequal_length_are_refused(server: Contracted) -> None:
    status, _ = server.rest_predict("matrix", {"instances": [[1.0, 2.0], [3.0]]})
    assert status == 400


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ('{"instances": [1.0', "JSON"),
        ("", "JSON"),
        ("[1]", "object"),
        ("{}", "Missing 'inputs' or 'instances' key"),
        ('{"instances": [1.0], "inputs": [1.0]}', "Not allowed"),
        ('{"instances": []}', "non-empty"),
        ('{"instances": 1.0}', "instances"),
        (
            '{"signature_name": "X", "instances": [1.0]}',
            'Serving signature name: "X" not found in signature def',
        ),
        ('{"signature_name": 1, "instances": [1.0]}', "signature_name"),
    ],
)
def test_bodies_that_are_refused(server: Contracted, body: str, text: str) -> None:
    status, answer = server.rest_predict(HALF, body)
    assert status == 400
    assert text in answer["error"]


@pytest.mark.improves("error text")
def test_malformed_json_says_where(server: Contracted) -> None:
    _, answer = server.rest_predict(HALF, '{"instances": [1.0}')
    assert "line 1, column 19" in answer["error"]


def test_row_format_takes_objects_and_refuses_other_keys(server: Contracted) -> None:
    rows = {"instances": [{"x": 1.0}, {"x": 2.0}]}
    assert server.rest_predict(HALF, rows) == (200, {"predictions": [2.5, 3.0]})
    other = {"instances": [{"x": 1.0}, {"z": 2.0}]}
    assert server.rest_predict(HALF, other)[0] == 400


def test_column_format_ignores_extra_keys(server: Contracted) -> None:
    body = {"inputs": {"x": [2.0], "more": [1.0]}}
    assert server.rest_predict(HALF, body) == (200, {"outputs": [3.0]})


def test_row_format_refuses_an_output_without_rows(server: Contracted) -> None:
    body = {"signature_name": "scalar", "instances": [1.0, 2.0]}
    assert server.rest_predict("echo", body)[0] == 400
    columns = {"signature_name": "scalar", "inputs": [1.0, 2.0]}
    assert server.rest_predict("echo", columns) == (200, {"outputs": 3.0})


def test_gzip_bodies_are_inflated(server: Contracted) -> None:
    body = gzip.compress(json.dumps({"instances": [2.0]}).encode())
    answer = server.rest(
        "POST",
        f"/v1/models/{HALF}:predict",
        body,
        {"Content-Encoding": "gzip"},
    )
    assert answer == (200, {"predictions": [3.0]})


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("GET", f"/v1/models/{HALF}:predict", 400, "Malformed request: GET"),
        ("POST", f"/v1/models/{HALF}", 400, "Malformed request: POST"),
        ("POST", f"/v1/models/{HALF}:guess", 400, "Malformed request"),
        ("DELETE", f"/v1/models/{HALF}", 400, "Malformed request: DELETE"),
        ("GET", "/v1/models", 400, "Missing model name in request."),
        (
            "GET",
            "/v1/models/nobody",
            404,
            "Could not find any versions of model nobody",
        ),
    ],
)
def test_paths_and_methods_that_are_refused(
    server: Contracted, method: str, path: str, status: int, text: str
) -> None:
    body = {"instances": [1.0]} if method == "POST" else None
    got, answer = server.rest(method, path, body)
    assert got == status
    assert text in answer["error"]


def test_cors_headers_are_sent_when_asked_for(server: Contracted) -> None:
    _, headers, _ = server.http("GET", f"/v1/models/{HALF}")
    assert headers["access-control-allow-origin"] == "*"


def test_five_megabytes_over_grpc_and_rest(server: Contracted) -> None:
    x = np.ones(1_300_000, np.float32)
    assert server.predict(HALF, {"x": x})["y"].shape == x.shape
    status, answer = server.rest_predict(HALF, {"inputs": [1] * 1_000_000})
    assert status == 200
    assert len(answer["outputs"]) == 1_000_000
