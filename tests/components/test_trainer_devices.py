"""Which devices train, with which strategy, and how a batch is cut for them."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.errors import ModelError
from components.trainer.cluster import Cluster
from components.trainer.config import TrainerSettings
from components.trainer.devices import (
    DevicePlan,
    Inventory,
    Kind,
    check_ahead,
    create_strategy,
    micro_batch_size,
    plan,
)

NO_GPU = Inventory(num_gpus=0)
FOUR_GPUS = Inventory(num_gpus=4)
CLUSTER = Cluster(("a:1", "b:1", "c:1"), 1)


def decided(
    inventory: Inventory, cluster: Cluster | None = None, **settings: object
) -> DevicePlan:
    return plan(TrainerSettings.model_validate(settings), inventory, cluster)


def refusal(
    inventory: Inventory, cluster: Cluster | None = None, **settings: object
) -> str:
    with pytest.raises(ModelError) as error:
        decided(inventory, cluster, **settings)
    return str(error.value)


@pytest.mark.parametrize(
    ("num_gpus", "settings", "expected"),
    [
        (0, {}, "one_device on CPU:0"),
        (1, {}, "one_device on GPU:0"),
        (2, {}, "mirrored on GPU:0, GPU:1"),
        (2, {"device": "cpu"}, "one_device on CPU:0"),
        (2, {"cpu_devices": 3}, "mirrored on CPU:0, CPU:1, CPU:2"),
        (0, {"cpu_devices": 1}, "one_device on CPU:0"),
        (2, {"strategy": "one_device"}, "one_device on GPU:0"),
        (0, {"strategy": "one_device", "cpu_devices": 4}, "one_device on CPU:0"),
        (1, {"strategy": "mirrored"}, "mirrored on GPU:0"),
        (1, {"device": "gpu"}, "one_device on GPU:0"),
    ],
)
def test_strategy_and_devices_follow_from_what_is_there(
    num_gpus: int, settings: dict[str, object], expected: str
) -> None:
    assert str(decided(Inventory(num_gpus), **settings)) == expected


@pytest.mark.parametrize("settings", [{}, {"strategy": "multi_worker"}])
def test_a_cluster_makes_a_multi_worker_run(settings: dict[str, object]) -> None:
    found = decided(FOUR_GPUS, CLUSTER, **settings)
    assert found.kind == "multi_worker"
    assert found.num_replicas == 12
    assert found.first_replica == 4
    assert not found.is_chief
    assert str(found) == "multi_worker, worker 2 of 3, on GPU:0, GPU:1, GPU:2, GPU:3"


def test_a_process_without_a_cluster_is_chief_of_its_own_replicas() -> None:
    found = decided(FOUR_GPUS)
    assert found.is_chief
    assert (found.num_workers, found.num_replicas, found.first_replica) == (1, 4, 0)


def test_the_replicas_of_all_workers_are_each_replica_once() -> None:
    plans = [decided(FOUR_GPUS, Cluster(CLUSTER.addresses, i)) for i in range(3)]
    replicas = [p.first_replica + d for p in plans for d in range(p.num_devices)]
    assert replicas == list(range(plans[0].num_replicas))
    assert [p.is_chief for p in plans] == [True, False, False]


def test_multi_worker_without_workers_is_refused() -> None:
    assert refusal(NO_GPU, strategy="multi_worker") == (
        "trainer.strategy: got multi_worker, but nothing says who the workers are: "
        "set TF_CONFIG, trainer.workers or trainer.num_local_workers"
    )


def test_a_parameter_server_run_without_a_cluster_is_refused() -> None:
    assert refusal(FOUR_GPUS, strategy="parameter_server") == (
        "trainer.strategy: got parameter_server, but nothing says who the workers and "
        "servers are: set TF_CONFIG, or trainer.num_local_workers and "
        "trainer.num_local_servers"
    )


SERVED = ("c:0", "w:1", "w:2"), ("p:1",)


@pytest.mark.parametrize(
    ("index", "device_type", "serves"),
    [(0, "GPU", False), (1, "GPU", True), (3, "CPU", True)],
)
def test_with_servers_each_process_computes_alone_and_the_chief_directs(
    index: int, device_type: str, *, serves: bool
) -> None:
    addresses, servers = SERVED
    cluster = Cluster(addresses, index, True, servers)
    found = decided(FOUR_GPUS, cluster, strategy="parameter_server")
    assert (found.device_type, found.num_replicas) == (device_type, 1)
    assert found.serves == serves
    assert found.is_chief != serves
    assert str(found).startswith("parameter_server, workers: 2, servers: 1, chief on ")


def test_workers_of_tf_config_go_before_those_of_the_settings() -> None:
    settings = TrainerSettings(workers=("a:1", "b:1", "c:1"), batch_size=512)
    with pytest.raises(ModelError, match="does not divide by 3 replicas"):
        check_ahead(settings, {})
    check_ahead(settings, {"TF_CONFIG": '{"cluster": {}}'})


def test_every_strategy_of_the_settings_but_tpu_can_be_planned() -> None:
    named = get_args(TrainerSettings.model_fields["strategy"].annotation)
    assert set(named) == {"auto", "tpu", *get_args(Kind)}


def test_a_tpu_that_is_not_there_is_refused() -> None:
    assert refusal(NO_GPU, strategy="tpu") == (
        "trainer.strategy: got tpu, but TensorFlow sees none on this machine; "
        "allowed here: auto, one_device, mirrored, multi_worker, parameter_server"
    )


def test_a_tpu_that_is_there_is_refused_because_nothing_was_run_there() -> None:
    assert refusal(Inventory(num_gpus=0, num_tpus=8), strategy="tpu") == (
        "trainer.strategy: got tpu, which this version does not train on: its "
        "training step was never run there"
    )


def test_a_gpu_that_is_not_there_is_refused_with_how_to_find_out() -> None:
    assert refusal(NO_GPU, device="gpu") == (
        "trainer.device: got gpu, but TensorFlow sees none on this machine; "
        "`nvidia-smi` shows what the driver sees, `pip install "
        "--no-deps -r requirements/gpu.txt` brings the CUDA libraries; allowed here: "
        "auto, cpu"
    )


def test_gpu_and_cpu_devices_contradict_each_other() -> None:
    assert refusal(FOUR_GPUS, device="gpu", cpu_devices=2) == (
        "trainer.device: got gpu, but trainer.cpu_devices is set, too"
    )


def test_nccl_without_gpus_is_refused() -> None:
    with pytest.raises(ModelError) as error:
        create_strategy(decided(NO_GPU, cpu_devices=2), "nccl")
    assert str(error.value) == (
        "trainer.all_reduce: got nccl, which needs GPUs; allowed here: auto, ring"
    )


@pytest.mark.parametrize(("inventory", "kind"), [(1, "one_device"), (2, "mirrored")])
def test_ring_within_one_process_is_refused(inventory: int, kind: str) -> None:
    with pytest.raises(ModelError) as error:
        create_strategy(decided(Inventory(inventory)), "ring")
    assert str(error.value) == (
        "trainer.all_reduce: got ring, which is for strategy multi_worker; "
        f"allowed with {kind}: auto, nccl"
    )


SIZES = st.integers(1, 5_000)
FEW = st.integers(1, 40)


@given(FEW, FEW, st.integers(1, 100))
def test_a_batch_that_divides_is_cut_without_a_rest(
    accumulation: int, replicas: int, micro: int
) -> None:
    batch = accumulation * replicas * micro
    assert micro_batch_size(batch, accumulation, replicas) == micro


@given(SIZES, FEW, FEW)
def test_the_suggested_batch_sizes_divide_and_none_is_nearer(
    batch: int, accumulation: int, replicas: int
) -> None:
    parts = accumulation * replicas
    try:
        micro_batch_size(batch, accumulation, replicas)
    except ModelError as error:
        words = str(error).rpartition("; ")[2].removesuffix(" would").split(" or ")
        suggested = [int(word) for word in words]
    else:
        suggested = [batch]
    allowed = [size for size in range(1, batch + parts + 1) if size % parts == 0]
    below = [size for size in allowed if size <= batch][-1:]
    above = [size for size in allowed if size >= batch][:1]
    assert suggested == sorted({*below, *above})


@pytest.mark.parametrize(
    ("batch", "accumulation", "replicas", "sentence"),
    [
        (10, 1, 4, "got 10, which does not divide by 4 replicas; 8 or 12 would"),
        (3, 1, 4, "got 3, which does not divide by 4 replicas; 4 would"),
        (
            10,
            3,
            1,
            (
                "got 10, which does not divide by 1 replica and "
                "trainer.accumulation_steps 3; 9 or 12 would"
            ),
        ),
        (
            512,
            3,
            2,
            (
                "got 512, which does not divide by 2 replicas and "
                "trainer.accumulation_steps 3; 510 or 516 would"
            ),
        ),
    ],
)
def test_a_batch_that_does_not_divide_is_refused_with_what_would(
    batch: int, accumulation: int, replicas: int, sentence: str
) -> None:
    with pytest.raises(ModelError) as error:
        micro_batch_size(batch, accumulation, replicas)
    assert str(error.value) == f"trainer.batch_size: {sentence}"
