"""The loop over epochs and chunks: when to save, stop, look and go on."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from components.errors import DataError, ModelError
from components.trainer.batches import BatchPlan
from components.trainer.checkpoints import Progress
from components.trainer.config import TrainerSettings
from components.trainer.execution import Executed

PIECE_S = 0.5
"""Time after which control comes back to Python, where one step does not take longer."""
NUM_DIGESTS = 20
"""About so many digests of the weights are kept of a run."""


class Preempted(Exception):  # noqa: N818  not an error: the state is saved
    """Training was asked to stop and has saved its state."""

    def __init__(self, progress: Progress, message: str = "") -> None:
        words = f"stopped after step {progress.step}; its state is saved"
        super().__init__(message or words)
        self.progress = progress


class InputLost(Exception):  # noqa: N818  the run can go on another time
    """No chunk comes any more; the message says of whom."""

    def __init__(self, message: str, *, may_save: bool, by_wish: bool) -> None:
        """Set up.

        Args:
            message: Who hands out nothing.
            may_save: Whether this worker alone may write a checkpoint.
            by_wish: Whether it was asked to stop, and is not waited for any longer.
        """
        super().__init__(message)
        self.may_save = may_save
        self.by_wish = by_wish


class Machine(Protocol):
    """What the loop drives: devices, input and files."""

    def chunks(self, first_epoch: int, first_chunk: int) -> Iterator[Any]:
        """Read the train split from a position on, without end."""

    def execute(
        self, chunk: Any, first: int, last: int, wishes: Sequence[float]
    ) -> Executed:
        """Run some steps of a chunk."""

    def epoch_metrics(self) -> dict[str, float]:
        """Return loss and metrics of the train split since the last call."""

    def evaluate(self) -> dict[str, float]:
        """Return loss and metrics of the eval split."""

    def save(self, progress: Progress) -> None:
        """Write a checkpoint."""

    def digest(self) -> str:
        """Return the digest of the weights."""

    def explain(self, chunk: Any, step: int) -> str:
        """Say what made a step of a chunk bad."""


class Observer(Protocol):
    """Who is told."""

    def executed(self, progress: Progress, done: Executed, seconds: float) -> None:
        """Some steps were run."""

    def epoch_done(self, progress: Progress) -> None:
        """An epoch has ended; its metrics are the last of the history."""

    def skipped(self, step: int, reason: str) -> None:
        """A step's batch was skipped."""


