"""A model of the pipeline's: many inputs, strings, missing values, two signatures."""

import json
from base64 import b64decode
from typing import Any

import numpy as np
import pytest
from contract_server import FLIGHTS, Contracted, StatusError, predict_request

from serving.tensors import Array

ANSWERS = json.loads((FLIGHTS / "answers.json").read_text())
INSTANCES, EXAMPLES = ANSWERS["instances"], ANSWERS["examples"]
BY_COLUMNS, BY_EXAMPLES = "serving_columns", "serving_default"
# Other batch sizes sum in another order.
ALMOST = {"rtol": 1e-5, "atol": 1e-6}


def expected(signature: str, *rows: int) -> Array:
    answers = np.array(ANSWERS[signature], np.float32)[:, None]
    return answers[list(rows)] if rows else answers


def columns() -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, first in INSTANCES[0].items():
        column = [instance[name] for instance in INSTANCES]
        kind: Any = {str: object, int: np.int64}.get(type(first[0]), np.float32)
        values[name] = np.array(column, kind)
    return values


def predictions(server: Contracted, document: dict[str, Any]) -> Array:
    status, body = server.rest_predict("flights", document)
    assert status == 200, body
    answered = body.get("predictions", body.get("outputs"))
    return np.array(answered, np.float32).reshape(-1, 1)


def test_missing_values_are_among_the_rows() -> None:
    cells = [cell for row in INSTANCES for (cell,) in row.values()]
    assert "" in cells
    assert any(cell != cell for cell in cells)  # noqa: PLR0124  NaN


def test_columns_over_grpc(server: Contracted) -> None:
    outputs = server.predict("flights", columns(), signature=BY_COLUMNS)
    np.testing.assert_allclose(outputs["probability"], expected(BY_COLUMNS), **ALMOST)


def test_examples_over_grpc(server: Contracted) -> None:
    examples = np.array([b64decode(text) for text in EXAMPLES], object)
    outputs = server.predict("flights", {"examples": examples})
    np.testing.assert_allclose(outputs["probability"], expected(BY_EXAMPLES), **ALMOST)


def test_rows_and_columns_over_rest_with_nan_tokens(server: Contracted) -> None:
    rows = predictions(server, {"signature_name": BY_COLUMNS, "instances": INSTANCES})
    np.testing.assert_allclose(rows, expected(BY_COLUMNS), **ALMOST)
    inputs = {name: [row[name] for row in INSTANCES] for name in INSTANCES[0]}
    by_name = predictions(server, {"signature_name": BY_COLUMNS, "inputs": inputs})
    np.testing.assert_array_equal(rows, by_name)


def test_examples_over_rest_as_base64(server: Contracted) -> None:
    instances = [{"b64": text} for text in EXAMPLES]
    answered = predictions(server, {"instances": instances})
    np.testing.assert_allclose(answered, expected(BY_EXAMPLES), **ALMOST)


@pytest.mark.parametrize("row", [0, 7, 39])
def test_a_row_alone_is_what_it_is_among_others(server: Contracted, row: int) -> None:
    alone = predictions(
        server, {"signature_name": BY_COLUMNS, "instances": [INSTANCES[row]]}
    )
    np.testing.assert_allclose(alone, expected(BY_COLUMNS, row), **ALMOST)


def test_column_that_is_left_out_is_named(server: Contracted) -> None:
    left_out = {k: v for k, v in columns().items() if k != "carrier"}
    request = predict_request("flights", left_out, signature=BY_COLUMNS)
    with pytest.raises(StatusError) as refused:
        server.call("PredictionService", "Predict", request)
    assert refused.value.code == "INVALID_ARGUMENT"
    assert "carrier" in refused.value.text


def test_example_that_is_none_fails_alone(server: Contracted) -> None:
    request = predict_request("flights", {"examples": np.array([b"\xff"], object)})
    with pytest.raises(StatusError) as refused:
        server.call("PredictionService", "Predict", request)
    assert refused.value.code == "INVALID_ARGUMENT"
    assert "parse" in refused.value.text.lower()
