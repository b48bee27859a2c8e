"""Trains the cells of the table in docs/trainer.md; run as a process of its own.

`python trainer_cells.py FOLDER RESULT KIND…`: KIND is `one_device`, `mirrored` or
`multi_worker` (with TF_CONFIG). Cells share the process: imports, devices and, for
several workers, the strategy cost more than a cell.
"""

import itertools
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
XLA = ("off", "on")
ACCUMULATION = (1, 4)
STEPS = 6
BATCH = 64


def build_model(inputs: Any) -> Any:
    """Build wide-and-deep with an optimizer whose state is the first gradient."""
    import keras

    from components.trainer import wide_and_deep

    keras.utils.set_random_seed(7)
    model = wide_and_deep.build_model(inputs)
    optimizer = keras.optimizers.SGD(0.5, momentum=0.9)
    model.compile(optimizer, "binary_crossentropy", weighted_metrics=["auc"])
    return model


def cell_names(kinds: list[str]) -> Iterator[tuple[str, str, str, int]]:
    yield from itertools.product(kinds, PRECISIONS, XLA, ACCUMULATION)


def main(folder: Path, result: Path, kinds: list[str]) -> None:
    from components.trainer import devices
    from components.trainer.cluster import find_cluster
    from components.trainer.config import TrainerSettings
    from components.trainer.devices import Inventory

    cluster = find_cluster((), os.environ)
    count = 1 if cluster else 2
    plans = {
        kind: devices.plan(
            TrainerSettings(
                strategy=kind, cpu_devices=1 if kind == "one_device" else count
            ),
            Inventory(0),
            cluster,
        )
        for kind in kinds
    }
    devices.configure(plans[kinds[-1]], deterministic=True)
    strategies = {
        kind: devices.create_strategy(plan, "auto") for kind, plan in plans.items()
    }
    found = {}
    for kind, precision, xla, accumulation in cell_names(kinds):
        key = f"{kind}/{precision}/{xla}/{accumulation}"
        found[key] = _train_cell(
            folder, plans[kind], strategies[kind], (precision, xla, accumulation)
        )
        print(key, found[key]["losses"], flush=True)
    if cluster is None or cluster.is_chief:
        result.write_text(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)


def _train_cell(
    folder: Path, plan: Any, strategy: Any, choice: tuple[str, str, int]
) -> dict[str, Any]:
    from components.trainer.process import prepare
    from components.trainer.request import TrainingRequest

    precision, xla, accumulation = choice
    request = TrainingRequest.model_validate_json(
        json.dumps(
            {
                "table": json.loads((folder / "table.json").read_text()),
                "settings": {
                    "model": f"{Path(__file__).stem}.build_model",
                    "hidden_units": [8],
                    "batch_size": BATCH,
                    "precision": precision,
                    "xla": xla,
                    "accumulation_steps": accumulation,
                    "steps_per_execution": 2,
                },
                "train_files": [str(folder / "train" / "*")],
                "eval_files": [str(folder / "eval" / "*")],
                "transform_output": str(folder / "transform"),
                "work_dir": str(folder / "work"),
                "export_dir": str(folder / "export"),
                "log_dir": str(folder / "log"),
                "project_root": str(folder),
            }
        )
    )
    session = prepare(request, plan, strategy).session
    gradients = _gradients(session)
    losses: list[float] = []
    chunks = session.chunks(0, 0)
    while len(losses) < STEPS:
        done = session.execute(next(chunks), 0, 2, (0.0, 0.0, 0.0))
        losses += [float(value) for value in done.loss]
    return {
        "losses": losses,
        "gradients": gradients,
        "equal": _replicas_are_equal(session),
    }


def _gradients(session: Any) -> list[list[float]]:
    """Return the gradients of the last, incomplete batch of an epoch.

    After one step from rest SGD's momentum is the negative gradient times the rate.
    The state is put back afterwards.
    """
    plan = session.plan
    before = {name: value.numpy() for name, value in session.state.named().items()}
    last = plan.steps_per_epoch - 1
    chunk = next(session.chunks(0, last // plan.chunk_steps))
    place = last % plan.chunk_steps
    session.execute(chunk, place, place + 1, (0.0, 0.0, 0.0))
    import numpy as np

    momenta = np.concatenate(
        [
            session.state.components(variable)[0].numpy().ravel() / -0.5
            for variable in session.state.variables["optimizer"]
            if variable.path.endswith("momentum")
        ]
    )
    sizes = [np.prod(v.shape, dtype=int) for v in session.state.variables["trainable"]]
    ends = np.cumsum(sizes)[:-1]
    session.state.restore(before)
    session.epoch_metrics()
    return [part.tolist() for part in np.split(momenta, ends)]


def _replicas_are_equal(session: Any) -> bool:
    import numpy as np

    return all(
        np.array_equal(copy.numpy(), copies[0].numpy())
        for variable in session.state.variables["trainable"]
        for copies in [session.state.components(variable)]
        for copy in copies
    )


if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parent)]
    os.environ["TF_USE_LEGACY_KERAS"] = "0"
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
