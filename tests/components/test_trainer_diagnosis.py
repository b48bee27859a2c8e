"""Where a value that is not finite came from."""

import keras
import numpy as np
import pytest

from components.trainer.columns import Column, Layout
from components.trainer.diagnosis import MAX_ROWS, explain
from components.trainer.examples import ExampleReader
from components.trainer.split import Split

LAYOUT = Layout(
    (
        Column("city", "int64", 0, (1,)),
        Column("x", "float32", 0, (1,)),
        Column("y", "float32", 1, (1,)),
        Column("z", "float32", 2, (2,)),
    )
)
READER = ExampleReader(LAYOUT, ("x", "z"), "y", None)
SPLIT = Split(
    ("/e/Split-train/a.gz", "/e/Split-train/b.gz"), (10, 90), 0.0, 1.0, "memory", {}
)
FINITE = (
    "every value of the batch is finite: lower trainer.learning_rate, or set "
    "trainer.clip_norm"
)
Batch = dict[str, np.ndarray]


def batch(first_row: int = 0) -> Batch:
    """Return two micro-batches of four finite examples."""
    return {
        "float32": np.ones((2, 4, 4), np.float32),
        "int64": np.zeros((2, 4, 1), np.int64),
        "mask": np.ones((2, 4), np.float32),
        "row": np.arange(first_row, first_row + 8).reshape(2, 4),
    }


def told(*batches: Batch, model: keras.Model | None = None) -> str:
    return explain(batches, READER, SPLIT, model)


@pytest.mark.parametrize(("place", "column"), [(0, "x"), (1, "y"), (2, "z"), (3, "z")])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_column_the_value_and_the_row_are_named(
    place: int, column: str, value: float
) -> None:
    wrong = batch(first_row=6)
    wrong["float32"][1, 2, place] = value
    assert told(wrong) == f"{column} is {value} in row 2 of Split-train/b.gz"


def test_rows_in_several_files_are_named_each_once() -> None:
    wrong = batch(first_row=6)
    wrong["float32"][:, 1, 0] = np.nan
    wrong["row"][1, 1] = wrong["row"][0, 1]
    wrong["float32"][1, 3, 0] = np.nan
    assert told(wrong) == (
        "x is nan in row 7 of Split-train/a.gz; row 3 of Split-train/b.gz"
    )


def test_many_rows_are_counted() -> None:
    wrong = batch()
    wrong["float32"][..., 0] = np.nan
    words = told(wrong)
    assert words.startswith("x is nan in row 0 of Split-train/a.gz; row 1 of ")
    assert words.count("row ") == MAX_ROWS
    assert words.endswith(f"; and {8 - MAX_ROWS} more")


def test_the_first_replica_with_a_wrong_value_is_told_of() -> None:
    wrong = batch(first_row=8)
    wrong["float32"][0, 0, 1] = np.inf
    assert told(batch(), wrong) == "y is inf in row 8 of Split-train/a.gz"


def test_a_row_that_only_fills_up_is_not_blamed() -> None:
    filled = batch()
    filled["float32"][1, 3, 0] = np.nan
    filled["mask"][1, 3] = 0
    assert told(filled) == FINITE


def test_a_finite_batch_is_blamed_on_the_steps_size() -> None:
    assert told(batch()) == FINITE


def model(*, explodes: str | None = None) -> keras.Model:
    """Build two layers; one may give infinity for values from 2 up."""
    inputs = {
        "x": keras.Input((1,), name="x"),
        "z": keras.Input((2,), name="z"),
    }
    joined = keras.layers.Concatenate(name="join")(list(inputs.values()))
    wide = keras.layers.Dense(2, name="wide")(joined)
    model = keras.Model(inputs, keras.layers.Dense(1, name="out")(wide))
    for name in ("wide", "out"):
        layer = model.get_layer(name)
        size = 3e38 if name == explodes else 0.5
        layer.set_weights([np.full(w.shape, size) for w in layer.get_weights()])
    return model


@pytest.mark.parametrize("layer", ["wide", "out"])
def test_the_first_layer_that_is_not_finite_is_named(layer: str) -> None:
    assert told(batch(), model=model(explodes=layer)) == (
        f"every column is finite, but layer {layer} gives inf: lower "
        "trainer.learning_rate, or set trainer.clip_norm"
    )


def test_each_micro_batch_is_asked_of_the_model() -> None:
    quiet = batch()
    probe = model()
    probe.get_layer("wide").set_weights([np.full((3, 2), 1e38), np.zeros(2)])
    probe.get_layer("out").set_weights([np.full((2, 1), 0.1), np.zeros(1)])
    assert told(quiet, model=probe) == FINITE
    quiet["float32"][1] = 2.0  # 1e38 · 6 overflows, in the second micro-batch alone
    assert "layer wide gives inf" in told(quiet, model=probe)


def test_a_model_that_is_finite_is_not_blamed() -> None:
    assert told(batch(), model=model()) == FINITE


def test_the_columns_are_asked_before_the_model() -> None:
    wrong = batch()
    wrong["float32"][0, 0, 0] = np.nan
    assert told(wrong, model=model(explodes="wide")).startswith("x is nan in row 0")
