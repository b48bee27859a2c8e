"""The contenders of bench/trainer.py, each of which trains in a process of its own.

All of them train the same wide-and-deep model with the same optimizer, loss and
metrics on the same examples. Time is that of epochs after the first, the steps and the
input alone: neither compiling nor evaluation, checkpoints on exit or the export count.
"""

import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from synthetic_flights import Flights, feature_table


@dataclass(frozen=True)
class Measured:
    """What a contender says of itself; travels as JSON."""

    examples_per_s: float
    """Of the median epoch after the first."""
    first_epoch_s: float
    """With tracing and compiling."""
    details: dict[str, float] = field(default_factory=dict)


def rate(num_examples: int, epochs_s: list[float]) -> Measured:
    """Turn the seconds of epochs into examples/s, the first one left out."""
    first, *steady = epochs_s
    fastest = {"fastest_epoch_examples_per_s": num_examples / min(steady)}
    return Measured(num_examples / statistics.median(steady), first, fastest)


@dataclass(frozen=True)
class Slowness:
    """What the bench adds to each wait for a chunk."""

    chunk_s: float = 0.0


def train_ours(
    flights: Flights, settings: dict[str, Any], slowness: Slowness
) -> Measured:
    """Train as components.trainer.process does, export and record left out.

    Args:
        flights: The data.
        settings: The `trainer` section; what is left out has its default.
        slowness: How much slower the input is made.
    """
    from components.trainer.checkpoints import Progress
    from components.trainer.config import TrainerSettings
    from components.trainer.loop import Loop, Schedule
    from components.trainer.observer import TensorBoard, TrainingObserver

    made = TrainerSettings.model_validate(settings)
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        session, read_s = _session(flights, made, slowness, work)
        schedule = Schedule(made, session.plan)
        board = TensorBoard(work / "board", made.tensorboard, session.histograms)
        observer = TrainingObserver(schedule, time.monotonic, work / "line", board)
        progress = Loop(session, observer, schedule, time.monotonic, lambda: False).run(
            Progress()
        )
        board.close()
    measured = rate(session.plan.num_examples, session.epochs_s)
    share = progress.waited_s / progress.after_first_s
    measured.details.update(
        input_bound_fraction=share,
        injected_fraction=session.injected_s / progress.after_first_s,
        read_s=read_s,
        chunk_s=progress.after_first_s / max(1, session.num_chunks),
    )
    return measured


def _session(
    flights: Flights, settings: Any, slowness: Slowness, work: Path
) -> tuple[Any, float]:
    """Set up as components.trainer.process does; return the seconds of reading, too."""
    import keras
    import tensorflow_transform as tft

    from components.trainer import devices, precision
    from components.trainer.checkpoints import Checkpoints
    from components.trainer.columns import layout
    from components.trainer.inputs import describe_inputs
    from components.trainer.model import build
    from components.trainer.session import Ground, Splits
    from components.trainer.split import read_split

    table = feature_table()
    planned = devices.plan(settings, devices.take_inventory(), None)
    devices.configure(planned, deterministic=settings.deterministic)
    chosen = precision.decide(settings.precision, precision.capabilities())
    chosen.apply()
    keras.utils.set_random_seed(settings.seed)
    transform = tft.TFTransformOutput(str(flights.transform))
    columns = layout(transform.transformed_feature_spec())
    begun = time.perf_counter()
    train, evaluation = (
        read_split(files, columns, table.label_key, settings.input.cache, work)
        for files in (flights.train_files, flights.eval_files)
    )
    read_s = time.perf_counter() - begun
    ground = Ground(
        settings,
        table,
        planned,
        devices.create_strategy(planned, settings.all_reduce),
        chosen,
        Splits(columns, train, evaluation),
        settings.accumulation_steps,
    )
    inputs = describe_inputs(table, transform, settings, train)
    saved = Checkpoints(work / "saved", settings.checkpoints.keep)
    session = clocked_session(ground, lambda: build(inputs), saved, slowness)
    return session, read_s


