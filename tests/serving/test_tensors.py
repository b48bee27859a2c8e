"""TensorProto to arrays and back."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from serving import apis
from serving.errors import RequestError
from serving.tensors import to_array, to_proto

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


def refused(text: str, **fields: Any) -> None:
    shape = fields.pop("shape", [])
    tensor = apis.TensorProto(**fields)
    for size in shape:
        tensor.tensor_shape.dim.add(size=size)
    with pytest.raises(RequestError, match=text):
        to_array(tensor)


def test_tensor_that_is_not_whole_is_refused() -> None:
    refused("holds 2 values, needs 1", dtype=1, float_val=[1, 2], shape=[1])
    refused("holds 0 values, needs 3", dtype=1, shape=[3])
    refused("holds 3 bytes, needs 4", dtype=1, tensor_content=b"abc", shape=[1])
    refused("must be in string_val", dtype=7, tensor_content=b"abc", shape=[1])
    refused("not fully defined", dtype=1, shape=[-1])
    refused("Unsupported tensor type", dtype=0)


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
