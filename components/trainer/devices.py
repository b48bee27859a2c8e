"""Which devices train, with which strategy; decided first, then configured.

`plan` decides from values alone. `configure` must run before TensorFlow touches a
device: what it sets cannot be changed afterwards.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from components.errors import ModelError
from components.trainer.cluster import TF_CONFIG, Cluster
from components.trainer.config import TrainerSettings

Kind = Literal["one_device", "mirrored", "multi_worker", "parameter_server"]


@dataclass(frozen=True)
class Inventory:
    """What TensorFlow found on this machine."""

    num_gpus: int
    num_tpus: int = 0


@dataclass(frozen=True)
class DevicePlan:
    """The strategy of a run and the devices of this process."""

    kind: Kind
    device_type: Literal["CPU", "GPU"]
    num_devices: int
    """Devices of this process, each holding one replica."""
    cluster: Cluster | None = None

    @property
    def num_workers(self) -> int:
        """Processes that compute a step together."""
        if self.cluster is None or self.kind == "parameter_server":
            return 1
        return len(self.cluster.addresses)

    @property
    def num_replicas(self) -> int:
        """Copies of the model that compute a step together."""
        return self.num_devices * self.num_workers

    @property
    def first_replica(self) -> int:
        """Place of this process's first replica among all."""
        return self.num_devices * (self.cluster.index if self.cluster else 0)

    @property
    def is_chief(self) -> bool:
        """Whether this process writes checkpoints, the summary and the model."""
        return self.cluster is None or self.cluster.is_chief

    @property
    def serves(self) -> bool:
        """Whether this process does what the chief of a parameter_server run says."""
        return self.kind == "parameter_server" and not self.is_chief

    @property
    def device_names(self) -> tuple[str, ...]:
        """Devices of this process, `GPU:0` and so on."""
        return tuple(f"{self.device_type}:{i}" for i in range(self.num_devices))

    def __str__(self) -> str:
        """Say it for the log: `mirrored on GPU:0, GPU:1`."""
        devices = ", ".join(self.device_names)
        if self.cluster is None:
            return f"{self.kind} on {devices}"
        if self.kind == "parameter_server":
            workers, servers = len(self.cluster.jobs["worker"]), self.cluster.servers
            return (
                f"{self.kind}, workers: {workers}, servers: {len(servers)}, chief on "
                f"{devices}"
            )
        return (
            f"{self.kind}, worker {self.cluster.index + 1} of {self.num_workers}"
            f"{', the chief' if self.is_chief else ''}, on {devices}"
        )


def plan(
    settings: TrainerSettings, inventory: Inventory, cluster: Cluster | None
) -> DevicePlan:
    """Decide on strategy and devices.

    Raises:
        ModelError: What the settings demand is not there, or not possible.
    """
    if settings.strategy == "tpu":
        raise ModelError(_tpu_refusal(inventory))
    if settings.strategy == "parameter_server":
        return _plan_served(settings, inventory, cluster)
    device_type, available = _devices(settings, inventory)
    others = len(cluster.addresses) - 1 if cluster else 0
    if settings.strategy in {"one_device", "mirrored"} and others:
        raise ModelError(
            f"trainer.strategy: got {settings.strategy}, but {TF_CONFIG} or "
            f"trainer.workers name {others + 1} processes, which would all write the "
            "same model; allowed with them: auto, multi_worker"
        )
    kind = _kind(settings, available, cluster)
    if kind == "multi_worker" and cluster is None:
        raise ModelError(
            "trainer.strategy: got multi_worker, but nothing says who the workers "
            f"are: set {TF_CONFIG}, trainer.workers or trainer.num_local_workers"
        )
    if kind == "one_device":
        return DevicePlan(kind, device_type, 1)
    num_devices = available
    return DevicePlan(
        kind, device_type, num_devices, cluster if kind == "multi_worker" else None
    )


def _plan_served(
    settings: TrainerSettings, inventory: Inventory, cluster: Cluster | None
) -> DevicePlan:
    """Plan for a process of a parameter_server run; servers need no GPU."""
    if cluster is None:
        raise ModelError(
            "trainer.strategy: got parameter_server, but nothing says who the workers "
            f"and servers are: set {TF_CONFIG}, or trainer.num_local_workers and "
            "trainer.num_local_servers"
        )
    holds_weights = cluster.task[0] == "ps"
    kind = "CPU" if holds_weights else _devices(settings, inventory)[0]
    return DevicePlan("parameter_server", kind, 1, cluster)


def _devices(
    settings: TrainerSettings, inventory: Inventory
) -> tuple[Literal["CPU", "GPU"], int]:
    wants_cpu = settings.device == "cpu" or settings.cpu_devices is not None
    if settings.device == "gpu" and settings.cpu_devices is not None:
        raise ModelError("trainer.device: got gpu, but trainer.cpu_devices is set, too")
    if settings.device == "gpu" and not inventory.num_gpus:
        raise ModelError(
            "trainer.device: got gpu, but TensorFlow sees none on this machine; "
            "`nvidia-smi` shows what the driver sees, `pip install --no-deps -r "
            "requirements/gpu.txt` brings the CUDA libraries; allowed here: auto, cpu"
        )
    if wants_cpu or not inventory.num_gpus:
        return "CPU", settings.cpu_devices or 1
    return "GPU", inventory.num_gpus


def _kind(settings: TrainerSettings, available: int, cluster: Cluster | None) -> Kind:
    if settings.strategy == "auto":
        if cluster is not None:
            return "multi_worker"
        return "mirrored" if available > 1 else "one_device"
    if settings.strategy in {"one_device", "mirrored"}:
        return "one_device" if settings.strategy == "one_device" else "mirrored"
    return "multi_worker"


