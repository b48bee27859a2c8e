"""TensorFlow Serving's JSON."""

import contextlib
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving import apis
from serving.errors import Code, RequestError
from serving.server import rest_json
from serving.tensors import DTYPE_ENUMS, Array


def signature(**inputs: str) -> Any:
    built = apis.SignatureDef()
    for name, dtype in inputs.items():
        built.inputs[name].dtype = DTYPE_ENUMS[dtype]
    return built


def parse(body: str, **inputs: str) -> dict[str, Array]:
    request = rest_json.parse_body(body.encode())
    return rest_json.to_inputs(request, signature(**inputs))


def refused(body: str, text: str, **inputs: str) -> None:
    with pytest.raises(RequestError, match=text) as caught:
        parse(body, **(inputs or {"x": "DT_FLOAT"}))
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_rows_of_one_input_need_no_name() -> None:
    x = parse('{"instances": [[1, 2], [3, 4]]}', x="DT_FLOAT")["x"]
    assert x.dtype == np.float32
    assert x.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_rows_of_several_inputs_are_objects() -> None:
    body = '{"instances": [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]}'
    inputs = parse(body, a="DT_INT64", b="DT_STRING")
    assert inputs["a"].tolist() == [1, 2]
    assert inputs["b"].tolist() == [b"x", b"y"]


def test_columns_may_have_different_sizes_and_extra_keys_are_ignored() -> None:
    body = '{"inputs": {"a": [1, 2], "b": 3.5, "c": "?"}}'
    inputs = parse(body, a="DT_INT32", b="DT_DOUBLE")
    assert inputs["a"].tolist() == [1, 2]
    assert inputs["b"].shape == ()


def test_columns_of_one_input_need_no_name() -> None:
    assert parse('{"inputs": [1, 2]}', x="DT_FLOAT")["x"].tolist() == [1.0, 2.0]


def test_signature_name_defaults_to_serving_default() -> None:
    assert rest_json.parse_body(b'{"inputs": 1}').signature_name == "serving_default"
    named = rest_json.parse_body(b'{"inputs": 1, "signature_name": "s"}')
    assert named.signature_name == "s"


@pytest.mark.parametrize(
    ("dtype", "number"),
    [
        ("DT_INT64", 2**53 + 1),
        ("DT_INT64", -(2**63)),
        ("DT_UINT64", 2**64 - 1),
    ],
)
def test_64_bit_integers_are_exact_both_ways(dtype: str, number: int) -> None:
    x = parse(f'{{"instances": [{number}]}}', x=dtype)
    assert x["x"].tolist() == [number]
    assert json.loads(rest_json.predictions(x)) == {"predictions": [number]}


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_lists_of_int64_are_exact_both_ways(numbers: list[int]) -> None:
    x = parse(json.dumps({"inputs": numbers}), x="DT_INT64")
    assert x["x"].tolist() == numbers
    assert json.loads(rest_json.outputs_json(x)) == {"outputs": numbers}


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1))
def test_lists_of_uint64_are_exact_both_ways(numbers: list[int]) -> None:
    x = parse(json.dumps({"inputs": numbers}), x="DT_UINT64")
    assert x["x"].tolist() == numbers
    assert json.loads(rest_json.outputs_json(x)) == {"outputs": numbers}


def test_floats_take_whole_numbers_and_overflow_to_infinity() -> None:
    assert parse('{"inputs": [1, 2.5]}', x="DT_DOUBLE")["x"].tolist() == [1.0, 2.5]
    assert parse('{"inputs": 1e39}', x="DT_FLOAT")["x"].item() == math.inf
    assert parse('{"inputs": 1e6}', x="DT_HALF")["x"].item() == math.inf


def test_booleans_are_no_numbers_and_numbers_no_booleans() -> None:
    assert parse('{"inputs": [true, false]}', x="DT_BOOL")["x"].tolist() == [
        True,
        False,
    ]
    refused('{"inputs": [1]}', "1 is not of expected type: DT_BOOL", x="DT_BOOL")
    refused('{"inputs": [true]}', "is not of expected type: DT_INT32", x="DT_INT32")
    refused('{"inputs": [true]}', "is not of expected type: DT_FLOAT")


def test_nan_is_no_integer() -> None:
    refused('{"inputs": [NaN]}', "NaN is not of expected type: DT_INT64", x="DT_INT64")


def test_lists_without_elements_keep_their_shape() -> None:
    assert parse('{"inputs": []}', x="DT_FLOAT")["x"].shape == (0,)
    assert parse('{"inputs": [[], []]}', x="DT_STRING")["x"].shape == (2, 0)
    assert parse('{"instances": [[], []]}', x="DT_INT64")["x"].shape == (2, 0)


def test_only_a_one_key_object_with_text_is_base64() -> None:
    """Any other object is a row of named inputs."""
    body = '{"instances": [{"b64": 5}]}'
    assert parse(body, b64="DT_INT64")["b64"].tolist() == [5]
    body = '{"inputs": {"b64": "/w==", "n": 1}}'
    inputs = parse(body, b64="DT_STRING", n="DT_INT64")
    assert inputs["b64"].item() == b"/w=="


