"""Training where workers change the weights on parameter servers, each for itself.

```
chief    Session: a model of its own, to evaluate, save, digest and export
           │ push, pull                   schedules steps │ ▲ what came of them
           ▼                                              ▼ │
servers  the same variables, and a Keras optimizer ◄── workers
                                     gradients applied
```

The loop (loop.py) drives it as it drives a session. Nobody waits for anybody within a
piece: a step's gradients are those of weights that may have changed since it read
them, and a step whose worker was lost is computed again, though it may have counted.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import repeat
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from components.errors import ModelError
from components.trainer.batches import BatchPlan
from components.trainer.checkpoints import Progress
from components.trainer.diagnosis import explain
from components.trainer.execution import Executed
from components.trainer.input_pipeline import Reading, chunks
from components.trainer.keras_internals import count_atomically, inner_optimizer
from components.trainer.loop import PIECE_S, Preempted
from components.trainer.served_step import (
    Outcomes,
    ServedState,
    ServedStep,
    this_worker,
)
from components.trainer.session import Session
from components.trainer.state import SEED_STRIDE

log = logging.getLogger(__name__)
STEPS_PER_WORKER = 4
"""A piece holds at least so many for each worker: at its end they wait."""
STALL_LIMIT_S = 600
"""Time without a result after which no worker is believed to come back."""
STOP_LIMIT_S = 10
"""The same when this process was asked to stop."""


MAX_REASON = 500


class ServersLost(Preempted):
    """Parameter servers or all workers are gone; the last checkpoint is what is left."""

    def __init__(self, saved: Progress, reason: str) -> None:
        super().__init__(saved)
        last = f"the last one is of step {saved.step}" if saved.step else "none so far"
        self.args = (f"{reason} (checkpoints: {last})",)


class ServedTraining:
    """Drives workers for the loop, and keeps the chief's session in step with them."""

    def __init__(
        self,
        session: Session,
        strategy: Any,
        build: Callable[[], keras.Model],
        wants_stop: Callable[[], bool],
    ) -> None:
        """Build the model once more, on the servers.

        Args:
            session: The chief's own.
            strategy: A tf.distribute.ParameterServerStrategy.
            build: Builds and compiles the same model as the session's.
            wants_stop: Whether this process was asked to stop.

        Raises:
            ModelError: It is another model, or cannot be trained so.
        """
        if session.ground.precision.scales_loss:
            raise ModelError(
                "trainer.precision: got auto, which picks mixed_float16 for this GPU "
                "and does not go with strategy parameter_server; set float32 or "
                "mixed_bfloat16"
            )
        self._session = session
        self._strategy = strategy
        self._wants_stop = wants_stop
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        with strategy.scope():
            model = build()
            optimizer = inner_optimizer(model)
            # Now: variables that a step creates would lie on the chief.
            optimizer.build(model.trainable_variables)
        count_atomically(optimizer)
        self._state = ServedState(model, optimizer)
        self._state.check(session.state)
        self._step = ServedStep(session, self._state, strategy)
        self._scheduled = tf.function(self._step.run, autograph=False)
        self._waiting = ThreadPoolExecutor(1)
        self._iterator: Any = None
        self._epoch = 0
        self._saved = Progress()
        self._waited_s = 0.0
        self._is_pulled = False
        self._bad: dict[int, dict[str, np.ndarray]] = {}
        # Workers read one by one, whatever the chief keeps.
        self._split = replace(session.ground.splits.train, rows=None)

    @property
    def plan(self) -> BatchPlan:
        """The session's; an epoch is one chunk, for there is nothing to hand over."""
        plan = self._session.plan
        return replace(plan, chunk_steps=plan.steps_per_epoch)

    @property
    def num_workers(self) -> int:
        """Workers that the run began with."""
        cluster = self._session.ground.devices.cluster
        return len(cluster.jobs["worker"]) if cluster else 1

    def restore_latest(self) -> Progress:
        """Go back to the newest checkpoint, and return where it is."""
        self._saved = self._session.restore_latest()
        return self._saved

    def chunks(self, first_epoch: int, _: int) -> Iterator[None]:
        """Bring the weights to the servers and let workers open their files."""
        self._epoch = first_epoch
        with self._noticing_loss():
            self._state.push(self._session.state)
            dataset = self._coordinator.create_per_worker_dataset(
                lambda: self._dataset(first_epoch)
            )
            self._iterator = iter(dataset)
        return repeat(None)

    def _dataset(self, first_epoch: int) -> tf.data.Dataset:
        """Return the endless dataset of the worker that calls it."""
        ground, plan = self._session.ground, self._session.plan
        reading = Reading(
            self._split,
            ground.splits.layout,
            replace(plan, chunk_steps=1),
            range(1),
            ground.settings.seed + this_worker() * SEED_STRIDE,
            ground.settings.input.shuffle_buffer,
        )
        return chunks(reading, first_epoch)

    def execute(
        self, _: None, first: int, last: int, wishes: Sequence[float]
    ) -> Executed:
        """Let workers compute so many steps, and wait for them."""
        self._is_pulled = False
        with self._noticing_loss():
            scheduled = [
                self._coordinator.schedule(self._scheduled, args=(self._iterator,))
                for _ in range(first, last)
            ]
            fetched = [self._fetch(value) for value in scheduled]
            self._coordinator.join()
        found = self._step.read([value for value in fetched if value is not None])
        self._session.train_metrics.add(found.counted)
        if self._epoch > 0:
            self._waited_s += float(found.waited_s.sum()) / self.num_workers
        self._bad = {first + place: batch for place, batch in found.batches.items()}
        return _executed(found, wishes, STEPS_PER_WORKER * self.num_workers)

    def _fetch(self, value: Any) -> Any:
        """Return what came of a step; None when its worker took it along.

        Raises:
            tf.errors.OpError: A step failed.
            tf.errors.DeadlineExceededError: Nothing comes any more.
        """
        future, seconds = self._waiting.submit(value.fetch), 0
        while seconds < (STOP_LIMIT_S if self._wants_stop() else STALL_LIMIT_S):
            try:
                return future.result(timeout=1)
            except TimeoutError:
                seconds += 1
                self._coordinator.done()  # raises what other steps have failed of
            except tf.errors.UnavailableError:
                self._coordinator.done()
                return None
        raise tf.errors.UnavailableError(
            None, None, f"no step has come back for {seconds} s"
        )

    @contextmanager
    def _noticing_loss(self) -> Iterator[None]:
        try:
            yield
        except tf.errors.OpError as error:
            if not tells_of_loss(error):
                raise
            log.warning("lost: %s", " ".join(str(error).split())[:MAX_REASON])
            reason = "parameter servers or workers are gone"
            raise ServersLost(self._saved, reason) from error

    def _pull(self) -> None:
        """Bring the servers' values into the session."""
        if not self._is_pulled:
            with self._noticing_loss():
                self._session.state.write(0, self._state.values())
            self._is_pulled = True

    def epoch_metrics(self) -> dict[str, float]:
        """Return loss and metrics of the train split since the last call."""
        self._epoch += 1
        return self._session.epoch_metrics()

    def evaluate(self) -> dict[str, float]:
        """Return loss and metrics of the eval split."""
        self._pull()
        return self._session.evaluate()

    def save(self, progress: Progress) -> None:
        """Write a checkpoint."""
        self._pull()
        self._session.save(self.with_waits(progress))
        self._saved = progress

    def digest(self) -> str:
        """Return the digest of the weights."""
        self._pull()
        return self._session.digest()

    def explain(self, _: None, step: int) -> str:
        """Say what made a step of the last call bad."""
        self._pull()
        session = self._session
        return explain([self._bad[step]], session.reader, self._split, session.model)

    def with_waits(self, progress: Progress) -> Progress:
        """Add the time that workers waited for data, which the loop does not see."""
        return replace(progress, waited_s=progress.waited_s + self._waited_s)


def _executed(found: Outcomes, wishes: Sequence[float], least_steps: int) -> Executed:
    """Say it to the loop: a step counts as so short that pieces are long enough."""
    due, stop, step_s = wishes
    asked = np.array([due, stop, min(step_s, PIECE_S / least_steps)], np.float32)
    ones = np.ones_like(found.loss)
    return Executed(found.loss, found.gradient_norm, found.bad, ones, asked)


def tells_of_loss(error: tf.errors.OpError) -> bool:
    """Tell whether another process is gone, or came back empty."""
    if isinstance(
        error,
        tf.errors.UnavailableError | tf.errors.AbortedError | tf.errors.CancelledError,
    ):
        return True
    return "Unable to find" in str(error) and "remote" in str(error)