def _tpu_refusal(inventory: Inventory) -> str:
    if not inventory.num_tpus:
        return (
            "trainer.strategy: got tpu, but TensorFlow sees none on this machine; "
            f"allowed here: {', '.join(('auto', *get_args(Kind)))}"
        )
    return (
        "trainer.strategy: got tpu, which this version does not train on: its "
        "training step was never run there"
    )


def micro_batch_size(batch_size: int, accumulation: int, num_replicas: int) -> int:
    """Return the examples that one replica computes at once.

    Raises:
        ModelError: The batch does not divide; the message says what would.
    """
    parts = accumulation * num_replicas
    if batch_size % parts == 0:
        return batch_size // parts
    below, above = batch_size // parts * parts, -(-batch_size // parts) * parts
    would = f"{below} or {above}" if below else f"{above}"
    what = f"{num_replicas} replicas" if num_replicas > 1 else "1 replica"
    if accumulation > 1:
        what += f" and trainer.accumulation_steps {accumulation}"
    raise ModelError(
        f"trainer.batch_size: got {batch_size}, which does not divide by {what}; "
        f"{would} would"
    )


def check_ahead(
    settings: TrainerSettings, environ: Mapping[str, str] = os.environ
) -> None:
    """Refuse what no machine would make right, before one is looked at.

    Args:
        settings: The `trainer` section.
        environ: The process's environment: TF_CONFIG goes before trainer.workers.

    Raises:
        ModelError: As training itself would say.
    """
    any_machine = Inventory(num_gpus=1, num_tpus=1)
    has_config = bool(environ.get(TF_CONFIG, "").strip())
    names_workers = settings.workers or settings.num_local_workers or has_config
    is_alone = settings.strategy in {"one_device", "mirrored", "tpu"}
    if is_alone or not names_workers:
        planned = plan(settings, any_machine, None)
        check_all_reduce(settings.all_reduce, planned.kind, planned.device_type)
    else:
        device_type, _ = _devices(settings, any_machine)
        if settings.strategy == "multi_worker":
            check_all_reduce(settings.all_reduce, "multi_worker", device_type)
    replicas = 1
    if settings.strategy != "parameter_server" and not has_config:
        workers = len(settings.workers) or settings.num_local_workers or 1
        devices = 1 if settings.strategy == "one_device" else settings.cpu_devices or 1
        replicas = devices * workers
    micro_batch_size(settings.batch_size, settings.accumulation_steps, replicas)


def check_all_reduce(all_reduce: str, kind: Kind, device_type: str) -> None:
    """Refuse a way to add up gradients that does not fit the devices.

    Raises:
        ModelError: The message says what would.
    """
    if all_reduce == "nccl" and device_type != "GPU":
        raise ModelError(
            "trainer.all_reduce: got nccl, which needs GPUs; allowed here: auto, ring"
        )
    if all_reduce == "ring" and kind != "multi_worker":
        raise ModelError(
            "trainer.all_reduce: got ring, which is for strategy multi_worker; "
            f"allowed with {kind}: auto, nccl"
        )


def take_inventory() -> Inventory:
    """Look at the machine; does not initialise a device."""
    import tensorflow as tf

    return Inventory(
        num_gpus=len(tf.config.list_physical_devices("GPU")),
        num_tpus=len(tf.config.list_physical_devices("TPU")),
    )


def configure(planned: DevicePlan, *, deterministic: bool) -> None:
    """Set up the devices of this process; call it before anything uses one."""
    import tensorflow as tf

    if planned.cluster is not None:
        os.environ[TF_CONFIG] = planned.cluster.to_tf_config()
    if planned.device_type == "GPU":
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, enable=True)
    else:
        tf.config.set_visible_devices([], "GPU")
        [cpu] = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * planned.num_devices
        )
    if deterministic:
        tf.config.experimental.enable_op_determinism()


def create_strategy(planned: DevicePlan, all_reduce: str) -> Any:
    """Create the `tf.distribute.Strategy`; multi-worker runs meet here.

    Args:
        planned: What `plan` decided.
        all_reduce: `auto`, `nccl` or `ring`.

    Raises:
        ModelError: The way to add up gradients does not fit the devices.
    """
    import tensorflow as tf

    check_all_reduce(all_reduce, planned.kind, planned.device_type)

    if planned.kind in {"one_device", "parameter_server"}:  # the chief's own model
        return tf.distribute.OneDeviceStrategy(f"/{planned.device_names[0]}")
    if planned.kind == "mirrored":
        ops = tf.distribute.NcclAllReduce() if all_reduce == "nccl" else None
        return tf.distribute.MirroredStrategy(
            list(planned.device_names), cross_device_ops=ops
        )
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=getattr(
            tf.distribute.experimental.CommunicationImplementation, all_reduce.upper()
        )
    )
    return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)


def placement(variables: Sequence[tuple[str, Sequence[Any]]]) -> list[str]:
    """Report where variables lie: one line for each set of devices.

    Args:
        variables: Path and per-replica components of each.
    """
    import tensorflow as tf

    sizes: dict[str, list[int]] = {}
    for _, components in variables:
        devices = ", ".join(
            tf.DeviceSpec.from_string(part.device).to_string().rpartition("device:")[2]
            for part in components
        )
        sizes.setdefault(devices, []).append(components[0].shape.num_elements() or 1)
    return [
        f"{len(counts)} variables, {sum(counts):,} numbers on {devices}"
        for devices, counts in sorted(sizes.items())
    ]