def test_base64_stands_alone_for_the_only_input() -> None:
    assert parse('{"inputs": {"b64": "/w=="}}', x="DT_STRING")["x"].item() == b"\xff"


def test_nan_and_infinity_are_bare_tokens_both_ways() -> None:
    x = parse('{"instances": [NaN, Infinity, -Infinity]}', x="DT_FLOAT")
    assert math.isnan(x["x"][0])
    assert "[NaN, Infinity, -Infinity]" in rest_json.predictions(x)


def test_base64_objects_are_bytes_and_text_is_utf8() -> None:
    x = parse('{"instances": [{"b64": "/w=="}, "é"]}', x="DT_STRING")["x"]
    assert x.tolist() == [b"\xff", "é".encode()]


def test_outputs_named_bytes_are_base64_and_others_text() -> None:
    outputs = {"a_bytes": np.array([b"\xff"], object)}
    assert json.loads(rest_json.predictions(outputs)) == {
        "predictions": [{"b64": "/w=="}]
    }
    scalar = {"a_bytes": np.array(b"\xff\x00", object)}
    assert json.loads(rest_json.outputs_json(scalar)) == {"outputs": {"b64": "/wA="}}
    text = {"a": np.array(["é".encode()], object)}
    assert json.loads(rest_json.outputs_json(text)) == {"outputs": ["é"]}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("", r"at offset: 0 \(line 1, column 1\)"),
        ('{"instances": [1,, 2]}', r"at offset: 17 \(line 1, column 18\)"),
        ('{"instances": [1]\n"a": 2}', r"at offset: 18 \(line 2, column 1\)"),
        ("[" * 100_000, "nested too deeply"),
        (f'{{"inputs": {"[" * 700 + "]" * 700}}}', "nested too deeply"),
        ("[1]", "must be a JSON object"),
        ("{}", "Missing 'inputs' or 'instances' key"),
        ('{"instances": [1], "inputs": [1]}', "both 'inputs' and 'instances'"),
        ('{"instances": []}', "non-empty list"),
        ('{"instances": 5}', "non-empty list"),
        ('{"inputs": [1], "signature_name": 5}', "must be a string"),
        ('{"instances": ["1"]}', 'JSON Value: "1" is not of expected type: DT_FLOAT'),
        ('{"instances": [true]}', "true is not of expected type: DT_FLOAT"),
        ('{"instances": [null]}', "null is not of expected type: DT_FLOAT"),
        ('{"instances": [[1], [1, 2]]}', r"instances\[1\] has shape \[2\]"),
        ('{"instances": [[[1], [1, 2]]]}', r"element 1 has shape \[2\]"),
        ('{"instances": [{"x": 1}, {"y": 1}]}', "Failed to process element: 1"),
        ('{"instances": [{"x": 1}, 2]}', r"instances\[1\]: expected an object"),
        ('{"inputs": {"y": 1}}', "Missing named inputs: x"),
        ('{"inputs": ' + "1" * 5000 + "}", "JSON Parse error: .*digits"),
        ('{"inputs": ' + "1" * 400 + "}", "out of range for DT_FLOAT"),
        (f'{{"inputs": {"[" * 64}1{"]" * 64}}}', "nested too deeply"),
        (f'{{"instances": {"[" * 65}1{"]" * 65}}}', "nested too deeply"),
        ('{"instances": [1, 2}', r"offset: 19 \(line 1, column 20\)"),
        ('{"inputs": {"b64": "YQ=="}}', "is not of expected type: DT_FLOAT"),
        ('{"inputs": [[1, 2], [3], [4, 5]]}', r"element 1 has shape \[1\]"),
        ('{"inputs": [1, [2]]}', r"element 1 has shape \[1\]"),
        ('{"instances": [[1, 2], [3, 4], 5]}', r"instances\[2\] has shape \[\]"),
        ('{"instances": [{"b64": "YQ=="}]}', "is not of expected type: DT_FLOAT"),
        ('{"instances": [{}]}', "Failed to process element: 0"),
    ],
)
def test_body_that_does_not_fit_is_refused(body: str, text: str) -> None:
    refused(body, text)


def test_body_that_is_not_text_is_refused() -> None:
    with pytest.raises(RequestError, match="not UTF-8 text"):
        rest_json.parse_body(b'{"inputs": "\xff"}')


def test_half_a_surrogate_pair_is_refused_and_can_be_quoted() -> None:
    """JSON may escape what UTF-8 cannot hold; the answer must be UTF-8 all the same."""
    body = r'{"instances": ["\ud800"]}'
    refused(body, r'"\\ud800" is not of expected type: DT_STRING', x="DT_STRING")
    text = rest_json.error_json("\ud800 ü")
    assert json.loads(text.encode()) == {"error": "\ud800 ü"}


def test_integers_take_no_fractions_and_no_numbers_out_of_range() -> None:
    refused('{"instances": [1.0]}', "1.0 is not of expected type", x="DT_INT32")
    refused('{"instances": [2147483648]}', "out of range for DT_INT32", x="DT_INT32")
    refused('{"instances": [-1]}', "out of range for DT_UINT8", x="DT_UINT8")


