"""The training process: configures devices first, then trains, saves and exports.

It runs one attempt and says how it ended, through a pipe and by its exit code; in a
file for the parents of workers on other machines. What to do about it is for its parent
to decide (supervisor.py).
"""

import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np
import tensorflow_transform as tft

from components.errors import ModelError
from components.trainer import devices, precision, record, servers
from components.trainer.checkpoints import Checkpoints, Progress
from components.trainer.cluster import Cluster, find_cluster
from components.trainer.columns import layout
from components.trainer.config import RECORD_FILE
from components.trainer.devices import DevicePlan
from components.trainer.ending import ending
from components.trainer.export import export
from components.trainer.inputs import ModelInputs, describe_inputs
from components.trainer.loop import Loop, Schedule
from components.trainer.model import build
from components.trainer.observer import TensorBoard, TrainingObserver
from components.trainer.parameter_server import ServedTraining
from components.trainer.record import TrainingRecord
from components.trainer.request import (
    CHECKPOINT_FOLDER,
    STARTED_FILE,
    SUMMARY_FILE,
    ExitCode,
    Outcome,
    TrainingRequest,
    write_atomically,
    write_json,
)
from components.trainer.session import Ground, Session, Splits
from components.trainer.split import read_split
from components.trainer.summary import summarise, verdict

log = logging.getLogger(__name__)


class Stop:
    """Remembers that the process was asked to stop."""

    def __init__(self) -> None:
        self.asked = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)

    def _ask(self, *_: object) -> None:
        self.asked = True
        log.warning("asked to stop: saving after the current steps")


def attempt(request: TrainingRequest) -> Outcome:
    """Train once, from the newest checkpoint on, and say how it ended."""
    stop = Stop()
    try:
        step = train(request, lambda: stop.asked)
    except (Exception, SystemExit) as error:  # noqa: BLE001  told by its outcome
        return ending(error, request)
    return Outcome(status="done", step=step)


def main(request: TrainingRequest, tell: Callable[[Outcome], None]) -> None:
    """Train, tell the parent the outcome and exit with its code."""
    if str(request.project_root) not in sys.path:
        sys.path.append(str(request.project_root))
    logging.basicConfig(
        level=logging.INFO,
        format="%(levelname)s %(name)s: %(message)s",
        force=True,  # absl has set up the root logger in the fork server
    )
    logging.getLogger("absl").setLevel(logging.WARNING)
    code = ExitCode.FAILED
    try:
        outcome = attempt(request)
        code = outcome.exit_code
        tell(outcome)
        _leave(outcome, request)
        with contextlib.suppress(OSError):  # the log's disk is full
            sys.stdout.flush()
            sys.stderr.flush()
    finally:
        # Not sys.exit: collective operations of a worker that is gone would be waited
        # for.
        os._exit(code)


def _leave(outcome: Outcome, request: TrainingRequest) -> None:
    """Leave the outcome for the parents of workers on other machines."""
    try:
        outcome.write(request.work_dir, _index(request))
    except OSError as error:
        log.warning("other workers are not told of the end: %s", error)


def train(request: TrainingRequest, wants_stop: Callable[[], bool]) -> int:
    """Train to the end, export, and return the number of steps.

    Raises:
        Preempted: It was asked to stop, and has saved its state.
        TaxiwayError: The data, the settings or the model are unusable.
        tf.errors.ResourceExhaustedError: A device has too little memory.
    """
    settings = request.settings
    planned = devices.plan(settings, devices.take_inventory(), _cluster(request))
    # Before anything touches a device, and before data is read in vain.
    micro = devices.micro_batch_size(
        settings.batch_size, request.accumulation, planned.num_replicas
    )
    request.work_dir.mkdir(parents=True, exist_ok=True)
    write_atomically(request.work_dir / STARTED_FILE, str(micro))
    devices.configure(planned, deterministic=settings.deterministic)
    if planned.serves:
        servers.serve(planned)
        return 0
    served = None
    if planned.kind == "parameter_server":
        served = servers.connect(planned, wants_stop)
    strategy = devices.create_strategy(planned, settings.all_reduce)
    prepared = prepare(request, planned, strategy, wants_stop)
    energy = record.read_energy()
    machine = None
    if served is not None:
        machine = ServedTraining(
            prepared.session, served, lambda: build(prepared.inputs), wants_stop
        )
    progress = _run(request, prepared.session, machine, wants_stop)
    if planned.is_chief:
        _finish(request, prepared, progress, energy)
    return progress.step


def _index(request: TrainingRequest) -> int:
    """Return the number of this process among all; 0 where nobody can say."""
    try:
        cluster = _cluster(request)
    except ModelError:  # the attempt has said so already
        return 0
    return 0 if cluster is None else cluster.index


def _cluster(request: TrainingRequest) -> Cluster | None:
    served = request.settings.strategy == "parameter_server"
    return find_cluster(request.settings.workers, os.environ, served=served)


@dataclass(frozen=True)
class Prepared:
    """A session, and what its model was built from."""

    session: Session
    inputs: ModelInputs
    transform: tft.TFTransformOutput


