"""Tells people how training goes: one line, the log, TensorBoard."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from components.trainer.checkpoints import Progress
from components.trainer.config import TensorBoardSettings
from components.trainer.execution import Executed
from components.trainer.loop import Schedule
from components.trainer.request import write_atomically

log = logging.getLogger(__name__)
LOG_EVERY_S = 10.0
PROGRESS_EVERY_S = 0.5
MAX_WARNINGS = 5


def progress_line(progress: Progress, schedule: Schedule, loss: float) -> str:
    """Write the one line: `step 1,200 of 4,000, 52,000 examples/s, 12 s left, …`."""
    total = schedule.total_steps
    rate = progress.examples / progress.seconds if progress.seconds else 0.0
    left = (total - progress.step) * progress.all_s / max(1, progress.step)
    return (
        f"step {progress.step:,} of {total:,}, {rate:,.0f} examples/s, "
        f"{left:,.0f} s left, loss {loss:.4g}"
    )


class TrainingObserver:
    """Writes the progress file, log lines and TensorBoard's scalars."""

    def __init__(
        self,
        schedule: Schedule,
        clock: Callable[[], float],
        progress_file: Path | None,
        board: "TensorBoard | None",
    ) -> None:
        self._schedule = schedule
        self._clock = clock
        self._file = progress_file
        self._board = board
        self._shown = self._logged = clock()
        self._num_skipped = 0

    def executed(self, progress: Progress, done: Executed, seconds: float) -> None:
        """Show where training is, now and then."""
        now = self._clock()
        loss = float(done.loss[-1])
        if self._board is not None:
            self._board.steps(progress.step, done, seconds)
        if now - self._shown >= PROGRESS_EVERY_S and self._file is not None:
            self._shown = now
            write_atomically(self._file, progress_line(progress, self._schedule, loss))
        if now - self._logged >= LOG_EVERY_S:
            self._logged = now
            log.info("%s", progress_line(progress, self._schedule, loss))

    def epoch_done(self, progress: Progress) -> None:
        """Log the epoch's metrics."""
        metrics = progress.history[-1]
        words = ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())
        log.info(
            "epoch %d of %d: %s",
            progress.epoch,
            self._schedule.settings.epochs,
            words,
        )
        if self._board is not None:
            self._board.epoch(progress.step, metrics)

    def skipped(self, step: int, reason: str) -> None:
        """Warn about a batch that was left out."""
        self._num_skipped += 1
        if self._num_skipped <= MAX_WARNINGS:
            log.warning("skipped the batch of step %d: %s", step, reason)


class TensorBoard:
    """Scalars, histograms, the graph and a profile window, in one folder."""

    def __init__(
        self,
        folder: Path,
        settings: TensorBoardSettings,
        histograms: Callable[[], Mapping[str, np.ndarray]],
    ) -> None:
        """Open writers.

        Args:
            folder: Where event files go.
            settings: What is written.
            histograms: Returns weights and gradients by name, asked after each epoch.
        """
        self._settings = settings
        self._histograms = histograms
        self._folder = folder
        self._train = tf.summary.create_file_writer(str(folder / "train"))
        self._eval = tf.summary.create_file_writer(str(folder / "eval"))
        self._profiling = False

    def steps(self, step: int, done: Executed, seconds: float) -> None:
        """Write what a call of steps did; it ended at this step."""
        with self._train.as_default(step):
            tf.summary.scalar("step/loss", float(done.loss[-1]))
            tf.summary.scalar("step/gradient_norm", float(done.gradient_norm[-1]))
            tf.summary.scalar("step/loss_scale", float(done.loss_scale[-1]))
            tf.summary.scalar("step/seconds", seconds / len(done.loss))
        self._profile(step)

    def _profile(self, step: int) -> None:
        first, last = self._settings.profile_steps or (0, 0)
        if not last:
            return
        if not self._profiling and first <= step < last:
            tf.profiler.experimental.start(str(self._folder))
            self._profiling = True
        elif self._profiling and step >= last:
            tf.profiler.experimental.stop()
            self._profiling = False

    def epoch(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write an epoch's metrics, and histograms if they are wanted."""
        for writer, prefix in ((self._train, ""), (self._eval, "val_")):
            with writer.as_default(step):
                for name, value in metrics.items():
                    if name.startswith("val_") == bool(prefix):
                        tf.summary.scalar(f"epoch/{name.removeprefix(prefix)}", value)
        if self._settings.histograms:
            with self._train.as_default(step):
                for name, values in self._histograms().items():
                    tf.summary.histogram(name, values)

    def graph(self, graph: Any) -> None:
        """Write the graph of the training step."""
        with self._train.as_default(0):
            tf.summary.graph(graph)

    def close(self) -> None:
        """Finish a profile and the files."""
        if self._profiling:
            tf.profiler.experimental.stop()
        self._train.close()
        self._eval.close()
