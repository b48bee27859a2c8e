"""Whether a model is blessed, and why not: pure, on metrics already computed."""

import math
from collections.abc import Iterator, Mapping

from components.evaluator.config import EvaluatorSettings, Threshold
from serving.settings import Settings

VERDICT_FILE = "verdict.json"
EXAMPLE_COUNT = "example_count"
WHOLE_SPLIT = ""
BASELINE = "the baseline"
Metrics = Mapping[str, float]
BySlice = Mapping[str, Metrics]


class Verdict(Settings):
    """What the Evaluator found out."""

    blessed: bool
    """Whether every threshold holds."""
    reasons: tuple[str, ...]
    """Why the model is not blessed, a sentence each; empty when it is."""
    notes: tuple[str, ...]
    """What was not judged, and why."""
    metrics: dict[str, float]
    """Metrics over the whole eval split."""
    baseline_metrics: dict[str, float] | None
    """The same of the blessed baseline; None where there is none."""
    num_examples: int
    """Examples in the eval split."""


def judge(
    settings: EvaluatorSettings,
    candidate: BySlice,
    baseline: BySlice | None,
    known: tuple[str, ...] = (),
) -> Verdict:
    """Hold a candidate's metrics to the thresholds.

    Without a baseline `max_drop` and `max_rise` hold: there is nothing to fall
    behind. A metric that is undefined over the whole split is a failure; on a slice
    (AUC where only one class occurs) it is noted, for no model could pass.

    Args:
        settings: Thresholds and the smallest slice worth judging.
        candidate: Metrics by slice (`origin=JFK`); '' is the whole split.
        baseline: The same of the blessed baseline, if there is one.
        known: Notes that the verdict carries on.
    """
    reasons: list[str] = []
    notes = [*known]
    if not settings.thresholds:
        notes.append("no thresholds are set")
    overall = candidate.get(WHOLE_SPLIT, {})
    if not overall.get(EXAMPLE_COUNT):
        reasons.append("the eval split has no examples")
    for name, threshold in settings.thresholds.items():
        for where, metrics in _slices(candidate, threshold, settings):
            before = (baseline or {}).get(where, {}).get(name)
            found = list(_broken(name, threshold, metrics.get(name), before))
            if found and where and not _is_defined(metrics.get(name)):
                notes += [f"{text}{_place(where, metrics)}" for text in found]
            else:
                reasons += [f"{text}{_place(where, metrics)}" for text in found]
    return Verdict(
        blessed=not reasons,
        reasons=tuple(reasons),
        notes=tuple(notes),
        metrics=_finite(overall),
        baseline_metrics=None if baseline is None else _finite(baseline[WHOLE_SPLIT]),
        num_examples=int(overall.get(EXAMPLE_COUNT, 0)),
    )


def _slices(
    by_slice: BySlice, threshold: Threshold, settings: EvaluatorSettings
) -> Iterator[tuple[str, Metrics]]:
    yield WHOLE_SPLIT, by_slice.get(WHOLE_SPLIT, {})
    if not threshold.every_slice:
        return
    for where, metrics in sorted(by_slice.items()):
        large = metrics.get(EXAMPLE_COUNT, 0) >= settings.min_slice_examples
        if where != WHOLE_SPLIT and large:
            yield where, metrics


def _broken(
    name: str, threshold: Threshold, value: float | None, before: float | None
) -> Iterator[str]:
    if value is None or not math.isfinite(value):
        yield f"{name} is undefined"
        return
    if threshold.min is not None and value < threshold.min:
        yield f"{name} {value:.4g} below {threshold.min:.4g}"
    if threshold.max is not None and value > threshold.max:
        yield f"{name} {value:.4g} above {threshold.max:.4g}"
    if before is None or not math.isfinite(before):
        return
    if threshold.max_drop is not None and before - value > threshold.max_drop:
        yield (
            f"{name} {value:.4g} below {before:.4g} of {BASELINE} "
            f"by more than {threshold.max_drop:.4g}"
        )
    if threshold.max_rise is not None and value - before > threshold.max_rise:
        yield (
            f"{name} {value:.4g} above {before:.4g} of {BASELINE} "
            f"by more than {threshold.max_rise:.4g}"
        )


def _place(where: str, metrics: Metrics) -> str:
    count = metrics.get(EXAMPLE_COUNT, 0)
    place = f", slice {where}" if where else ""
    return f"{place}, n={count:,.0f}"


def _is_defined(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _finite(metrics: Metrics) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if math.isfinite(value)}
