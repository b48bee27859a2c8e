"""Many columns as one matrix for each dtype, and back."""

import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from components.errors import ModelError
from components.trainer.columns import Column, layout

DTYPES = {"float32": tf.float32, "int64": tf.int64}
SHAPES = st.lists(st.integers(1, 3), max_size=3).map(tuple)
SPECS = st.dictionaries(
    st.from_regex(r"[a-z]{1,4}", fullmatch=True),
    st.tuples(st.sampled_from(sorted(DTYPES)), SHAPES),
    min_size=1,
    max_size=6,
)


def fixed(dtype: object, *shape: int) -> tf.io.FixedLenFeature:
    return tf.io.FixedLenFeature(shape, dtype)


def test_columns_lie_side_by_side_in_the_order_of_their_names() -> None:
    made = layout(
        {
            "z": fixed(tf.float32),
            "b": fixed(tf.int64, 1),
            "a": fixed(tf.float32, 2, 3),
            "c": fixed(tf.int64, 2),
        }
    )
    assert made.columns == (
        Column("a", "float32", 0, (2, 3)),
        Column("b", "int64", 0, (1,)),
        Column("c", "int64", 1, (2,)),
        Column("z", "float32", 6, (1,)),
    )
    assert made.keys() == ("a", "b", "c", "z")
    assert made.widths == {"float32": 7, "int64": 3}
    assert made.row_bytes == 7 * 4 + 3 * 8


def test_a_group_without_columns_is_left_out() -> None:
    assert layout({"x": fixed(tf.int64)}).widths == {"int64": 1}


def test_text_is_left_out() -> None:
    spec = {"x": fixed(tf.float32), "name": fixed(tf.string)}
    spec["words"] = tf.io.VarLenFeature(tf.string)
    assert layout(spec).keys() == ("x",)


@pytest.mark.parametrize(
    ("dtype", "group"),
    [
        (tf.float64, "float32"),
        (tf.float16, "float32"),
        (tf.int32, "int64"),
        (tf.uint8, "int64"),
    ],
)
def test_other_numbers_become_those_of_the_two_groups(
    dtype: object, group: str
) -> None:
    assert layout({"x": fixed(dtype)}).columns[0].group == group


def test_a_sparse_column_is_refused_with_what_shows_the_way() -> None:
    spec = {"x": fixed(tf.float32), "ids": tf.io.VarLenFeature(tf.int64)}
    with pytest.raises(ModelError) as error:
        layout(spec)
    assert str(error.value) == (
        "transform.preprocessing_fn returns ids as a sparse tensor, allowed: a dense "
        "one; components.transform.preprocess shows how"
    )


@settings(max_examples=25)
@given(SPECS, st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_what_is_packed_comes_back(
    shapes: dict[str, tuple[str, tuple[int, ...]]], batch: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    made = layout({k: fixed(DTYPES[d], *shape) for k, (d, shape) in shapes.items()})
    values = {
        key: random.integers(-100, 100, (batch, *(shape or (1,)))).astype(dtype)
        for key, (dtype, shape) in shapes.items()
    }
    packed = made.pack(values)
    assert {g: tuple(m.shape) for g, m in packed.items()} == {
        group: (batch, width) for group, width in made.widths.items()
    }
    back = made.unpack(packed)
    assert back.keys() == values.keys()
    for key, value in values.items():
        assert back[key].dtype == value.dtype
        np.testing.assert_array_equal(back[key], value)


@given(SPECS)
def test_no_two_columns_overlap_and_nothing_is_left_free(
    shapes: dict[str, tuple[str, tuple[int, ...]]],
) -> None:
    made = layout({k: fixed(DTYPES[d], *shape) for k, (d, shape) in shapes.items()})
    for group, width in made.widths.items():
        taken = [
            place
            for column in made.columns
            if column.group == group
            for place in range(column.offset, column.offset + column.size)
        ]
        assert taken == list(range(width))
    assert sum(made.widths.values()) == sum(
        math.prod(shape) for _, shape in shapes.values()
    )
