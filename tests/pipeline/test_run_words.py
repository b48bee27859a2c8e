"""What a run says of its model, in words and numbers."""

from typing import Any

from pipeline import steps
from pipeline.runners.record import RunRecord, StepRecord
from pipeline.runners.words import step_words, unblessed_words

REASON = "auc 0.71 below 0.74 of the baseline by more than 0.01, n=1,204"


def record(**verdict: Any) -> RunRecord:
    made = RunRecord(
        "id", "flights", "2026-01-01", [StepRecord(s.id) for s in steps.STEPS]
    )
    made.step(steps.EVALUATOR.id).summary = {
        "blessed": False,
        "reasons": [REASON],
        "metrics": {"auc": 0.71, "example_count": 1204.0},
        "num_examples": 1204,
        "baseline_metrics": {"auc": 0.74},
        **verdict,
    }
    return made


def test_a_reason_names_the_version_that_was_better() -> None:
    [reason] = unblessed_words(record(baseline_version=3))
    assert reason == "auc 0.71 below 0.74 of version 3 by more than 0.01, n=1,204"


def test_a_baseline_that_is_not_published_is_called_blessed() -> None:
    [reason] = unblessed_words(record(baseline_version=None))
    assert "of the blessed baseline by" in reason


def test_the_evaluator_says_verdict_comparison_and_metrics() -> None:
    step = record(baseline_version=3).step(steps.EVALUATOR.id)
    assert step_words(step) == (
        "NOT blessed on 1,204 examples, compared with version 3: auc 0.71"
    )
