"""The verdict on a model: thresholds, slices, baseline."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.evaluator.config import EvaluatorSettings, Threshold
from components.evaluator.verdict import Verdict, judge


def verdict(
    thresholds: dict[str, dict[str, object]],
    candidate: dict[str, dict[str, float]],
    baseline: dict[str, dict[str, float]] | None = None,
) -> Verdict:
    settings = EvaluatorSettings.model_validate(
        {"thresholds": thresholds, "min_slice_examples": 100}
    )
    return judge(settings, candidate, baseline)


def split(auc: float, count: float = 1000) -> dict[str, float]:
    return {"auc": auc, "example_count": count}


def test_a_model_that_meets_its_threshold_is_blessed() -> None:
    assert verdict({"auc": {"min": 0.7}}, {"": split(0.74)}).blessed


def test_a_model_below_its_threshold_is_not_and_the_numbers_are_given() -> None:
    made = verdict({"auc": {"min": 0.74}}, {"": split(0.71)})
    assert not made.blessed
    assert made.reasons == ("auc 0.71 below 0.74, n=1,000",)


def test_a_slice_is_judged_only_when_asked() -> None:
    candidate = {"": split(0.75), "origin=JFK": split(0.6, 1204)}
    assert verdict({"auc": {"min": 0.7}}, candidate).blessed
    made = verdict({"auc": {"min": 0.7, "every_slice": True}}, candidate)
    assert made.reasons == ("auc 0.6 below 0.7, slice origin=JFK, n=1,204",)


def test_a_small_slice_is_left_out() -> None:
    candidate = {"": split(0.75), "origin=XXX": split(0.1, 99)}
    assert verdict({"auc": {"min": 0.7, "every_slice": True}}, candidate).blessed


def test_a_drop_against_the_baseline_is_not_blessed() -> None:
    made = verdict({"auc": {"max_drop": 0.01}}, {"": split(0.71)}, {"": split(0.74)})
    assert made.reasons == (
        "auc 0.71 below 0.74 of the baseline by more than 0.01, n=1,000",
    )


def test_a_drop_on_one_slice_is_found_with_every_slice() -> None:
    made = verdict(
        {"auc": {"max_drop": 0.01, "every_slice": True}},
        {"": split(0.74), "origin=JFK": split(0.70, 500)},
        {"": split(0.74), "origin=JFK": split(0.74, 500)},
    )
    assert len(made.reasons) == 1
    assert "slice origin=JFK" in made.reasons[0]


def test_without_a_baseline_a_change_threshold_holds() -> None:
    assert verdict({"auc": {"max_drop": 0.0}}, {"": split(0.1)}).blessed


def test_a_metric_that_is_not_a_number_is_not_blessed() -> None:
    made = verdict({"auc": {"min": 0.1}}, {"": split(math.nan)})
    assert made.reasons == ("auc is undefined, n=1,000",)
    assert "auc" not in made.metrics


def test_a_metric_undefined_on_a_slice_is_noted_not_failed() -> None:
    made = verdict(
        {"auc": {"min": 0.1, "every_slice": True}},
        {"": split(0.7), "origin=JFK": split(math.nan)},
    )
    assert made.blessed
    assert made.notes == ("auc is undefined, slice origin=JFK, n=1,000",)


def test_no_thresholds_bless_and_say_so() -> None:
    made = verdict({}, {"": split(0.5)})
    assert made.blessed
    assert made.notes == ("no thresholds are set",)


def test_an_empty_evaluation_is_never_blessed() -> None:
    assert not verdict({}, {}).blessed
    assert verdict({}, {}).reasons == ("the eval split has no examples",)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_a_better_model_never_fares_worse(low: float, high: float, bar: float) -> None:
    low, high = sorted((low, high))
    threshold: dict[str, dict[str, object]] = {"auc": {"min": bar}}
    worse = verdict(threshold, {"": split(low)}).blessed
    better = verdict(threshold, {"": split(high)}).blessed
    assert better or not worse


@pytest.mark.parametrize(
    "bounds", [{}, {"min": 2, "max": 1}, {"max_drop": 0.1, "max_rise": 0.1}]
)
def test_thresholds_that_make_no_sense_are_refused(bounds: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="set at least one|is above|not both"):
        Threshold.model_validate(bounds)
