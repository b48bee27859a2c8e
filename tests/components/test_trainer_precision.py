"""The numbers that training computes in, and the loss scale of float16."""

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from components.errors import ModelError
from components.trainer.precision import (
    GROWTH_STEPS,
    INITIAL_SCALE,
    MIN_SCALE,
    POLICIES,
    Precision,
    decide,
    next_scale,
)


def scaled(scale: float, good_steps: int, *, finite: bool) -> tuple[float, int]:
    after, count = next_scale(
        tf.constant(scale), tf.constant(good_steps, tf.int64), tf.constant(finite)
    )
    assert (after.dtype, count.dtype) == (tf.float32, tf.int64)
    return float(after), int(count)


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ([], "float32"),
        ([(6, 1)], "float32"),
        ([(7, 0)], "mixed_float16"),
        ([(7, 5)], "mixed_float16"),
        ([(8, 0)], "mixed_bfloat16"),
        ([(9, 0)], "mixed_bfloat16"),
        ([(10, 0)], "mixed_bfloat16"),
        ([(9, 0), (7, 5)], "mixed_float16"),
        ([(9, 0), (6, 1)], "float32"),
        ([(0, 0)], "float32"),
    ],
)
def test_auto_takes_what_the_slowest_gpu_computes_fastest(
    capabilities: list[tuple[int, int]], expected: str
) -> None:
    assert decide("auto", capabilities) == Precision(expected)


@pytest.mark.parametrize("wanted", ["float32", "mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("capabilities", [[], [(6, 1)], [(9, 0)]])
def test_a_precision_that_is_asked_for_is_taken_everywhere(
    wanted: str, capabilities: list[tuple[int, int]]
) -> None:
    assert decide(wanted, capabilities).name == wanted


@pytest.mark.parametrize("capabilities", [[], [(7, 5)], [(9, 0), (7, 5)]])
def test_tf32_is_refused_where_a_gpu_does_not_have_it(
    capabilities: list[tuple[int, int]],
) -> None:
    with pytest.raises(ModelError) as error:
        decide("tf32", capabilities)
    assert str(error.value) == (
        "trainer.precision: got tf32, which needs GPUs of compute capability 8.0 "
        "or more; allowed here: auto, float32, mixed_float16, mixed_bfloat16"
    )


def test_tf32_is_float32_to_keras() -> None:
    assert decide("tf32", [(8, 6), (9, 0)]).policy == "float32"


def test_only_float16_scales_the_loss() -> None:
    assert [name for name in POLICIES if Precision(name).scales_loss] == [
        "mixed_float16"
    ]


def test_an_overflow_halves_the_scale_and_begins_to_count_anew() -> None:
    assert scaled(INITIAL_SCALE, 1_234, finite=False) == (INITIAL_SCALE / 2, 0)


def test_a_finite_step_is_counted_and_leaves_the_scale() -> None:
    assert scaled(1024.0, 7, finite=True) == (1024.0, 8)


def test_the_scale_doubles_with_the_last_of_so_many_finite_steps() -> None:
    assert scaled(1024.0, GROWTH_STEPS - 2, finite=True) == (1024.0, GROWTH_STEPS - 1)
    assert scaled(1024.0, GROWTH_STEPS - 1, finite=True) == (2048.0, 0)


def test_an_overflow_at_the_step_that_would_double_halves() -> None:
    assert scaled(1024.0, GROWTH_STEPS - 1, finite=False) == (512.0, 0)


@given(st.lists(st.booleans(), max_size=40))
def test_the_scale_is_a_power_of_two_and_never_below_its_minimum(
    finite: list[bool],
) -> None:
    scale, good_steps = 8.0, GROWTH_STEPS - 5
    for each in finite:
        scale, good_steps = scaled(scale, good_steps, finite=each)
        assert scale >= MIN_SCALE
        assert float(scale).hex().startswith("0x1.0000000000000p")
        assert 0 <= good_steps < GROWTH_STEPS
