"""Puts a training together: devices, model, input, step; and drives them for the loop."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from components.features import FeatureTable
from components.trainer import batches, devices, xla
from components.trainer.batches import BatchPlan
from components.trainer.checkpoints import Checkpoints, Progress
from components.trainer.columns import Layout
from components.trainer.config import TrainerSettings
from components.trainer.devices import DevicePlan
from components.trainer.diagnosis import explain
from components.trainer.examples import ExampleReader, batch_specs
from components.trainer.execution import Evaluation, Executed, Execution
from components.trainer.input_pipeline import Reading, distribute
from components.trainer.keras_internals import (
    PureOptimizer,
    compiled_loss,
    compiled_loss_weight,
    inner_optimizer,
)
from components.trainer.metrics import Metrics
from components.trainer.model import input_names
from components.trainer.objective import Objective, Problem
from components.trainer.patience import Patience, patiently
from components.trainer.precision import Precision
from components.trainer.split import Split
from components.trainer.state import TrainState
from components.trainer.step import Arithmetic, StepOptions, TrainingStep

log = logging.getLogger(__name__)
EVAL_BATCH_FACTOR = 8
"""No gradients are kept when evaluating: larger batches fit."""


@dataclass(frozen=True)
class Splits:
    """The data of a run."""

    layout: Layout
    train: Split
    eval: Split


@dataclass(frozen=True)
class Ground:
    """What a session stands on: settled before a model is built."""

    settings: TrainerSettings
    table: FeatureTable
    devices: DevicePlan
    strategy: Any
    precision: Precision
    splits: Splits
    accumulation: int
    """Micro-batches of a replica, those that memory demands included."""
    wants_stop: Callable[[], bool] = lambda: False
    """Whether this process was asked to stop; for waits that nothing else ends."""

    @property
    def replicas(self) -> range:
        """This process's replicas among all."""
        first = self.devices.first_replica
        return range(first, first + self.devices.num_devices)


