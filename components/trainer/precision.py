"""The numbers that training computes in, and the loss scale that float16 needs.

Weights, the model's outputs, losses and gradients are float32 whatever is chosen.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from components.errors import ModelError

INITIAL_SCALE = 2.0**15
MIN_SCALE = 2.0**-24
"""Gradients of a regression can be far above what float16 holds: they are shrunk."""
GROWTH_STEPS = 2_000
"""Finite steps in a row after which the scale doubles."""
POLICIES = {
    "float32": "float32",
    "tf32": "float32",
    "mixed_float16": "mixed_float16",
    "mixed_bfloat16": "mixed_bfloat16",
}


@dataclass(frozen=True)
class Precision:
    """What was decided for a run."""

    name: str
    """`float32`, `tf32`, `mixed_float16` or `mixed_bfloat16`."""

    @property
    def policy(self) -> str:
        """The name of Keras' dtype policy."""
        return POLICIES[self.name]

    @property
    def scales_loss(self) -> bool:
        """Whether gradients would underflow without a loss scale: float16 only."""
        return self.name == "mixed_float16"

    def apply(self) -> None:
        """Make it the policy of layers built from now on, and of matrix products."""
        keras.config.set_dtype_policy(self.policy)
        tf.config.experimental.enable_tensor_float_32_execution(self.name != "float32")


def decide(wanted: str, compute_capabilities: Sequence[tuple[int, int]]) -> Precision:
    """Pick the precision.

    `auto` takes what the slowest GPU computes fastest without a loss of range:
    bfloat16 from compute capability 8.0 (Ampere) up, float16 from 7.0 (Volta) up,
    else float32, as on CPUs (NVIDIA, "Train With Mixed Precision").

    Args:
        wanted: The setting `trainer.precision`.
        compute_capabilities: That of each GPU in use; empty on CPUs.

    Raises:
        ModelError: tf32 is asked for where no GPU has it.
    """
    lowest = min(compute_capabilities, default=(0, 0))
    if wanted == "tf32" and lowest < (8, 0):
        raise ModelError(
            "trainer.precision: got tf32, which needs GPUs of compute capability 8.0 "
            "or more; allowed here: auto, float32, mixed_float16, mixed_bfloat16"
        )
    if wanted != "auto":
        return Precision(wanted)
    if lowest >= (8, 0):
        return Precision("mixed_bfloat16")
    return Precision("mixed_float16" if lowest >= (7, 0) else "float32")


def capabilities() -> list[tuple[int, int]]:
    """Return the compute capability of each visible GPU."""
    return [
        tf.config.experimental.get_device_details(gpu).get("compute_capability", (0, 0))
        for gpu in tf.config.get_visible_devices("GPU")
    ]


def check_outputs(model: keras.Model, name: str) -> None:
    """Refuse a model whose outputs are not float32: losses would lose digits.

    Raises:
        ModelError: Names the layer.
    """
    for output in model.outputs:
        dtype = keras.backend.standardize_dtype(output.dtype)
        if dtype != "float32":
            layer = output._keras_history.operation  # noqa: SLF001  Keras names it so
            raise ModelError(
                f"trainer.model: {name} outputs {dtype} from layer "
                f'"{layer.name}", allowed: float32; give that layer dtype="float32"'
            )


def next_scale(scale: Any, good_steps: Any, finite: Any) -> tuple[Any, Any]:
    """Return the loss scale and the count of finite steps after a step.

    Halved (not below `MIN_SCALE`) when a gradient overflowed, doubled after `GROWTH_STEPS`
    finite steps (Micikevicius et al., "Mixed Precision Training", 2018).

    Args:
        scale: [] float32.
        good_steps: [] int64, finite steps since the scale last changed.
        finite: [] bool, whether this step's gradients were.
    """
    grows = tf.logical_and(finite, good_steps + 1 >= GROWTH_STEPS)
    grown = tf.where(grows, scale * 2, scale)
    after = tf.where(finite, grown, tf.maximum(scale / 2, MIN_SCALE))
    count = tf.where(tf.logical_and(finite, ~grows), good_steps + 1, 0)
    return after, count