def prepare(
    request: TrainingRequest,
    planned: DevicePlan,
    strategy: Any,
    wants_stop: Callable[[], bool] = lambda: False,
) -> Prepared:
    """Read the data, build the model on its devices and trace its step."""
    settings = request.settings
    chosen = precision.decide(settings.precision, precision.capabilities())
    chosen.apply()
    keras.utils.set_random_seed(settings.seed)
    log.info("devices: %s; precision: %s", planned, chosen.name)
    transform = tft.TFTransformOutput(request.transform_output)
    splits = _read(request, transform)
    ground = Ground(
        settings,
        request.table,
        planned,
        strategy,
        chosen,
        splits,
        request.accumulation,
        wants_stop,
    )
    inputs = describe_inputs(request.table, transform, settings, splits.train)
    checkpoints = Checkpoints(
        request.work_dir / CHECKPOINT_FOLDER, settings.checkpoints.keep
    )
    session = Session(ground, lambda: build(inputs), checkpoints)
    for line in devices.placement(
        [
            (variable.path, session.state.components(variable))
            for variable in session.state.variables["trainable"]
        ]
    ):
        log.info("placed: %s", line)
    return Prepared(session, inputs, transform)


def _read(request: TrainingRequest, transform: tft.TFTransformOutput) -> Splits:
    columns = layout(transform.transformed_feature_spec())
    begun = time.monotonic()
    cache = request.settings.input.cache
    # Workers of parameter servers read the train split themselves, as does a service.
    served = request.settings.strategy == "parameter_server"
    elsewhere = served or request.settings.input.service is not None
    train, evaluation = (
        read_split(
            patterns,
            columns,
            request.table.label_key,
            wanted,
            request.work_dir,
        )
        for patterns, wanted in (
            (request.train_files, "none" if elsewhere else cache),
            (request.eval_files, cache),
        )
    )
    log.info(
        "read %d and %d examples in %.1f s; kept: %s, %d bytes each",
        train.num_examples,
        evaluation.num_examples,
        time.monotonic() - begun,
        train.cache,
        columns.row_bytes,
    )
    return Splits(columns, train, evaluation)


def _run(
    request: TrainingRequest,
    session: Session,
    served: ServedTraining | None,
    wants_stop: Callable[[], bool],
) -> Progress:
    settings = request.settings
    machine = served or session
    schedule = Schedule(settings, machine.plan)
    progress = machine.restore_latest()
    if progress.step:
        log.info("going on after step %d", progress.step)
    progress = progress.computed_in(session.plan.micro_batch_size)
    board = None
    if settings.tensorboard.enabled and session.ground.devices.is_chief:
        board = TensorBoard(
            request.log_dir / "tensorboard", settings.tensorboard, session.histograms
        )
        board.graph(session.step.functions[0].graph)
    observer = TrainingObserver(
        schedule,
        time.monotonic,
        request.progress_file if session.ground.devices.is_chief else None,
        board,
    )
    try:
        progress = Loop(machine, observer, schedule, time.monotonic, wants_stop).run(
            progress
        )
    finally:
        if board is not None:
            board.close()
    # What takes a while and may fail comes now: an export, of a model built anew.
    if session.saved is None or session.saved.step != progress.step:
        machine.save(progress)
    if served is not None:
        progress = served.with_waits(progress)
    if session.step.num_traces > len(session.step.functions):
        log.warning(
            "the training step was traced %d times instead of %d: something in the "
            "model changes its shapes",
            session.step.num_traces,
            len(session.step.functions),
        )
    if settings.wants_best:
        session.restore_best()
    final = (progress.step, session.digest())
    if progress.digests[-1:] == (final,):
        return progress
    return replace(progress, digests=(*progress.digests, final))


def _finish(
    request: TrainingRequest,
    prepared: Prepared,
    progress: Progress,
    energy: float | None,
) -> None:
    session = prepared.session
    made = _record(request, session, progress, energy)
    log.info("%s", verdict(progress))
    model = _serving_model(
        prepared.inputs, session.state.weights(), session.state.other_weights()
    )
    export(model, prepared.transform, request.table, request.export_dir)
    write_atomically(request.export_dir / RECORD_FILE, made.model_dump_json(indent=2))
    request.log_dir.mkdir(parents=True, exist_ok=True)
    write_json(
        request.log_dir / SUMMARY_FILE,
        summarise(made, progress, exports_best=session.holds_best),
    )


def _serving_model(
    inputs: ModelInputs, weights: list[np.ndarray], others: list[np.ndarray]
) -> keras.Model:
    """Build the model once more, in float32 and on one device, with these weights."""
    keras.config.set_dtype_policy("float32")
    model = build(inputs)
    for variables, values in (
        (model.trainable_variables, weights),
        (model.non_trainable_variables, others),
    ):
        if [tuple(v.shape) for v in variables] != [v.shape for v in values]:
            raise ModelError(
                "trainer.model: the function builds another model each time it is "
                "called, allowed: one that depends on its argument alone"
            )
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
    return model


def _record(
    request: TrainingRequest, session: Session, progress: Progress, energy: float | None
) -> TrainingRecord:
    ground = session.ground
    settings = request.settings
    commit, dirty = record.git_state(request.project_root)
    now = record.read_energy()
    digests = request.digests or record.digests(request)
    gpus = ground.devices.num_replicas if ground.devices.device_type == "GPU" else 0
    return TrainingRecord(
        seed=settings.seed,
        deterministic=settings.deterministic,
        git_commit=commit,
        git_dirty=dirty,
        data_digest=digests.data,
        transform_digest=digests.transform,
        libraries=record.libraries(),
        devices=record.device_names(
            ground.devices.device_type, ground.devices.num_devices
        ),
        strategy=str(ground.devices),
        num_replicas=ground.devices.num_replicas,
        precision=ground.precision.name,
        xla=session.xla,
        accumulation=session.plan.accumulation,
        micro_batch_size=session.plan.micro_batch_size,
        num_steps=progress.step,
        seconds=round(progress.all_s, 3),
        gpu_hours=round(progress.all_s * gpus / 3600, 6),
        energy_joules=None if energy is None or now is None else round(now - energy, 1),
        weight_digests=progress.digests,
        micro_batches=progress.micro_batches,
        request=request,
    )