class Session:
    """A model with its state on its devices; one for each attempt."""

    def __init__(
        self,
        ground: Ground,
        build: Callable[[], keras.Model],
        checkpoints: Checkpoints,
    ) -> None:
        """Build the model inside the strategy's scope and trace its step.

        Args:
            ground: What it stands on.
            build: Builds and compiles the model.
            checkpoints: Where to save.

        Raises:
            ModelError: The model cannot be trained so.
        """
        self.ground = ground
        self._checkpoints = checkpoints
        self.saved: Progress | None = None
        """Where the newest checkpoint of this attempt is, or that it went on from."""
        self.plan = _train_plan(ground)
        self.eval_plan = _eval_plan(ground, self.plan)
        with ground.strategy.scope():
            self.model = build()
            self._optimizer = PureOptimizer(
                inner_optimizer(self.model),
                self.model.trainable_variables,
                # The servers' optimizer has slots for each variable, and so has ours.
                may_join=ground.devices.kind != "parameter_server",
            )
            self.state = TrainState(
                ground.strategy,
                self.model,
                self._optimizer,
                with_ema=ground.settings.ema_momentum is not None,
            )
            self._train_metrics = self._metrics(
                self.plan.accumulation * self.plan.micro_batch_size
            )
            self._eval_metrics = self._metrics(self.eval_plan.micro_batch_size)
        self.holds_best = False
        self.step, self.xla = self._settle_step()
        self._execution = Execution(
            ground.strategy,
            self.step,
            self.reader,
            self._train_metrics,
            self.plan.chunk_steps,
            stops_when_bad=ground.settings.nan_policy == "stop",
        )
        self._evaluation = Evaluation(
            ground.strategy,
            self._problem(self.eval_plan),
            self.state,
            self._eval_metrics,
            ground.devices.first_replica,
            compiled=self.xla == "whole",
        )
        self._eval_chunks: Iterator[Any] | None = None
        self._last: tuple[Any, int] | None = None

    @cached_property
    def reader(self) -> ExampleReader:
        """What knows the columns."""
        table = self.ground.table
        return ExampleReader(
            self.ground.splits.layout,
            tuple(input_names(self.model)),
            table.label_key,
            table.weight_key,
        )

    def _label(self, batch: int) -> tf.TensorSpec:
        key = self.ground.table.label_key
        [column] = [c for c in self.ground.splits.layout.columns if c.key == key]
        return tf.TensorSpec([batch, *column.shape], column.group)

    def _prediction(self, batch: int) -> tf.TensorSpec:
        [output] = self.model.outputs
        return tf.TensorSpec([batch, *output.shape[1:]], "float32")

    def _metrics(self, batch: int) -> Metrics:
        return Metrics(
            self.ground.strategy,
            self.model,
            self._label(batch),
            self._prediction(batch),
        )

    def _problem(self, plan: BatchPlan) -> Problem:
        size = plan.micro_batch_size
        label, prediction = (
            keras.KerasTensor(spec.shape, spec.dtype.name)
            for spec in (self._label(size), self._prediction(size))
        )
        loss = compiled_loss(self.model, label, prediction)
        objective = Objective(
            loss,
            size,
            plan.accumulation * plan.num_replicas,
            compiled_loss_weight(self.model),
        )
        return Problem(self.model, self.reader, objective)

    def _settle_step(self) -> tuple[TrainingStep, xla.Mode]:
        wanted = self.ground.settings.xla
        first = xla.first_choice(wanted, self.ground.devices.device_type)
        step = None

        def attempt() -> None:
            nonlocal step
            step = self._build_step(compiled=True)
            self._try(step)

        mode = xla.settle(wanted, first, attempt)
        if mode == "clusters":
            xla.cluster_automatically()
        if step is None or mode != "whole":
            step = self._build_step(compiled=False)
        return step, mode

    def _build_step(self, *, compiled: bool) -> TrainingStep:
        settings, plan = self.ground.settings, self.plan
        arithmetic = Arithmetic(
            self._problem(plan),
            self.state.variables["non_trainable"],
            self._optimizer,
            StepOptions(
                plan.accumulation,
                plan.num_replicas,
                settings.clip_norm,
                settings.ema_momentum,
                scales_loss=self.ground.precision.scales_loss,
            ),
        )
        return TrainingStep(
            arithmetic,
            self.state,
            batch_specs(
                self.ground.splits.layout, plan.accumulation, plan.micro_batch_size
            ),
            self.ground.devices.first_replica,
            compiled=compiled,
        )

    def _try(self, step: TrainingStep) -> None:
        """Compute once with zeros, in vain: what XLA cannot compile fails here."""
        batch = {
            name: tf.zeros(spec.shape, spec.dtype)
            for name, spec in batch_specs(
                self.ground.splits.layout,
                self.plan.accumulation,
                self.plan.micro_batch_size,
            ).items()
        }
        step.functions[0](self.state.read(0), batch, tf.constant(0, tf.int64))

    def chunks(self, first_epoch: int, first_chunk: int) -> Iterator[Any]:
        """Read the train split from a position on, without end."""
        settings = self.ground.settings
        reading = Reading(
            self.ground.splits.train,
            self.ground.splits.layout,
            self.plan,
            self.ground.replicas,
            settings.seed,
            settings.input.shuffle_buffer,
            settings.input.service,
        )

        def begin() -> Iterator[Any]:
            return distribute(self.ground.strategy, reading, first_epoch, first_chunk)

        if settings.input.service is None:
            return begin()
        patience = Patience(
            f"tf.data service at {settings.input.service} (trainer.input.service)",
            may_save=self.ground.devices.num_workers == 1,
            wants_stop=self.ground.wants_stop,
        )
        return patiently(begin, patience)

    def execute(
        self, chunk: Any, first: int, last: int, wishes: Sequence[float]
    ) -> Executed:
        """Run some steps of a chunk."""
        self._last = (chunk, last - 1)
        return self._execution.run(chunk, first, last, wishes)

    @property
    def train_metrics(self) -> Metrics:
        """What was counted of the train split since the last `epoch_metrics`."""
        return self._train_metrics

    def epoch_metrics(self) -> dict[str, float]:
        """Return loss and metrics of the train split since the last call."""
        result = self._train_metrics.result()
        self._train_metrics.reset()
        return result

    def evaluate(self) -> dict[str, float]:
        """Return loss and metrics of the eval split."""
        plan = self.eval_plan
        if self._eval_chunks is None:
            reading = Reading(
                self.ground.splits.eval,
                self.ground.splits.layout,
                plan,
                self.ground.replicas,
            )
            self._eval_chunks = distribute(self.ground.strategy, reading)
        steps = [
            min(plan.chunk_steps, plan.steps_per_epoch - chunk * plan.chunk_steps)
            for chunk in range(plan.chunks_per_epoch)
        ]
        return self._evaluation.run(self._eval_chunks, steps)

    def save(self, progress: Progress) -> None:
        """Write a checkpoint; all workers come here, the chief writes."""
        counted = self._train_metrics.values()
        if self.ground.devices.is_chief:
            self._checkpoints.save({**self.state.named(), **counted}, progress)
        self.saved = progress

    def restore_latest(self) -> Progress:
        """Go back to the newest checkpoint, and return where it is."""
        if self._checkpoints.is_empty():
            return Progress()
        is_chief = self.ground.devices.is_chief
        wanted = {**self.state.named(), **self._train_metrics.values()}
        found = self._checkpoints.read_latest(wanted, may_move=is_chief)
        if found is None:
            return Progress()
        progress, values = found
        self.state.restore(values)
        self._train_metrics.restore(values, is_chief=is_chief)
        self.saved = progress
        return progress

    def restore_best(self) -> None:
        """Take the weights of the best epoch, where they were kept."""
        values = self._checkpoints.read_best(self.state.named())
        self.holds_best = values is not None
        if values is None:
            log.warning("exporting the last weights: those of the best epoch are gone")
        else:
            self.state.restore(values)

    def digest(self) -> str:
        """Return the digest of the weights."""
        return self.state.digest()

    def histograms(self) -> dict[str, np.ndarray]:
        """Return weights, and gradients of the batch computed last, by name."""
        variables = self.state.variables["trainable"]
        weights = [self.state.components(v)[0].numpy() for v in variables]
        found = {
            f"weights/{v.path}": w for v, w in zip(variables, weights, strict=True)
        }
        if self._last is not None:
            chunk, step = self._last
            batch = self.local_batches(chunk, step)[0]
            del batch["row"]
            part, _ = self._gradients(
                self.state.read(0), batch, tf.constant(0, tf.int64)
            )
            for variable, gradient in zip(variables, part.gradients, strict=True):
                found[f"gradients/{variable.path}"] = gradient.numpy()
        return found

    @cached_property
    def _gradients(self) -> Any:
        """The gradients of one replica's batch, times the loss scale."""
        return tf.function(self.step.arithmetic.accumulate, autograph=False)

    def local_batches(self, chunk: Any, step: int) -> list[dict[str, np.ndarray]]:
        """Return the batch of one step on each replica of this process."""
        local = self.ground.strategy.experimental_local_results
        parts = {name: local(value) for name, value in chunk.items()}
        return [
            {name: values[place][step].numpy() for name, values in parts.items()}
            for place in range(self.ground.devices.num_devices)
        ]

    def explain(self, chunk: Any, step: int) -> str:
        """Say what made a step of a chunk bad."""
        found = self.local_batches(chunk, step)
        probe = self.model if self.ground.devices.num_workers == 1 else None
        return explain(found, self.reader, self.ground.splits.train, probe)


def _train_plan(ground: Ground) -> BatchPlan:
    settings = ground.settings
    micro = devices.micro_batch_size(
        settings.batch_size, ground.accumulation, ground.devices.num_replicas
    )
    row_bytes = ground.splits.layout.row_bytes
    return BatchPlan(
        ground.splits.train.num_examples,
        ground.devices.num_replicas,
        ground.accumulation,
        micro,
        batches.chunk_steps(
            settings.steps_per_execution, settings.batch_size, row_bytes
        ),
        settings.last_batch,
    )


def _eval_plan(ground: Ground, train: BatchPlan) -> BatchPlan:
    num_examples, num_replicas = ground.splits.eval.num_examples, train.num_replicas
    all_of_them = -(-num_examples // num_replicas)
    micro = min(EVAL_BATCH_FACTOR * train.micro_batch_size, all_of_them)
    plan = BatchPlan(num_examples, num_replicas, 1, micro, 1)
    steps = batches.chunk_steps(None, plan.batch_size, ground.splits.layout.row_bytes)
    return replace(plan, chunk_steps=min(steps, plan.steps_per_epoch))
