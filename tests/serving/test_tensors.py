"""TensorProto to arrays and back."""

import contextlib
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from serving import apis
from serving.errors import RequestError
from serving.server.rpc import parse_predict
from serving.tensors import buffers, to_array, to_proto

NUMBERS = st.sampled_from(
    [
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    ]
)
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)


@given(hnp.arrays(NUMBERS.map(np.dtype), SHAPES), st.booleans())
def test_numbers_come_back_as_they_went(array: np.ndarray[Any, Any], raw: bool) -> None:
    back = to_array(to_proto(array, raw=raw))
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


@given(hnp.arrays(object, SHAPES, elements=st.binary()), st.booleans())
def test_bytes_come_back_as_they_went(array: np.ndarray[Any, Any], raw: bool) -> None:
    np.testing.assert_array_equal(to_array(to_proto(array, raw=raw)), array)


def test_text_travels_as_utf8() -> None:
    assert to_proto(np.array(["é"])).string_val == ["é".encode()]


def test_answers_are_in_typed_lists_and_requests_in_bytes() -> None:
    array = np.array([1.5], np.float32)
    assert list(to_proto(array).float_val) == [1.5]
    assert to_proto(array, raw=True).tensor_content == array.tobytes()


def test_last_value_of_a_short_list_fills_the_shape() -> None:
    tensor = apis.TensorProto(dtype=1, float_val=[1.0, 2.0])
    tensor.tensor_shape.dim.add(size=2)
    tensor.tensor_shape.dim.add(size=2)
    assert to_array(tensor).tolist() == [[1.0, 2.0], [2.0, 2.0]]


def read(**fields: Any) -> Any:
    shape = fields.pop("shape")
    tensor = apis.TensorProto(**fields)
    for size in shape:
        tensor.tensor_shape.dim.add(size=size)
    fast = buffers("TensorProto").FromString(tensor.SerializeToString())
    assert to_array(fast).tolist() == to_array(tensor).tolist()
    return to_array(tensor).tolist()


def test_tensor_without_values_is_full_of_zeros_and_too_many_are_left_out() -> None:
    assert read(dtype=1, shape=[3]) == [0.0, 0.0, 0.0]
    assert read(dtype=7, shape=[2]) == [b"", b""]
    assert read(dtype=9, shape=[]) == 0
    assert read(dtype=1, float_val=[1, 2], shape=[1]) == [1.0]
    assert read(dtype=7, string_val=[b"a", b"b"], shape=[1]) == [b"a"]


def test_strings_in_tensor_content_are_sizes_and_then_texts() -> None:
    long = b"x" * 200
    content = b"\x01\x00\xc8\x01" + b"a" + long
    assert read(dtype=7, tensor_content=content, shape=[3]) == [b"a", b"", long]


@pytest.mark.parametrize("shape", [[1], [2], [3], [4]])
def test_values_that_came_one_by_one_keep_their_order(shape: list[int]) -> None:
    """Field 5 of a TensorProto, float_val: 1 by itself, then 2 and 3 packed."""
    alone = b"\x2d" + struct.pack("<f", 1.0)
    packed = b"\x2a\x08" + struct.pack("<ff", 2.0, 3.0)
    head = apis.TensorProto(dtype=1)
    for size in shape:
        head.tensor_shape.dim.add(size=size)
    tensor = head.SerializeToString() + alone + packed
    # A map's entry: field 1 is the key, field 2 the value.
    entry = b"\x0a\x01x\x12" + bytes([len(tensor)]) + tensor
    request = parse_predict(b"\x12" + bytes([len(entry)]) + entry)
    expected = [1.0, 2.0, 3.0, 3.0][: shape[0]]
    assert to_array(request.inputs["x"]).tolist() == expected


def refused(text: str, **fields: Any) -> None:
    shape = fields.pop("shape", [])
    tensor = apis.TensorProto(**fields)
    for size in shape:
        tensor.tensor_shape.dim.add(size=size)
    with pytest.raises(RequestError, match=text):
        to_array(tensor)


def test_tensor_that_is_not_whole_is_refused() -> None:
    refused("holds 3 bytes, needs 4", dtype=1, tensor_content=b"abc", shape=[1])
    refused("holds 4 bytes, needs 3", dtype=7, tensor_content=b"\2abc", shape=[1])
    refused("ends in a size", dtype=7, tensor_content=b"\1\xff", shape=[2])
    refused("not fully defined", dtype=1, shape=[-1])
    refused("Unsupported tensor type", dtype=0)


