"""Every combination of devices, precision, XLA and accumulation trains alike.

The cells are trained by trainer_cells.py in three processes: one with two logical CPU
devices, two real workers over loopback. The page docs/trainer.md shows the table that
is made here.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trainer_cells import ACCUMULATION, PRECISIONS, XLA, cell_names

from components.trainer.cluster import Cluster
from components.trainer.processes import free_ports

pytestmark = pytest.mark.integration

SCRIPT = Path(__file__).with_name("trainer_cells.py")
PAGE = Path(__file__).parents[2] / "docs" / "trainer.md"
KINDS = {
    "one_device": "one device",
    "mirrored": "mirrored, 2 replicas",
    "multi_worker": "multi-worker, 2 processes",
}
LOSS_TOLERANCE = {"float32": 1e-5, "mixed_bfloat16": 1e-2, "mixed_float16": 1e-3}
"""Largest relative difference from float32 on one device, over the first steps."""
GRADIENT_TOLERANCE = 1e-5
REFERENCE = "one_device/float32/off/1"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
RENEW = "TAXIWAY_RENEW_TRAINER_TABLE"
Cells = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def cells(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Cells:
    folder = tmp_path_factory.mktemp("cells")
    addresses = tuple(f"127.0.0.1:{port}" for port in free_ports(2))
    workers = [Cluster(addresses, index).to_tf_config() for index in range(2)]
    plans = [("alone", ["one_device", "mirrored"], None)] + [
        (f"worker{index}", ["multi_worker"], config)
        for index, config in enumerate(workers)
    ]
    running = []
    for name, kinds, config in plans:
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "1"}
        environment.pop("TF_CONFIG", None)
        if config is not None:
            environment["TF_CONFIG"] = config
        with (folder / f"{name}.log").open("wb") as log:
            command = [sys.executable, SCRIPT, small_data, folder / f"{name}.json"]
            running.append(
                subprocess.Popen(
                    [*command, *kinds], env=environment, stdout=log, stderr=log
                )
            )
    for process, (name, _, _) in zip(running, plans, strict=True):
        code = process.wait(timeout=900)
        assert code == 0, (folder / f"{name}.log").read_text()[-3000:]
    return {
        **json.loads((folder / "alone.json").read_text()),
        **json.loads((folder / "worker0.json").read_text()),
    }


def loss_difference(cells: Cells, key: str) -> float:
    losses, expected = (np.array(cells[k]["losses"]) for k in (key, REFERENCE))
    return float(np.max(np.abs(losses - expected) / np.abs(expected)))


def gradient_difference(cells: Cells, key: str) -> float:
    """Return the largest relative difference, over variables, in the Euclidean norm."""
    return max(
        float(np.linalg.norm(np.subtract(a, b)) / np.linalg.norm(b))
        for a, b in zip(
            cells[key]["gradients"], cells[REFERENCE]["gradients"], strict=True
        )
    )


def all_cells() -> Iterator[str]:
    for kind, precision, xla, accumulation in cell_names(list(KINDS)):
        yield f"{kind}/{precision}/{xla}/{accumulation}"


@pytest.mark.parametrize("key", list(all_cells()))
def test_a_cell_trains_as_float32_on_one_device_does(cells: Cells, key: str) -> None:
    precision = key.split("/")[1]
    assert loss_difference(cells, key) <= LOSS_TOLERANCE[precision]
    losses = cells[key]["losses"]
    assert losses[-1] < losses[0] / 2
    assert cells[key]["equal"], "the replicas' weights differ"


@pytest.mark.parametrize(
    "key", [key for key in all_cells() if key.split("/")[1] == "float32"]
)
def test_the_gradient_of_a_batch_does_not_depend_on_how_it_is_cut(
    cells: Cells, key: str
) -> None:
    """An incomplete last batch with sample weights, on 1 or 2 replicas, in 1 or 4."""
    assert gradient_difference(cells, key) <= GRADIENT_TOLERANCE


def table(cells: Cells) -> str:
    heads = [f"XLA {xla}, accumulation {n}" for xla in XLA for n in ACCUMULATION]
    lines = [
        "| devices | precision | " + " | ".join(heads) + " |",
        "|---" * (2 + len(heads)) + "|",
    ]
    for kind, words in KINDS.items():
        for precision in PRECISIONS:
            entries = [
                _entry(cells, f"{kind}/{precision}/{xla}/{n}")
                for xla in XLA
                for n in ACCUMULATION
            ]
            lines.append(f"| {words} | {precision} | " + " | ".join(entries) + " |")
    return "\n".join(lines)


def _entry(cells: Cells, key: str) -> str:
    tolerance = LOSS_TOLERANCE[key.split("/")[1]]
    difference = loss_difference(cells, key)
    return f"≤ {tolerance:g}" if difference <= tolerance else f"**{difference:.1g}**"


def test_the_page_shows_the_table(cells: Cells) -> None:
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    expected = f"{before}{BEGIN}\n{table(cells)}\n{END}{after}"
    if RENEW in os.environ:
        PAGE.write_text(expected)
    assert text == expected or RENEW in os.environ, (
        f"docs/trainer.md is stale; renew it with: {RENEW}=1 python -m pytest "
        f"{Path(__file__).relative_to(PAGE.parents[1])}"
    )
