"""Trains an epoch twice, by the Trainer and by `fit`: `trainer_as_keras.py FOLDER RESULT`.

Both see the same batches in the same order; the last one is incomplete.
"""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np

BATCH = 64
CHUNK = 4


class Unused(keras.layers.Layer):
    """Gives its input back, and has a weight that it does not use."""

    def build(self, shape: Any) -> None:
        self.unused = self.add_weight(shape=(3,), initializer="ones", name="unused")

    def call(self, x: Any) -> Any:
        return x


def network(*, unused: bool = False) -> keras.Model:
    keras.utils.set_random_seed(7)
    x, z = keras.Input((1,), name="x"), keras.Input((1,), name="z")
    hidden = keras.layers.Dense(4, "relu")(keras.ops.concatenate([x, z], -1))
    if unused:
        hidden = Unused()(hidden)
    return keras.Model([x, z], keras.layers.Dense(1, "sigmoid")(hidden))


def crossentropy(reduction: str) -> keras.Loss:
    return keras.losses.BinaryCrossentropy(reduction=reduction)


def with_metrics() -> keras.Model:
    model = network()
    f1 = keras.metrics.F1Score
    model.compile(
        keras.optimizers.SGD(0.1),
        "binary_crossentropy",
        metrics=["auc", f1(threshold=0.5), keras.metrics.R2Score()],
        weighted_metrics=["auc", f1(average="micro", threshold=0.5, name="micro")],
    )
    return model


def compiled(optimizer: Any, loss: Any, *, unused: bool = False, **more: Any) -> Any:
    model = network(unused=unused)
    model.compile(optimizer, loss, **more)
    return model


CASES: dict[str, Callable[[], keras.Model]] = {
    "metrics": with_metrics,
    "loss_weights": lambda: compiled(
        keras.optimizers.SGD(0.1), "binary_crossentropy", loss_weights=[0.25]
    ),
    "unused": lambda: compiled(
        keras.optimizers.AdamW(0.01, weight_decay=0.1),
        "binary_crossentropy",
        unused=True,
    ),
    "sum": lambda: compiled(keras.optimizers.SGD(0.001), crossentropy("sum")),
    "mean_with_sample_weight": lambda: compiled(
        keras.optimizers.SGD(0.1), crossentropy("mean_with_sample_weight")
    ),
}
CURRENT = {"case": "metrics"}


def build_model(_: Any) -> keras.Model:
    return CASES[CURRENT["case"]]()


def main(folder: Path, result: Path) -> None:
    from components.trainer import devices
    from components.trainer.config import TrainerSettings
    from components.trainer.devices import Inventory

    planned = devices.plan(TrainerSettings(strategy="one_device"), Inventory(0), None)
    devices.configure(planned, deterministic=True)
    strategy = devices.create_strategy(planned, "auto")
    sys.modules["trainer_as_keras"] = sys.modules["__main__"]
    found = {}
    for case, build in CASES.items():
        CURRENT["case"] = case
        session = _session(folder, planned, strategy)
        batches = list(_batches(session))
        ours = _epoch(session)
        model = build()
        history = model.fit(
            (batch for batch in batches), steps_per_epoch=len(batches), verbose=0
        ).history
        found[case] = {
            "ours": ours,
            "fit": {k: np.ravel(v[0]).tolist() for k, v in history.items()},
            "weights": [
                np.abs(np.asarray(a) - b).max().item()
                for a, b in zip(_weights(session), model.get_weights(), strict=True)
            ],
        }
    result.write_text(json.dumps(found))


def _session(folder: Path, planned: Any, strategy: Any) -> Any:
    from components.trainer.process import prepare
    from components.trainer.request import TrainingRequest

    request = {
        "table": json.loads((folder / "table.json").read_text()),
        "settings": {
            "model": "trainer_as_keras.build_model",
            "batch_size": BATCH,
            "steps_per_execution": CHUNK,
        },
        "train_files": [str(folder / "train" / "*")],
        "eval_files": [str(folder / "eval" / "*")],
        "transform_output": str(folder / "transform"),
        "work_dir": str(folder / "work-as-keras"),
        "export_dir": str(folder / "export"),
        "log_dir": str(folder / "log"),
        "project_root": str(folder),
    }
    parsed = TrainingRequest.model_validate_json(json.dumps(request))
    return prepare(parsed, planned, strategy).session


def _batches(session: Any) -> Iterator[tuple[Any, ...]]:
    """Yield an epoch's batches as `fit` takes them: only what is real of the last."""
    chunks = session.chunks(0, 0)
    left = session.plan.steps_per_epoch
    while left:
        chunk = next(chunks)
        for step in range(min(CHUNK, left)):
            batch = {name: value[step, 0] for name, value in chunk.items()}
            read = session.reader.read({k: v for k, v in batch.items() if k != "row"})
            real = np.asarray(read.mask) > 0
            inputs = tuple(np.asarray(read.inputs[name])[real] for name in ("x", "z"))
            yield inputs, np.asarray(read.label)[real], np.asarray(read.weight)[real]
        left -= min(CHUNK, left)


def _epoch(session: Any) -> dict[str, float]:
    chunks = session.chunks(0, 0)
    left = session.plan.steps_per_epoch
    while left:
        steps = min(CHUNK, left)
        session.execute(next(chunks), 0, steps, (0.0, 0.0, 0.0))
        left -= steps
    measured: dict[str, float] = session.epoch_metrics()
    return measured


def _weights(session: Any) -> list[Any]:
    return [v.numpy() for v in session.model.weights]


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
