"""What came of a training, in numbers and in a sentence."""

import math
from typing import Any

from components.trainer.checkpoints import Progress
from components.trainer.record import TrainingRecord


def summarise(
    made: TrainingRecord, progress: Progress, *, exports_best: bool
) -> dict[str, Any]:
    """Return the JSON summary of a run.

    Args:
        made: The run's record.
        progress: Where it ended.
        exports_best: Whether the exported weights are those of the best epoch.
    """
    best = None if progress.best_epoch is None else progress.best_epoch + 1
    names = sorted({name for epoch in progress.history for name in epoch})
    return {
        "history": {
            # JSON has no NaN: null.
            name: [_finite(epoch.get(name)) for epoch in progress.history]
            for name in names
        },
        "best_epoch": best,
        "exported_epoch": best if exports_best else progress.epoch,
        "steps": progress.step,
        "skipped_steps": list(progress.skipped),
        "examples_per_second": _rate(progress),
        "input_bound": input_bound(progress),
        "seconds": round(progress.all_s, 3),
        "strategy": made.strategy,
        "replicas": made.num_replicas,
        "precision": made.precision,
        "xla": made.xla,
        "micro_batch_size": made.micro_batch_size,
        "accumulation": made.accumulation,
        "effective_batch_size": made.request.settings.batch_size,
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _rate(progress: Progress) -> float:
    return round(progress.examples / progress.seconds, 1) if progress.seconds else 0.0


def input_bound(progress: Progress) -> float | None:
    """Return the share of the time after the first epoch that devices waited for data.

    None when there was one epoch only.
    """
    if not progress.after_first_s:
        return None
    return round(progress.waited_s / progress.after_first_s, 4)


def verdict(progress: Progress) -> str:
    """Say at the end what training was bound by."""
    share = input_bound(progress)
    rate = f"{_rate(progress):,.0f} examples/s"
    if share is None:
        return f"{rate}; one epoch only: how far the input bounds it is not known"
    return f"{rate}; input-bound {share:.0%}"
