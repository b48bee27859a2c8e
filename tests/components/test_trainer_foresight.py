"""What a training would run on is known before it is started."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from components.errors import ModelError
from components.trainer import devices, precision
from components.trainer.devices import Inventory
from components.trainer.foresight import foresee
from components.trainer.record import TrainingRecord
from components.trainer.request import TrainingRequest


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(devices, "take_inventory", lambda: Inventory(2))
    monkeypatch.setattr(precision, "capabilities", lambda: [(9, 0), (9, 0)])
    monkeypatch.setattr(
        "components.trainer.foresight.device_names", lambda kind, count: (kind,) * count
    )
    return


def request(divisor: int = 1, **settings: Any) -> TrainingRequest:
    return TrainingRequest.model_validate(
        {
            "table": {
                "label": {"column": "y", "kind": "binary"},
                "features": {"x": {"kind": "numeric"}},
            },
            "settings": {"batch_size": 64, **settings},
            "train_files": ["t*"],
            "eval_files": ["e*"],
            "transform_output": "transform",
            "work_dir": Path("/run"),
            "export_dir": Path("/run"),
            "log_dir": Path("/run"),
            "project_root": Path("/run"),
            "micro_batch_divisor": divisor,
        }
    )


def test_its_fields_are_those_of_the_record() -> None:
    assert foresee(request()).keys() < TrainingRecord.model_fields.keys()


def test_a_machine_without_gpus_trains_in_float32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(devices, "take_inventory", lambda: Inventory(0))
    found = foresee(request(divisor=4, accumulation_steps=2))
    assert found["strategy"] == "one_device on CPU:0"
    assert (found["num_replicas"], found["precision"]) == (1, "float32")
    assert (found["accumulation"], found["micro_batch_size"]) == (8, 8)


@pytest.mark.usefixtures("two_gpus")
def test_gpus_are_found_with_what_they_compute_in() -> None:
    assert foresee(request()) == {
        "devices": ("GPU", "GPU"),
        "strategy": "mirrored on GPU:0, GPU:1",
        "num_replicas": 2,
        "precision": "mixed_bfloat16",
        "accumulation": 1,
        "micro_batch_size": 32,
    }


@pytest.mark.usefixtures("two_gpus")
def test_gpus_that_are_not_used_do_not_count() -> None:
    found = foresee(request(device="cpu"))
    assert (found["devices"], found["precision"]) == (("CPU",), "float32")


def test_workers_on_this_machine_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "take_inventory", lambda: Inventory(0))
    found = foresee(request(num_local_workers=4))
    assert found["strategy"] == "multi_worker, worker 1 of 4, the chief, on CPU:0"
    assert (found["num_replicas"], found["micro_batch_size"]) == (4, 16)
    assert "TF_CONFIG" not in os.environ


def test_workers_elsewhere_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {
        "cluster": {"worker": ["a:1", "b:1"]},
        "task": {"type": "worker", "index": 0},
    }
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    monkeypatch.setattr(devices, "take_inventory", lambda: Inventory(0))
    assert foresee(request())["num_replicas"] == 2


@pytest.mark.usefixtures("two_gpus")
def test_a_batch_that_does_not_divide_here_is_refused_at_once() -> None:
    with pytest.raises(ModelError, match="got 63, which does not divide by 2"):
        foresee(request(batch_size=63))
