"""What each step says about itself, and why a model was not blessed."""

from typing import Any

import pytest

from components.evaluator.verdict import BASELINE
from pipeline.runners.record import RunRecord, StepRecord
from pipeline.runners.words import metrics_words, step_words, unblessed_words
from pipeline.steps import STEPS


def words(step: str, summary: dict[str, Any]) -> str:
    return step_words(StepRecord(step, "done", summary=summary))


def counts(**changes: int) -> dict[str, Any]:
    return {
        "splits": {"train": 230000, "eval": 28000},
        "num_rows": 336776,
        "num_held_out": 0,
        "num_without_label": 0,
        **changes,
    }


def verdict(**changes: object) -> dict[str, Any]:
    return {
        "blessed": True,
        "num_examples": 28000,
        "baseline_metrics": {},
        "metrics": {"auc": 0.74249, "example_count": 28000.0},
        "reasons": [],
        **changes,
    }


def run(summary: dict[str, Any]) -> RunRecord:
    step = StepRecord("Evaluator", "done", summary=summary)
    return RunRecord("1", "delays", "2026-01-31T12:00:00+00:00", [step])


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.id)
def test_a_step_without_a_summary_says_nothing(step: Any) -> None:
    assert step_words(StepRecord(step.id)) == ""


def test_a_step_of_another_name_says_nothing() -> None:
    assert words("StatisticsGen", {"num_rows": 3}) == ""


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "336,776 rows: train 230,000, eval 28,000"),
        (
            {"num_held_out": 70446, "num_without_label": 9430},
            (
                "336,776 rows: train 230,000, eval 28,000, held out 70,446, "
                "without label 9,430"
            ),
        ),
        (
            {"num_without_label": 1},
            "336,776 rows: train 230,000, eval 28,000, without label 1",
        ),
    ],
)
def test_example_gen_says_where_each_row_went(
    changes: dict[str, int], said: str
) -> None:
    assert words("ExampleGen", counts(**changes)) == said


def test_example_validator_says_that_nothing_is_odd() -> None:
    assert words("ExampleValidator", {"warnings": []}) == "no anomalies"


def test_example_validator_gives_each_warning_a_line() -> None:
    said = words("ExampleValidator", {"warnings": ["a: new value", "b: gone"]})
    assert said == "warning: a: new value\nwarning: b: gone"


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        ([0.5], "1 epoch: loss 0.5, val_loss 0.6"),
        ([0.7, 0.43219], "2 epochs: loss 0.4322, val_loss 0.6"),
    ],
)
def test_trainer_says_its_last_epoch(losses: list[float], said: str) -> None:
    history = {"loss": losses, "val_loss": [0.6] * len(losses)}
    made = training(history=history, exported_epoch=len(losses))
    first, _ = words("Trainer", made).split("\n")
    assert first == said


def test_trainer_says_the_epoch_that_is_exported_and_what_is_not_finite() -> None:
    history = {"loss": [0.7, 0.6, 0.5], "val_loss": [0.6, None, 0.7]}
    said = words("Trainer", training(history=history, exported_epoch=1))
    assert said.startswith("3 epochs, exported epoch 1: loss 0.7, val_loss 0.6\n")
    said = words("Trainer", training(history=history, exported_epoch=2))
    assert said.startswith("3 epochs, exported epoch 2: loss 0.6, val_loss not finite")


@pytest.mark.parametrize(
    ("xla", "said"),
    [("off", "XLA off"), ("clusters", "XLA where it can compile"), ("whole", "XLA on")],
)
def test_trainer_says_what_xla_compiled(xla: str, said: str) -> None:
    assert f"mixed_bfloat16, {said}: " in words("Trainer", training(xla=xla))


def training(**changes: Any) -> dict[str, Any]:
    return {
        "history": {"loss": [0.5]},
        "examples_per_second": 232873.2,
        "input_bound": 0.031,
        "strategy": "mirrored on GPU:0, GPU:1",
        "precision": "mixed_bfloat16",
        "xla": "whole",
        "exported_epoch": 1,
        "out_of_memory": [],
        "skipped_steps": [],
        "effective_batch_size": 4096,
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {},
            "mirrored on GPU:0, GPU:1, mixed_bfloat16, XLA on: 232,873 examples/s, input-bound 3%",
        ),
        (
            {"input_bound": None},
            "mirrored on GPU:0, GPU:1, mixed_bfloat16, XLA on: 232,873 examples/s",
        ),
        (
            {
                "out_of_memory": [
                    {"micro_batch_size": 512, "divisor": 2, "reason": "OOM"}
                ]
            },
            (
                "out of memory with 512 examples at a time: went on with 256, "
                "the effective batch is 4096 as before"
            ),
        ),
        (
            {"skipped_steps": [3, 9]},
            "skipped 2 batches that were not finite; the log names them",
        ),
    ],
    ids=["input-bound", "one epoch", "out of memory", "skipped"],
)
def test_trainer_says_how_it_trained(changes: dict[str, Any], said: str) -> None:
    assert words("Trainer", training(**changes)).split("\n")[-1] == said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "blessed on 28,000 examples: auc 0.7425"),
        (
            {"baseline_metrics": {"auc": 0.7}},
            (
                "blessed on 28,000 examples, compared with the blessed baseline: "
                "auc 0.7425"
            ),
        ),
        ({"blessed": False}, "NOT blessed on 28,000 examples: auc 0.7425"),
    ],
)
def test_evaluator_says_its_verdict(changes: dict[str, object], said: str) -> None:
    assert words("Evaluator", verdict(**changes)) == said


@pytest.mark.parametrize(
    ("version", "said"), [(3, "version 3"), (None, "nothing pushed")]
)
def test_pusher_says_the_version(version: int | None, said: str) -> None:
    assert words("Pusher", {"version": version}) == said


def test_metrics_have_four_digits_and_no_count_of_examples() -> None:
    metrics = {"auc": 0.65, "example_count": 28000.0, "mean_squared_error": 12345.678}
    assert metrics_words(metrics) == "auc 0.65, mean_squared_error 1.235e+04"
    assert metrics_words({}) == ""


def test_each_reason_against_a_model_is_told() -> None:
    reasons = ["auc 0.6 is below min 0.65", "auc fell by 0.1"]
    assert unblessed_words(run(verdict(blessed=False, reasons=reasons))) == reasons


@pytest.mark.parametrize(
    ("version", "named"), [(None, "the blessed baseline"), (3, "version 3")]
)
def test_a_reason_names_the_baseline_by_its_version(
    version: int | None, named: str
) -> None:
    reasons = [f"auc 0.6 below 0.7 of {BASELINE} by more than max_drop"]
    summary = verdict(blessed=False, reasons=reasons, baseline_version=version)
    assert unblessed_words(run(summary)) == [
        f"auc 0.6 below 0.7 of {named} by more than max_drop"
    ]


@pytest.mark.parametrize("summary", [{}, verdict(blessed=False)])
def test_a_verdict_without_a_reason_is_admitted(summary: dict[str, Any]) -> None:
    assert unblessed_words(run(summary)) == ["the Evaluator gave no reason"]
