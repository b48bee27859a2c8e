"""Saves the benchmark's model: a small network, 20 → 64, 64, 64 → 1."""

import sys
from itertools import pairwise

import numpy as np
import tensorflow as tf

SIZES = (20, 64, 64, 64, 1)


class Network(tf.Module):
    """Layers of fixed random weights."""

    def __init__(self) -> None:
        super().__init__()
        random = np.random.default_rng(7)
        self.layers = [
            tf.Variable(random.normal(0, rows**-0.5, (rows, columns)), dtype=tf.float32)
            for rows, columns in pairwise(SIZES)
        ]

    @tf.function(input_signature=[tf.TensorSpec([None, SIZES[0]], tf.float32, "x")])
    def __call__(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return `y`, [batch, 1] float32."""
        for layer in self.layers[:-1]:
            x = tf.nn.relu(x @ layer)
        return {"y": x @ self.layers[-1]}


if __name__ == "__main__":
    network = Network()
    tf.saved_model.save(network, sys.argv[1], signatures=network.__call__)