@dataclass(frozen=True)
class Schedule:
    """What the loop needs to know of a run."""

    settings: TrainerSettings
    plan: BatchPlan

    @property
    def total_steps(self) -> int:
        """Steps of a run that is not stopped early."""
        return self.settings.epochs * self.plan.steps_per_epoch

    @property
    def digest_every(self) -> int:
        """Steps between two digests of the weights."""
        return max(1, self.total_steps // NUM_DIGESTS)

    def end_of_piece(self, step: int, epoch_step: int, step_s: float | None) -> int:
        """Return the step in the epoch at which control comes back.

        The ends of chunks and epochs, and the steps at which something is due, are
        never run over, however fast steps are: so they do not depend on time.

        Args:
            step: Steps done.
            epoch_step: Steps done in this epoch.
            step_s: Seconds that a step takes; None when not known yet.
        """
        size = self.plan.chunk_steps
        ends = [
            (epoch_step // size + 1) * size,
            self.plan.steps_per_epoch,
            epoch_step + _until(self.digest_every, step),
        ]
        every = self.settings.checkpoints.every_steps
        if every is not None:
            ends.append(epoch_step + _until(every, step))
        profile = self.settings.tensorboard.profile_steps or ()
        ends += [epoch_step + bound - step for bound in profile if step < bound]
        if step_s is None:
            ends.append(epoch_step + 1)
        elif step_s > 0:
            ends.append(epoch_step + max(1, int(PIECE_S / step_s)))
        return min(ends)

    def stops_early(self, progress: Progress) -> bool:
        """Tell whether the eval loss has not fallen for too long."""
        patience = self.settings.early_stopping_patience
        # Without any epoch that could be judged, all of them were in vain.
        best = -1 if progress.best_epoch is None else progress.best_epoch
        return bool(patience and progress.epoch - 1 - best >= patience)

    def saves_at(self, progress: Progress) -> bool:
        """Tell whether a checkpoint is due at this step, whatever the time."""
        every = self.settings.checkpoints.every_steps
        if every is not None and progress.step % every == 0:
            return True
        is_best = progress.epoch_step == 0 and progress.best_epoch == progress.epoch - 1
        return is_best and self.settings.wants_best


def _until(every: int, step: int) -> int:
    return every - step % every


class Loop:
    """One attempt at a run, from a position to its end."""

    def __init__(
        self,
        machine: Machine,
        observer: Observer,
        schedule: Schedule,
        clock: Callable[[], float],
        wants_stop: Callable[[], bool],
    ) -> None:
        """Set up.

        Args:
            machine: What is driven.
            observer: Who is told.
            schedule: What the run is.
            clock: Seconds that never go back.
            wants_stop: Whether this process was asked to stop.
        """
        self._machine = machine
        self._observer = observer
        self._schedule = schedule
        self._clock = clock
        self._wants_stop = wants_stop
        self._saved_at = clock()
        self._own_step_s = 0.0
        self._agreed_step_s: float | None = None
        self._num_calls = 0
        self._num_steps = 0
        self._num_moved = 0
        self._began_at = 0
        self._wished = np.zeros(3, np.float32)

    def run(self, progress: Progress) -> Progress:
        """Train to the end.

        Raises:
            Preempted: It was asked to stop, or no input comes; its state is saved.
            DataError: No input has ever come.
            ModelError: The loss or a gradient is not finite.
        """
        if self._is_over(progress):
            return progress
        self._began_at = progress.step
        size = self._schedule.plan.chunk_steps
        chunks = self._machine.chunks(progress.epoch, progress.epoch_step // size)
        while not self._is_over(progress):
            begun = self._clock()
            chunk = self._next(chunks, progress)
            waited = self._clock() - begun
            progress = self._count_wait(progress, waited)
            progress = self._run_chunk(progress, chunk)
        self._check_overflow()
        return progress

    def _next(self, chunks: Iterator[Any], progress: Progress) -> Any:
        try:
            return next(chunks)
        except InputLost as lost:
            if not progress.step and not lost.by_wish:
                raise DataError(f"{lost}; is it running, and reachable?") from lost
            state = "what was saved stands"
            if lost.may_save:
                self._machine.save(progress)
                state = "its state is saved"
            message = f"{lost}, stopped after step {progress.step}; {state}"
            raise Preempted(progress, message) from lost

    def _is_over(self, progress: Progress) -> bool:
        return progress.epoch >= self._schedule.settings.epochs or (
            progress.epoch_step == 0 and self._schedule.stops_early(progress)
        )

    def _count_wait(self, progress: Progress, waited: float) -> Progress:
        seconds = progress.seconds + waited
        if progress.epoch == 0:
            return replace(progress, seconds=seconds)
        return replace(
            progress,
            seconds=seconds,
            waited_s=progress.waited_s + waited,
            after_first_s=progress.after_first_s + waited,
        )

    def _run_chunk(self, progress: Progress, chunk: Any) -> Progress:
        plan = self._schedule.plan
        start = progress.epoch_step // plan.chunk_steps * plan.chunk_steps
        end = min(start + plan.chunk_steps, plan.steps_per_epoch)
        while progress.epoch_step < end:
            last = self._schedule.end_of_piece(
                progress.step, progress.epoch_step, self._agreed_step_s
            )
            progress = self._run_piece(progress, chunk, start, last)
            begun = self._clock()
            is_over = progress.epoch_step == plan.steps_per_epoch
            if is_over:
                progress = self._count_between(self._end_epoch(progress), begun)
                begun = self._clock()
            self._save_if_due(progress)
            progress = self._count_between(progress, begun)
            if is_over:
                break
        return progress

    def _count_between(self, progress: Progress, begun: float) -> Progress:
        between_s = progress.between_s + self._clock() - begun
        return replace(progress, between_s=between_s)

    def _run_piece(
        self, progress: Progress, chunk: Any, start: int, last: int
    ) -> Progress:
        first = progress.epoch_step
        begun = self._clock()
        done = self._machine.execute(chunk, first - start, last - start, self._wishes())
        seconds = self._clock() - begun
        steps = last - first
        self._agree(done.wishes, seconds / steps)
        self._num_steps += steps
        self._num_moved += int(np.isfinite(done.gradient_norm).sum())
        progress = self._handle_bad(progress, chunk, done, first - start)
        plan = self._schedule.plan
        kept = min(last * plan.batch_size, plan.num_examples) - first * plan.batch_size
        progress = replace(
            progress,
            step=progress.step + steps,
            epoch_step=last,
            examples=progress.examples + kept,
            seconds=progress.seconds + seconds,
            after_first_s=progress.after_first_s
            + (seconds if progress.epoch > 0 else 0.0),
        )
        if progress.step % self._schedule.digest_every == 0:
            begun = self._clock()
            digests = (*progress.digests, (progress.step, self._machine.digest()))
            progress = replace(progress, digests=digests)
            progress = self._count_between(progress, begun)
        self._observer.executed(progress, done, seconds)
        return progress

    def _wishes(self) -> tuple[float, float, float]:
        due = (
            self._clock() - self._saved_at
            >= self._schedule.settings.checkpoints.every_s
        )
        return float(due), float(self._wants_stop()), self._own_step_s

    def _agree(self, wished: np.ndarray, step_s: float) -> None:
        """Take over what all workers said: they must run the same pieces."""
        self._wished = wished
        mean_s = float(wished[2]) / self._schedule.plan.num_replicas
        self._agreed_step_s = mean_s if mean_s > 0 else None
        self._num_calls += 1
        if self._num_calls > 1:  # the first compiles and says nothing about a step
            self._own_step_s = step_s

    def _handle_bad(
        self, progress: Progress, chunk: Any, done: Executed, first: int
    ) -> Progress:
        wrong = np.flatnonzero(done.bad)
        for place in wrong:
            step = progress.step + int(place) + 1
            reason = self._machine.explain(chunk, first + int(place))
            what = "the loss" if not math.isfinite(done.loss[place]) else "a gradient"
            if self._schedule.settings.nan_policy == "stop":
                raise ModelError(
                    f"{what} is not finite at step {step} (epoch {progress.epoch + 1})"
                    f": {reason}; trainer.nan_policy: skip would leave such batches out"
                )
            self._observer.skipped(step, reason)
            progress = replace(progress, skipped=(*progress.skipped, step))
        return progress

    def _end_epoch(self, progress: Progress) -> Progress:
        measured: Mapping[str, float] = {
            **self._machine.epoch_metrics(),
            **{f"val_{name}": v for name, v in self._machine.evaluate().items()},
        }
        self._check_epoch(progress, measured)
        best = progress.best_epoch
        if -math.inf < measured["val_loss"] < progress.best_loss:
            best = progress.epoch
        progress = replace(
            progress,
            epoch=progress.epoch + 1,
            epoch_step=0,
            history=(*progress.history, measured),
            best_epoch=best,
        )
        self._observer.epoch_done(progress)
        return progress

    def _check_epoch(self, progress: Progress, measured: Mapping[str, float]) -> None:
        """Refuse to go on from an epoch that taught nothing, or cannot be judged."""
        number = progress.epoch + 1
        first = progress.step - self._schedule.plan.steps_per_epoch
        skipped = sum(step > first for step in progress.skipped)
        if skipped == self._schedule.plan.steps_per_epoch:
            raise ModelError(
                f"every step of epoch {number} was skipped, for none was finite; the "
                "log says why of each"
            )
        stops = self._schedule.settings.nan_policy == "stop"
        if stops and not math.isfinite(measured["val_loss"]):
            raise ModelError(
                f"the eval split's loss is {measured['val_loss']} after epoch {number}, "
                "though training is finite: look for values that are not finite in the "
                "eval split; trainer.nan_policy: skip would go on without judging epochs"
            )

    def _check_overflow(self) -> None:
        if self._began_at == 0 and self._num_steps and not self._num_moved:
            raise ModelError(
                f"all {self._num_steps} steps overflowed float16, so the weights are as "
                "they were: a smaller learning rate, or precision: mixed_bfloat16, or "
                "more steps for the loss scale to fall"
            )

    def _save_if_due(self, progress: Progress) -> None:
        wants_save, wants_stop, _ = self._wished
        if wants_save > 0 or wants_stop > 0 or self._schedule.saves_at(progress):
            self._machine.save(progress)
            self._saved_at = self._clock()
        self._wished = np.zeros(3, np.float32)
        if wants_stop > 0 and not self._is_over(progress):
            raise Preempted(progress)