@pytest.mark.parametrize("word", ["@@", "_-==", "abc"])
def test_bad_base64_is_answered_with_the_alphabet(word: str) -> None:
    body = json.dumps({"instances": [{"b64": word}]})
    refused(body, r"alphabet is A-Z a-z 0-9 \+ /", x="DT_STRING")


def test_several_inputs_need_names() -> None:
    refused('{"instances": [1]}', "a", a="DT_FLOAT", b="DT_FLOAT")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3.0, "3.0"),
        (0.1, "0.1"),
        (1 / 3, "0.333333343"),
        (1e30, "1e+30"),
        (123456789.0, "123456792.0"),
        (-0.0, "-0.0"),
        (1e-7, "1e-07"),
        (100000.0, "100000.0"),
        (1000000.0, "1e+06"),
        (16777216.0, "16777216.0"),
        (3.4028234663852886e38, "3.40282347e+38"),
        (1.401298464324817e-45, "1.4013e-45"),
    ],
)
def test_float32_is_written_as_tensorflow_serving_does(value: float, text: str) -> None:
    assert rest_json.float_text(np.float32(value)) == text


def test_float64_is_written_with_17_digits_where_6_are_not_enough() -> None:
    assert rest_json.double_text(np.float64(1 / 3)) == "0.33333333333333331"
    assert rest_json.double_text(np.float64(0.5)) == "0.5"


@given(st.floats(width=16))
def test_float16_comes_back_from_its_text(value: float) -> None:
    outputs = {"y": np.array(value, np.float16)}
    back = np.float16(json.loads(rest_json.outputs_json(outputs))["outputs"])
    np.testing.assert_equal(back, np.float16(value))


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_float_is_written_as_a_float(value: float) -> None:
    """A client that reads 1.0 as 1 would take it for an integer."""
    text = rest_json.float_text(np.float32(value))
    assert isinstance(json.loads(text), float)
    assert len(text) <= len("-1.23456789e-38")


@given(st.floats(width=32))
def test_float32_comes_back_from_its_text(value: float) -> None:
    back = np.float32(json.loads(rest_json.float_text(np.float32(value))))
    np.testing.assert_equal(back, np.float32(value))


@given(st.floats())
def test_float64_comes_back_from_its_text(value: float) -> None:
    np.testing.assert_equal(json.loads(rest_json.double_text(np.float64(value))), value)


def test_one_output_is_bare_and_several_are_objects() -> None:
    one = {"y": np.array([[1], [2]], np.int32)}
    two = one | {"z": np.array([True, False])}
    assert json.loads(rest_json.predictions(one)) == {"predictions": [[1], [2]]}
    assert json.loads(rest_json.predictions(two)) == {
        "predictions": [{"y": [1], "z": True}, {"y": [2], "z": False}]
    }
    assert json.loads(rest_json.outputs_json(one)) == {"outputs": [[1], [2]]}
    assert json.loads(rest_json.outputs_json(two)) == {
        "outputs": {"y": [[1], [2]], "z": [True, False]}
    }


def test_rows_need_outputs_of_one_length() -> None:
    differing = {"y": np.zeros(2), "z": np.zeros(3)}
    with pytest.raises(RequestError, match="inconsistent batch sizes"):
        rest_json.predictions(differing)
    with pytest.raises(RequestError, match="no shape information"):
        rest_json.predictions({"y": np.array(1.0)})


def test_error_is_indented_by_four_spaces() -> None:
    assert rest_json.error_json('a "b"') == '{\n    "error": "a \\"b\\""\n}'


@given(st.binary())
def test_any_body_is_parsed_or_refused(body: bytes) -> None:
    with contextlib.suppress(RequestError):
        rest_json.to_inputs(rest_json.parse_body(body), signature(x="DT_FLOAT"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("xb64"), inner),
)


@given(
    JSON,
    st.sampled_from(["instances", "inputs"]),
    st.sampled_from(["DT_FLOAT", "DT_INT64", "DT_STRING", "DT_BOOL", "DT_COMPLEX64"]),
)
def test_any_value_is_converted_or_refused(value: Any, key: str, dtype: str) -> None:
    try:
        arrays = parse(json.dumps({key: value}), x=dtype)
    except RequestError:
        return
    assert set(arrays) == {"x"}


@pytest.mark.parametrize("shape", [(0,), (2, 0), (2, 3, 0), (0, 3), (1, 2, 3)])
def test_arrays_of_any_shape_are_nested_as_they_are(shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    for name in ("float32", "int64", "bool", "object"):
        values = (
            array.astype(name) if name != "object" else array.astype("S").astype(object)
        )
        written = json.loads(rest_json.outputs_json({"y": values}))["outputs"]
        assert np.shape(written) == np.shape(array.tolist())


def test_complex_outputs_are_refused_in_a_sentence() -> None:
    with pytest.raises(RequestError, match="output y: JSON cannot hold complex64"):
        rest_json.predictions({"y": np.ones(2, np.complex64)})
