"""ResNet-50 on synthetic images with Taxiway's training step, for devices to compare.

The same chunk is computed over and over: it measures devices, not the input.
"""

import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

REPLICAS = (1, 2, 4, 8)
WARM_UP_CALLS = 2


@dataclass(frozen=True)
class ResnetRun:
    """One place of the grid."""

    device: str
    """`cpu` or `gpu`."""
    precision: str
    xla: str
    """`on` or `off`."""
    replicas: int
    batch_size: int
    """Of one replica."""
    image_size: int = 224
    num_classes: int = 1_000
    chunk_steps: int = 4
    """Steps of one call."""
    num_calls: int = 5
    """Calls that are timed."""


def grid(num_gpus: int, *, tiny: bool) -> Iterator[ResnetRun]:
    """Yield each combination of device, precision, XLA, replicas and batch.

    Args:
        num_gpus: How many there are.
        tiny: A few steps on small images, on CPUs: to prove that it runs.
    """
    if tiny:
        for replicas in (1, 2):
            yield ResnetRun("cpu", "float32", "off", replicas, 4, 32, 10, 2, 2)
        return
    for precision, xla in product(("float32", "mixed_bfloat16"), ("off", "on")):
        yield ResnetRun("cpu", precision, xla, 1, 16, chunk_steps=1, num_calls=3)
    for replicas, precision, xla, batch_size in product(
        [count for count in REPLICAS if count <= num_gpus],
        ("float32", "tf32", "mixed_bfloat16"),
        ("off", "on"),
        (64, 256),
    ):
        yield ResnetRun("gpu", precision, xla, replicas, batch_size)


def train(run: ResnetRun) -> dict[str, Any]:
    """Train for a few steps and return images/s and the names of the devices.

    The process must see as many GPUs as there are replicas, and no more.

    Raises:
        RuntimeError: A step's loss is not finite.
    """
    from components.trainer import record

    with tempfile.TemporaryDirectory() as scratch:
        session = _session(run, Path(scratch))
        chunk = next(session.chunks(0, 0))
        seconds = []
        for _ in range(WARM_UP_CALLS + run.num_calls):
            begun = time.perf_counter()
            done = session.execute(chunk, 0, run.chunk_steps, (0.0, 0.0, 0.0))
            seconds.append(time.perf_counter() - begun)
            if done.bad.any():
                raise RuntimeError("a step's loss is not finite: its time says nothing")
    call_s = statistics.median(seconds[WARM_UP_CALLS:])
    num_images = run.chunk_steps * run.replicas * run.batch_size
    return {
        "images_per_s": round(num_images / call_s, 2),
        "names": record.device_names(run.device.upper(), run.replicas),
    }


def _session(run: ResnetRun, folder: Path) -> Any:
    import keras

    from components.features import FeatureTable
    from components.trainer import devices, precision
    from components.trainer.checkpoints import Checkpoints
    from components.trainer.config import TrainerSettings
    from components.trainer.session import Ground, Session

    table = FeatureTable.model_validate(
        {
            "label": {"column": "class", "kind": "multiclass"},
            "features": {"image": {"kind": "numeric"}},
        }
    )
    settings = TrainerSettings(
        batch_size=run.replicas * run.batch_size,
        device="gpu" if run.device == "gpu" else "cpu",
        cpu_devices=run.replicas if run.device == "cpu" else None,
        precision=run.precision,
        xla=run.xla,
        steps_per_execution=run.chunk_steps,
    )
    planned = devices.plan(settings, devices.take_inventory(), None)
    devices.configure(planned, deterministic=False)
    chosen = precision.decide(settings.precision, precision.capabilities())
    chosen.apply()
    keras.utils.set_random_seed(1)
    strategy = devices.create_strategy(planned, settings.all_reduce)
    splits = _splits(run, table.label_key)
    ground = Ground(settings, table, planned, strategy, chosen, splits, 1)
    return Session(ground, lambda: _model(run), Checkpoints(folder, 1))


def _splits(run: ResnetRun, label_key: str) -> Any:
    """Return one chunk of random images, as if read from files."""
    from components.trainer.columns import Column, Layout
    from components.trainer.session import Splits
    from components.trainer.split import Split

    shape = (run.image_size, run.image_size, 3)
    layout = Layout(
        (Column("image", "float32", 0, shape), Column(label_key, "int64", 0, (1,)))
    )
    count = run.chunk_steps * run.replicas * run.batch_size
    random = np.random.default_rng(1)
    rows = {
        "float32": random.random((count, layout.widths["float32"]), np.float32),
        "int64": random.integers(0, run.num_classes, (count, 1)),
    }
    split = Split(("synthetic",), (count,), 0.0, 1.0, "memory", rows)
    return Splits(layout, split, split)


def _model(run: ResnetRun) -> Any:
    import keras

    body = keras.applications.ResNet50(
        weights=None,
        include_top=False,
        pooling="avg",
        input_tensor=keras.Input((run.image_size, run.image_size, 3), name="image"),
    )
    output = keras.layers.Dense(run.num_classes, activation="softmax", dtype="float32")(
        body.output
    )
    model = keras.Model(body.input, output)
    model.compile(
        optimizer=keras.optimizers.SGD(1e-3, momentum=0.9),
        loss="sparse_categorical_crossentropy",
        metrics=["sparse_categorical_accuracy"],
    )
    return model