def test_values_that_no_array_can_hold_are_refused() -> None:
    refused("maximum supported dimension", dtype=1, float_val=[1], shape=[1] * 70)
    refused("DT_COMPLEX64 tensor", dtype=8, scomplex_val=[1.0], shape=[1])
    refused("DT_INT8 tensor of shape", dtype=6, int_val=[300], shape=[1])
    refused("DT_UINT8 tensor of shape", dtype=4, int_val=[-1], shape=[1])
    refused("DT_HALF tensor of shape", dtype=19, half_val=[70000], shape=[1])
    refused("cannot be read", dtype=1, shape=[0, 1 << 62, 1 << 62])


def test_values_left_out_of_a_tensor_without_elements_are_none() -> None:
    tensor = apis.TensorProto(dtype=9)
    for size in (2, 0, 3):
        tensor.tensor_shape.dim.add(size=size)
    assert to_array(tensor).shape == (2, 0, 3)


def test_scalar_has_no_dimensions() -> None:
    scalar = to_proto(np.array(b"a\x00", object))
    assert not scalar.tensor_shape.dim
    assert to_array(scalar).item() == b"a\x00"


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "-0.0"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("raw", [False, True])
def test_special_floats_keep_their_bits(value: str, dtype: str, raw: bool) -> None:
    array = np.array([float(value)], dtype)
    assert to_array(to_proto(array, raw=raw)).tobytes() == array.tobytes()


def test_array_that_is_no_block_of_memory_keeps_its_order() -> None:
    array = np.arange(6).reshape(2, 3).T
    for raw in (False, True):
        np.testing.assert_array_equal(to_array(to_proto(array, raw=raw)), array)


def test_array_without_a_tensor_type_is_refused() -> None:
    with pytest.raises(RequestError, match="Unsupported array type: datetime64"):
        to_proto(np.array(["2024-01-01"], "datetime64[D]"))


@given(hnp.arrays(NUMBERS.map(np.dtype), st.integers(1, 4)), st.integers(0, 5))
def test_short_list_is_filled_with_its_last_value(
    array: np.ndarray[Any, Any], more: int
) -> None:
    tensor = to_proto(array)
    tensor.tensor_shape.dim[0].size += more
    filled = np.concatenate([array, np.repeat(array[-1:], more)])
    np.testing.assert_array_equal(to_array(tensor), filled)


@given(
    st.builds(
        apis.TensorProto,
        dtype=st.integers(0, 30),
        tensor_content=st.binary(max_size=16),
        float_val=st.lists(st.floats(width=32), max_size=3),
        int_val=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3),
        half_val=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3),
        scomplex_val=st.lists(st.floats(width=32), max_size=3),
        string_val=st.lists(st.binary(), max_size=3),
        bool_val=st.lists(st.booleans(), max_size=3),
    ),
    st.lists(st.integers(-1, 3) | st.integers(-(2**63), 2**63 - 1), max_size=4),
)
def test_any_tensor_is_read_or_refused(tensor: Any, sizes: list[int]) -> None:
    for size in sizes:
        tensor.tensor_shape.dim.add(size=size)
    with contextlib.suppress(RequestError):
        assert to_array(tensor).shape == tuple(sizes)


def test_shape_that_would_fill_the_memory_is_refused() -> None:
    refused("allowed: 2147483648", dtype=1, float_val=[1.0], shape=[1 << 40])


@pytest.mark.integration
def test_tensorflow_reads_what_we_write_and_we_read_what_it_writes() -> None:
    import tensorflow as tf
    from tensorflow.core.framework import tensor_pb2

    arrays = [
        np.arange(6, dtype=dtype).reshape(2, 3)
        for dtype in (
            *("float16", "float32", "float64", "int8", "int16", "int32", "int64"),
            *("uint8", "uint16", "uint32", "uint64", "complex64", "complex128"),
        )
    ]
    arrays += [np.array([[True, False]]), np.array([b"a", b"\xff"], object)]
    for array in arrays:
        for raw in (False, True):
            wire = to_proto(array, raw=raw).SerializeToString()
            theirs = tensor_pb2.TensorProto.FromString(wire)
            np.testing.assert_array_equal(tf.make_ndarray(theirs), array)
        wire = tf.make_tensor_proto(array).SerializeToString()
        back = to_array(apis.TensorProto.FromString(wire))
        assert back.dtype == array.dtype
        np.testing.assert_array_equal(back, array)
