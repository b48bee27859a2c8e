"""Workers train on parameter servers; who is lost, and what is not possible."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from pydantic import ValidationError

from components.errors import ModelError
from components.trainer import devices, servers
from components.trainer.checkpoints import Progress
from components.trainer.cluster import Cluster, find_cluster
from components.trainer.config import TrainerSettings
from components.trainer.devices import Inventory
from components.trainer.loop import Preempted
from components.trainer.parameter_server import ServersLost, tells_of_loss
from components.trainer.served_step import deserialized, serialized, settle
from components.trainer.servers import Surroundings
from components.trainer.step import Part

SCRIPT = Path(__file__).with_name("trainer_served.py")
CLUSTER = Cluster(("c:1", "w:1", "w:2"), 0, True, ("p:1", "p:2"))
EPOCHS = 6
BATCHES = 47
"""Of 64 examples, in an epoch of `small_data`."""


class Run:
    """One process of trainer_served.py, and the processes that it starts."""

    def __init__(self, data: Path, folder: Path, name: str, **settings: Any) -> None:
        self.export_dir = folder / "export"
        self.progress_file = folder / f"{name}.progress"
        self._out, self._log = folder / f"{name}.out", folder / f"{name}.log"
        request = {
            "table": json.loads((data / "table.json").read_text()),
            "settings": {
                "hidden_units": [8],
                "batch_size": 64,
                "learning_rate": 0.01,
                "tensorboard": {"enabled": False},
                **settings,
            },
            "train_files": [str(data / "train" / "*")],
            "eval_files": [str(data / "eval" / "*")],
            "transform_output": str(data / "transform"),
            "work_dir": str(folder / "work"),
            "export_dir": str(self.export_dir),
            "log_dir": str(folder / "log"),
            "project_root": str(folder),
            "progress_file": str(self.progress_file),
        }
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "1"}
        environment.pop("TF_CONFIG", None)
        with self._out.open("wb") as out, self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, SCRIPT, json.dumps(request)],
                stdout=out,
                stderr=log,
                env=environment,
            )

    def step_reaches(self, wanted: int) -> int:
        """Wait for a step and return the one that it has come to."""
        while self.process.poll() is None:
            if self.progress_file.exists():
                [step] = re.findall(r"^step ([\d,]+) ", self.progress_file.read_text())
                if int(step.replace(",", "")) >= wanted:
                    return int(step.replace(",", ""))
            time.sleep(0.05)
        raise AssertionError(self._log.read_text()[-5_000:])

    def kill(self, who: str) -> None:
        [pid] = re.findall(rf"{who} serves at .*, process (\d+)", self._log.read_text())
        os.kill(int(pid), signal.SIGKILL)

    def answer(self) -> dict[str, Any]:
        assert self.process.wait() == 0, self._log.read_text()[-5_000:]
        answer: dict[str, Any] = json.loads(self._out.read_text().splitlines()[-1])
        return answer


def predictions(model: Path) -> list[float]:
    """Ask for an example that is likely positive, and for one that is likely not."""
    loaded: Any = tf.saved_model.load(str(model))
    examples = [example(2.0, -1.0, "Rome"), example(-2.0, 1.0, "Bonn")]
    found = loaded.signatures["serving_default"](examples=tf.constant(examples))
    [values] = [value for value in found.values() if value.dtype == tf.float32]
    return [float(value) for value in tf.reshape(values, [-1])]


def example(x: float, z: float, city: str) -> bytes:
    example = tf.train.Example()
    example.features.feature["x"].float_list.value.append(x)
    example.features.feature["z"].float_list.value.append(z)
    example.features.feature["city"].bytes_list.value.append(city.encode())
    return bytes(example.SerializeToString())


@pytest.fixture
def start(small_data: Path, tmp_path: Path) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def begin(folder: str, name: str, **settings: Any) -> Run:
        (tmp_path / folder).mkdir(exist_ok=True)
        runs.append(Run(small_data, tmp_path / folder, name, **settings))
        return runs[-1]

    yield begin
    for run in runs:  # what it started ends with it
        run.process.kill()
        run.process.wait()


@pytest.mark.integration
def test_training_survives_a_worker_and_goes_on_after_a_server_was_lost(
    start: Callable[..., Run],
) -> None:
    settings = {
        "strategy": "parameter_server",
        "num_local_workers": 2,
        "num_local_servers": 1,
        "epochs": EPOCHS,
        "checkpoints": {"every_steps": 20},
    }
    first = start("run", "first", **settings)
    killed_at = first.step_reaches(60)
    first.kill("ps 0")
    stopped = first.answer()["stopped"]
    assert re.search(r"are gone \(checkpoints: the last one is of step \d+\)", stopped)
    assert stopped.endswith("run again to go on")

    second = start("run", "second", **settings)
    resumed_at = second.step_reaches(1)
    second.kill("worker 1")
    answer = second.answer()
    assert 20 < resumed_at < EPOCHS * BATCHES
    assert killed_at < EPOCHS * BATCHES

    summary = answer["summary"]
    assert summary["steps"] == EPOCHS * BATCHES
    history = summary["history"]
    assert len(history["loss"]) == EPOCHS
    assert history["loss"][-1] < history["loss"][0] - 0.1
    assert history["val_auc"][-1] > 0.8
    assert summary["strategy"].startswith("parameter_server, workers: 2, servers: 1")
    likely, unlikely = predictions(second.export_dir)
    assert likely > 0.7
    assert unlikely < 0.3


@pytest.mark.integration
def test_one_worker_trains_as_one_device_does(start: Callable[..., Run]) -> None:
    common = {
        "accumulation_steps": 4,
        "clip_norm": 0.5,
        "dropout": 0.2,
        "input": {"cache": "none"},
    }
    alone = start("alone", "alone", strategy="one_device", **common)
    served = start(
        "served",
        "served",
        strategy="parameter_server",
        num_local_workers=1,
        num_local_servers=2,
        **common,
    )
    expected, found = (run.answer()["summary"]["history"] for run in (alone, served))
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"deterministic": True},
            (
                "deterministic does not go with strategy parameter_server: workers change "
                "the weights in an order that differs from run to run"
            ),
        ),
        (
            {"precision": "mixed_float16"},
            "precision mixed_float16 does not go with strategy parameter_server",
        ),
        (
            {"ema_momentum": 0.9},
            "ema_momentum does not go with strategy parameter_server: an average",
        ),
        (
            {"input": {"service": "grpc://a:1"}},
            "input.service does not go with strategy parameter_server",
        ),
        (
            {"steps_per_execution": 4},
            "steps_per_execution does not go with strategy parameter_server",
        ),
        ({"all_reduce": "ring"}, "all_reduce does not go with strategy"),
        (
            {"num_local_workers": 2},
            (
                "strategy parameter_server takes num_local_workers and num_local_servers "
                "together: set both, or none and TF_CONFIG"
            ),
        ),
        ({"num_local_servers": 1}, "num_local_workers and num_local_servers together"),
        ({"workers": ["a:1"]}, "workers are for strategy multi_worker, got strategy"),
        (
            {
                "strategy": "multi_worker",
                "num_local_workers": 2,
                "num_local_servers": 1,
            },
            (
                "num_local_servers is for strategy parameter_server, got strategy "
                "multi_worker"
            ),
        ),
    ],
)
def test_settings_that_servers_rule_out_are_refused(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=re.escape(message)):
        TrainerSettings.model_validate({"strategy": "parameter_server", **given})


@pytest.mark.parametrize(
    ("index", "task"),
    [
        (0, ("chief", 0)),
        (1, ("worker", 0)),
        (2, ("worker", 1)),
        (3, ("ps", 0)),
        (4, ("ps", 1)),
    ],
)
def test_tf_config_tells_chief_workers_and_servers(
    index: int, task: tuple[str, int]
) -> None:
    cluster = Cluster(CLUSTER.addresses, index, True, CLUSTER.servers)
    assert cluster.task == task
    assert cluster.is_chief == (task == ("chief", 0))
    config = {"TF_CONFIG": cluster.to_tf_config()}
    assert find_cluster((), config, served=True) == cluster


@pytest.mark.parametrize(
    ("jobs", "task", "message"),
    [
        (
            {"worker": ["w:1"], "ps": ["p:1"]},
            ("worker", 0),
            (
                "TF_CONFIG cluster.chief: got none, allowed with trainer.strategy "
                "parameter_server: one"
            ),
        ),
        (
            {"chief": ["c:1"], "worker": ["w:1"]},
            ("chief", 0),
            (
                "TF_CONFIG cluster.ps: got none, allowed with trainer.strategy "
                "parameter_server: some"
            ),
        ),
        (
            {"chief": ["c:1"], "ps": ["p:1"]},
            ("chief", 0),
            "TF_CONFIG cluster.worker: got none",
        ),
        (
            {"chief": ["c:1"], "worker": ["w:1"], "ps": ["p:1"]},
            ("evaluator", 0),
            (
                'TF_CONFIG task.type: got "evaluator", allowed: "chief", "worker", "ps"; '
                "the chief of a parameter_server run evaluates"
            ),
        ),
        (
            {"chief": ["c:1"], "worker": ["w:1"], "ps": ["p:1"]},
            ("ps", 1),
            "TF_CONFIG task.index: got 1 for a ps, allowed: 0 to 0",
        ),
    ],
)
def test_a_cluster_that_lacks_somebody_is_refused(
    jobs: dict[str, list[str]], task: tuple[str, int], message: str
) -> None:
    config = {"cluster": jobs, "task": {"type": task[0], "index": task[1]}}
    with pytest.raises(ModelError, match=re.escape(message)):
        find_cluster((), {"TF_CONFIG": json.dumps(config)}, served=True)


def plan(cluster: Cluster | None, **settings: Any) -> devices.DevicePlan:
    return devices.plan(
        TrainerSettings(strategy="parameter_server", **settings), Inventory(2), cluster
    )


def test_without_a_cluster_it_is_refused() -> None:
    with pytest.raises(ModelError, match="nothing says who the workers and servers"):
        plan(None)


def test_the_chief_trains_alone_and_the_others_serve() -> None:
    plans = [
        plan(Cluster(CLUSTER.addresses, index, True, CLUSTER.servers))
        for index in range(5)
    ]
    assert [each.is_chief for each in plans] == [True] + [False] * 4
    assert [each.serves for each in plans] == [False] + [True] * 4
    assert {each.num_replicas for each in plans} == {1}
    assert str(plans[0]) == ("parameter_server, workers: 2, servers: 2, chief on GPU:0")


def test_a_server_needs_no_gpu() -> None:
    cluster = Cluster(CLUSTER.addresses, 3, True, CLUSTER.servers)
    settings = TrainerSettings(strategy="parameter_server", device="gpu")
    assert devices.plan(settings, Inventory(0), cluster).device_type == "CPU"
    worker = Cluster(CLUSTER.addresses, 1, True, CLUSTER.servers)
    with pytest.raises(ModelError, match="got gpu, but TensorFlow sees none"):
        devices.plan(settings, Inventory(0), worker)


class World:
    """Addresses that answer from some second on, until another; a clock that waits."""

    def __init__(self, **spans: tuple[float, float]) -> None:
        self._spans = spans
        self.now = 0.0

    def surroundings(self) -> Surroundings:
        return Surroundings(self._answers, lambda: self.now, self._sleep)

    def _answers(self, address: str) -> bool:
        begin, end = self._spans.get(address.partition(":")[0], (0.0, float("inf")))
        return begin <= self.now < end

    def _sleep(self, seconds: float) -> None:
        self.now += seconds


def test_the_chief_waits_for_all_others() -> None:
    world = World(p=(30.0, float("inf")))
    servers.wait_for_all(CLUSTER, lambda: False, world.surroundings())
    assert world.now == 30.0


def test_the_chief_names_who_does_not_come() -> None:
    world = World(p=(9e9, 9e9))
    with pytest.raises(ModelError, match="no answer for 600 s from p:1, p:2, which"):
        servers.wait_for_all(CLUSTER, lambda: False, world.surroundings())


def test_the_chief_stops_waiting_when_asked_to() -> None:
    world = World(p=(9e9, 9e9))
    with pytest.raises(Preempted):
        servers.wait_for_all(CLUSTER, lambda: world.now > 5, world.surroundings())


def test_the_others_end_a_while_after_the_chief() -> None:
    world = World(c=(10.0, 100.0))
    servers.wait_while_needed("c:1", world.surroundings())
    assert 100.0 + servers.PATIENCE_S <= world.now <= 102.0 + servers.PATIENCE_S


def test_the_others_do_not_wait_for_ever_for_a_chief() -> None:
    world = World(c=(9e9, 9e9))
    with pytest.raises(
        ModelError, match="from c:1, which TF_CONFIG lists as the chief"
    ):
        servers.wait_while_needed("c:1", world.surroundings())


def test_nothing_listens_where_nobody_is() -> None:
    assert not servers.answers("127.0.0.1:1")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (tf.errors.UnavailableError(None, None, "failed to connect"), True),
        (tf.errors.AbortedError(None, None, "restarted"), True),
        (tf.errors.CancelledError(None, None, "derived"), True),
        (
            tf.errors.InvalidArgumentError(
                None, None, "Unable to find the relevant tensor remote_handle: 1"
            ),
            True,
        ),
        (tf.errors.InvalidArgumentError(None, None, "indices out of range"), False),
        (tf.errors.ResourceExhaustedError(None, None, "OOM"), False),
    ],
)
def test_a_lost_process_is_told_from_a_step_that_failed(
    error: tf.errors.OpError, *, expected: bool
) -> None:
    assert tells_of_loss(error) == expected


def test_a_loss_says_what_is_left() -> None:
    assert str(ServersLost(Progress(step=7), "gone")) == (
        "gone (checkpoints: the last one is of step 7)"
    )
    assert str(ServersLost(Progress(), "gone")) == "gone (checkpoints: none so far)"


def part(*gradients: list[float], loss: float = 6.0) -> Part:
    return Part(
        [tf.constant(each) for each in gradients],
        tf.constant(loss),
        tf.constant(2.0),
        [],
    )


def test_gradients_are_means_and_clipped_by_their_global_norm() -> None:
    gradients, loss, norm, finite = settle(part([6.0], [8.0]), 2.5)
    assert (float(loss), float(norm), bool(finite)) == (3.0, 5.0, True)
    assert [each.numpy().tolist() for each in gradients] == [[1.5], [2.0]]
    unclipped, *_ = settle(part([6.0], [8.0]), None)
    assert [each.numpy().tolist() for each in unclipped] == [[3.0], [4.0]]


@pytest.mark.parametrize(
    "bad", [part([6.0], [np.nan]), part([6.0], [8.0], loss=np.inf)]
)
def test_a_step_that_is_not_finite_has_no_gradients(bad: Part) -> None:
    gradients, _, _, finite = settle(bad, 1.0)
    assert not finite
    assert [each.numpy().tolist() for each in gradients] == [[0.0], [0.0]]


def test_only_a_bad_batch_is_sent_to_the_chief() -> None:
    batch = {
        "float32": tf.ones([2, 3, 4]),
        "mask": tf.ones([2, 3]),
        "row": tf.reshape(tf.range(6, dtype=tf.int64), [2, 3]),
    }
    sent = deserialized(serialized(batch, tf.constant(False)).numpy())
    assert sent.keys() == batch.keys()
    assert sent["row"].tolist() == [[0, 1, 2], [3, 4, 5]]
    empty = deserialized(serialized(batch, tf.constant(True)).numpy())
    assert {name: len(value[0]) for name, value in empty.items()} == dict.fromkeys(
        batch, 0
    )