def clocked_session(
    ground: Any, build: Any, checkpoints: Any, slowness: Slowness
) -> Any:
    """Return a Session that notes how long its epochs take, evaluation left out."""
    from components.trainer.session import Session

    class ClockedSession(Session):
        def __init__(self) -> None:
            self.epochs_s: list[float] = []
            self.injected_s = 0.0
            self.num_chunks = 0
            """Both after the first epoch."""
            super().__init__(ground, build, checkpoints)
            self._begun = time.perf_counter()

        def chunks(self, first_epoch: int, first_chunk: int) -> Iterator[Any]:
            for chunk in super().chunks(first_epoch, first_chunk):
                time.sleep(slowness.chunk_s)
                if self.epochs_s:
                    self.injected_s += slowness.chunk_s
                    self.num_chunks += 1
                yield chunk

        def epoch_metrics(self) -> dict[str, float]:
            found = super().epoch_metrics()
            self.epochs_s.append(time.perf_counter() - self._begun)
            return found

        def evaluate(self) -> dict[str, float]:
            found = super().evaluate()
            self._begun = time.perf_counter()
            return found

    return ClockedSession()


@dataclass(frozen=True)
class FitOptions:
    """How Keras' fit is run."""

    batch_size: int
    steps_per_execution: int = 1
    jit_compile: str | bool = "auto"
    precision: str = "float32"
    epochs: int = 4
    steps_per_epoch: int | None = None
    """For an input without end."""


def fit_in_memory(flights: Flights, options: FitOptions) -> Measured:
    """Train with `model.fit` on numpy arrays: the bound."""
    arrays = _arrays(flights)
    label = arrays.pop(feature_table().label_key)
    epochs_s = _fit(flights, options, arrays, label)
    return rate(len(label), epochs_s)


def fit_template_input(flights: Flights, options: FitOptions) -> Measured:
    """Train with `model.fit` on the input of TFX's templates.

    As `_input_fn` of tfx/experimental/templates/penguin/models/model.py.
    """
    import tensorflow_transform as tft
    from tfx.components.util import tfxio_utils
    from tfx.proto import example_gen_pb2
    from tfx_bsl.public import tfxio

    transform = tft.TFTransformOutput(str(flights.transform))
    # What FnArgs.data_accessor.tf_dataset_factory does for an Examples artifact.
    source = tfxio_utils.make_tfxio(
        file_pattern=flights.train_files,
        telemetry_descriptors=["Trainer"],
        payload_format=example_gen_pb2.FORMAT_TF_EXAMPLE,
        schema=transform.transformed_metadata.schema,
    )
    dataset = source.TensorFlowDataset(
        tfxio.TensorFlowDatasetOptions(
            batch_size=options.batch_size, label_key=feature_table().label_key
        )
    ).repeat()
    epochs_s = _fit(flights, options, dataset, None)
    return rate((options.steps_per_epoch or 0) * options.batch_size, epochs_s)


def _arrays(flights: Flights) -> dict[str, np.ndarray]:
    """Return the train split as [num_examples, 1] for each column."""
    import tensorflow_transform as tft

    from components.trainer.columns import layout
    from components.trainer.split import read_split

    transform = tft.TFTransformOutput(str(flights.transform))
    columns = layout(transform.transformed_feature_spec())
    with tempfile.TemporaryDirectory() as scratch:
        split = read_split(
            flights.train_files,
            columns,
            feature_table().label_key,
            "memory",
            Path(scratch),
        )
    return {
        name: np.ascontiguousarray(column)
        for name, column in columns.unpack(split.rows or {}).items()
    }


def _fit(flights: Flights, options: FitOptions, x: Any, y: Any) -> list[float]:
    """Fit and return the seconds of each epoch."""
    import keras
    import tensorflow_transform as tft

    from components.trainer.config import TrainerSettings
    from components.trainer.inputs import describe_inputs
    from components.trainer.model import LOSSES, METRICS
    from components.trainer.wide_and_deep import build_model

    class Clock(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.epochs_s: list[float] = []

        def on_epoch_begin(self, *_: object) -> None:
            self._begun = time.perf_counter()

        def on_epoch_end(self, *_: object) -> None:
            self.epochs_s.append(time.perf_counter() - self._begun)

    keras.config.set_dtype_policy(options.precision)
    keras.utils.set_random_seed(1)
    settings = TrainerSettings()
    inputs = describe_inputs(
        feature_table(), tft.TFTransformOutput(str(flights.transform)), settings
    )
    model = build_model(inputs)
    model.compile(
        optimizer=keras.optimizers.Adam(settings.learning_rate),
        loss=LOSSES[inputs.label_kind],
        weighted_metrics=list(METRICS[inputs.label_kind]),
        steps_per_execution=options.steps_per_execution,
        jit_compile=options.jit_compile,
    )
    clock = Clock()
    model.fit(
        x,
        y,
        batch_size=options.batch_size if y is not None else None,
        epochs=options.epochs,
        steps_per_epoch=options.steps_per_epoch,
        callbacks=[clock],
        verbose=0,
    )
    return clock.epochs_s
