"""Whether XLA compiles the training step, and what it cannot compile."""

import logging
import re
from collections.abc import Callable
from typing import Any, Literal

import tensorflow as tf

from components.errors import ModelError

log = logging.getLogger(__name__)
Mode = Literal["off", "whole", "clusters"]
"""`clusters`: XLA compiles what it can and leaves the rest to TensorFlow."""
REFUSALS = (
    tf.errors.InvalidArgumentError,
    tf.errors.UnimplementedError,
    tf.errors.InternalError,
)


def first_choice(wanted: str, device_type: str) -> Mode:
    """Return what to try first.

    `auto` compiles on GPUs, where fusing saves trips to memory; on CPUs compiling
    takes longer than most trainings gain (bench/trainer.py).
    """
    if wanted == "auto":
        return "whole" if device_type == "GPU" else "off"
    return "whole" if wanted == "on" else "off"


def settle(wanted: str, first: Mode, attempt: Callable[[], Any]) -> Mode:
    """Compile once and decide.

    Args:
        wanted: The setting `trainer.xla`.
        first: What `first_choice` said.
        attempt: Runs the compiled step once, without effect.

    Raises:
        ModelError: XLA is demanded and cannot compile; names the operation.
    """
    if first != "whole":
        return first
    try:
        attempt()
    except REFUSALS as error:
        reason = why_not(str(error))
        if wanted == "on":
            raise ModelError(
                f"trainer.xla: got on, but XLA cannot compile {reason}; allowed for "
                "this model: auto (compiles the rest), off"
            ) from error
        log.warning("xla: left outside: %s", reason)
        return "clusters"
    return "whole"


def why_not(message: str) -> str:
    """Name the operations that a compile error complains of.

    >>> why_not("… Unique (No registered 'Unique' OpKernel … {{node net/Unique}}")
    'Unique (net/Unique)'
    """
    operations = dict.fromkeys(re.findall(r"No registered '(\w+)' OpKernel", message))
    nodes = dict.fromkeys(
        node
        for node in re.findall(r"\{\{node ([^}]+)\}\}", message)
        if any(operation in node for operation in operations)
    )
    if operations:
        named = ", ".join(operations)
        return f"{named} ({', '.join(nodes)})" if nodes else named
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    node = re.search(r"\{\{node ([^}]+)\}\}", message)
    return f"{node[1]}: {lines[0]}" if node else (lines[0] if lines else "the step")


def cluster_automatically() -> None:
    """Let XLA compile the parts of functions that it can; before tracing them."""
    tf.config.optimizer.set_jit("autoclustering")
