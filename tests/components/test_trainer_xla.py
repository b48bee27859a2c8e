"""Whether XLA compiles the step, and what it says when it cannot."""

import doctest
import logging
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from components.errors import ModelError
from components.trainer import xla
from components.trainer.xla import first_choice, settle, why_not

MESSAGE = (
    "Detected unsupported operations when trying to compile graph __inference_x_9 on "
    "XLA_CPU_JIT: Unique (No registered 'Unique' OpKernel for XLA_CPU_JIT devices "
    "compatible with node {{node net/Unique}}){{node net/Unique}}\n"
    "StringJoin (No registered 'StringJoin' OpKernel … {{node join/StringJoin_1}})\n"
    "The op is created at: {{node StatefulPartitionedCall}}"
)


def attempt(error: Exception | None = None) -> Callable[[], Any]:
    def run() -> None:
        if error is not None:
            raise error

    return run


def never() -> None:
    raise AssertionError("nothing is compiled where it is off")


@pytest.mark.parametrize(
    ("wanted", "device_type", "mode"),
    [
        ("auto", "GPU", "whole"),
        ("auto", "CPU", "off"),
        ("on", "GPU", "whole"),
        ("on", "CPU", "whole"),
        ("off", "GPU", "off"),
        ("off", "CPU", "off"),
    ],
)
def test_auto_compiles_on_gpus_only(wanted: str, device_type: str, mode: str) -> None:
    assert first_choice(wanted, device_type) == mode


@pytest.mark.parametrize("wanted", ["auto", "off"])
def test_nothing_is_tried_where_it_is_off(wanted: str) -> None:
    assert settle(wanted, "off", never) == "off"


@pytest.mark.parametrize("wanted", ["auto", "on"])
def test_what_compiles_is_compiled_whole(wanted: str) -> None:
    assert settle(wanted, "whole", attempt()) == "whole"


@pytest.mark.parametrize("refusal", xla.REFUSALS)
def test_auto_compiles_the_rest_and_says_what_is_left_outside(
    refusal: type[tf.errors.OpError], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert settle("auto", "whole", attempt(refusal(None, None, MESSAGE))) == (
            "clusters"
        )
    assert "xla: left outside: Unique, StringJoin" in caplog.text


def test_on_is_refused_with_the_operations_that_cannot() -> None:
    error = tf.errors.InvalidArgumentError(None, None, MESSAGE)
    with pytest.raises(ModelError) as refused:
        settle("on", "whole", attempt(error))
    assert str(refused.value) == (
        "trainer.xla: got on, but XLA cannot compile Unique, StringJoin "
        "(net/Unique, join/StringJoin_1); allowed for this model: auto (compiles the "
        "rest), off"
    )
    assert refused.value.__cause__ is error


@pytest.mark.parametrize("wanted", ["auto", "on"])
def test_running_out_of_memory_is_no_refusal_to_compile(wanted: str) -> None:
    error = tf.errors.ResourceExhaustedError(None, None, "OOM when allocating")
    with pytest.raises(tf.errors.ResourceExhaustedError):
        settle(wanted, "whole", attempt(error))


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (MESSAGE, "Unique, StringJoin (net/Unique, join/StringJoin_1)"),
        ("No registered 'Unique' OpKernel for XLA", "Unique"),
        (
            "\n  Shapes differ at {{node a/b}}\nmore",
            "a/b: Shapes differ at {{node a/b}}",
        ),
        ("\n  no dynamic shapes\nmore", "no dynamic shapes"),
        ("", "the step"),
        (" \n ", "the step"),
    ],
)
def test_the_reason_is_taken_from_the_compilers_message(
    message: str, reason: str
) -> None:
    assert why_not(message) == reason


def test_the_examples_in_the_documentation_hold() -> None:
    assert doctest.testmod(xla).failed == 0
