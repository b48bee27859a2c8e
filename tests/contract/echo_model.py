"""Saves a model that gives back what it gets, in every type: `echo_model.py FOLDER`."""

import sys
from typing import Any

import tensorflow as tf

KINDS = {
    "f": tf.float32,
    "d": tf.float64,
    "i": tf.int32,
    "l": tf.int64,
    "u": tf.uint64,
    "b": tf.bool,
    "s": tf.string,
}


def single(kind: tf.DType) -> Any:
    """Return a signature of one input of any shape."""
    return tf.function(
        lambda x: {"y": tf.identity(x)},
        input_signature=[tf.TensorSpec(None, kind, name="x")],
        autograph=False,
    ).get_concrete_function()


def rows(kind: tf.DType, answer: Any) -> Any:
    """Return a signature of one input of rows."""
    spec = tf.TensorSpec([None], kind, name="x")
    return tf.function(answer, input_signature=[spec], autograph=False)


def slow(x: Any) -> Any:
    """Give x back after some tens of milliseconds."""
    matrix = tf.ones([400, 400]) / 400.0
    for _ in range(40):
        matrix = tf.matmul(matrix, matrix) + tf.reduce_sum(x) * 0.0
    return {"y": x + matrix[0, 0] * 0.0}


def all_kinds(f: Any, d: Any, i: Any, l: Any, u: Any, b: Any, s: Any) -> Any:  # noqa: E741
    """Give everything back."""
    values = dict(zip(KINDS, (f, d, i, l, u, b, s), strict=True))
    return {f"{name}_out": tf.identity(value) for name, value in values.items()}


def main(folder: str) -> None:
    """Save it."""
    module = tf.Module()
    module.all_kinds = tf.function(
        all_kinds,
        input_signature=[tf.TensorSpec([None], k, name=n) for n, k in KINDS.items()],
        autograph=False,
    )
    signatures = {name: single(kind) for name, kind in KINDS.items()} | {
        "serving_default": module.all_kinds,
        "as_bytes": rows(tf.string, lambda x: {"y_bytes": tf.identity(x)}),
        "slow": rows(tf.float32, slow),
        "scalar": rows(tf.float32, lambda x: {"y": tf.reduce_sum(x)}),
    }
    tf.saved_model.save(module, folder, signatures=signatures)


if __name__ == "__main__":
    main(sys.argv[1])
