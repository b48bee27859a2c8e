"""What people are told of a training, and how often."""

import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from components.trainer.batches import BatchPlan
from components.trainer.checkpoints import Progress
from components.trainer.config import TrainerSettings
from components.trainer.execution import Executed
from components.trainer.loop import Schedule
from components.trainer.observer import MAX_WARNINGS, TrainingObserver, progress_line

SCHEDULE = Schedule(TrainerSettings(epochs=4), BatchPlan(2_000, 1, 1, 2, 8))
DONE = Executed(
    loss=np.array([0.9, 0.51234]),
    gradient_norm=np.ones(2),
    bad=np.zeros(2, bool),
    loss_scale=np.ones(2),
    wishes=np.zeros(3, np.float32),
)


def observer(
    times: Iterator[float] | list[float], file: Path | None = None
) -> TrainingObserver:
    ticks = iter(times)
    return TrainingObserver(SCHEDULE, lambda: next(ticks), file, None)


def at(step: int) -> Progress:
    return Progress(step=step, examples=2 * step, seconds=step / 100)


def test_the_line_says_how_far_how_fast_how_long_and_how_good() -> None:
    progress = Progress(step=1_200, examples=62_400, seconds=1.2)
    assert progress_line(progress, SCHEDULE, 0.123456) == (
        "step 1,200 of 4,000, 52,000 examples/s, 3 s left, loss 0.1235"
    )


def test_the_line_can_be_written_before_any_time_has_gone_by() -> None:
    assert progress_line(Progress(), SCHEDULE, float("nan")) == (
        "step 0 of 4,000, 0 examples/s, 0 s left, loss nan"
    )


def test_the_progress_file_holds_the_last_loss_of_what_was_run(tmp_path: Path) -> None:
    file = tmp_path / "progress"
    observer([0.0, 1.0], file).executed(at(100), DONE, 1.0)
    assert file.read_text() == progress_line(at(100), SCHEDULE, 0.51234)


def test_the_progress_file_is_written_twice_a_second_at_most(tmp_path: Path) -> None:
    file = tmp_path / "progress"
    told = observer([0.0, 0.4, 0.6, 1.0, 1.2], file)
    seen = []
    for step in (1, 2, 3, 4):
        told.executed(at(step), DONE, 0.1)
        seen.append(file.read_text().split()[1] if file.exists() else None)
    assert seen == [None, "2", "2", "4"]


def test_without_a_progress_file_nothing_is_written(tmp_path: Path) -> None:
    observer([0.0, 9.0]).executed(at(1), DONE, 1.0)
    assert list(tmp_path.iterdir()) == []


def test_the_log_has_a_line_every_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    told = observer([0.0, 9.0, 10.0, 19.0, 20.0])
    with caplog.at_level(logging.INFO):
        for step in (1, 2, 3, 4):
            told.executed(at(step), DONE, 1.0)
    assert caplog.messages == [
        progress_line(at(2), SCHEDULE, 0.51234),
        progress_line(at(4), SCHEDULE, 0.51234),
    ]


def test_the_log_has_the_metrics_of_each_epoch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    history = ({"loss": 0.5}, {"loss": 0.25, "val_loss": 1 / 3})
    with caplog.at_level(logging.INFO):
        observer([0.0]).epoch_done(Progress(epoch=2, history=history))
    assert caplog.messages == ["epoch 2 of 4: loss 0.25, val_loss 0.3333"]


def test_only_the_first_skipped_batches_are_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = observer([0.0])
    for step in range(MAX_WARNINGS + 3):
        told.skipped(step, "x is nan")
    assert len(caplog.messages) == MAX_WARNINGS
    assert caplog.messages[0] == "skipped the batch of step 0: x is nan"
