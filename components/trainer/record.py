"""The reproducibility record: what a model was made of, on what, with which result."""

import hashlib
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from components.trainer.request import Digests, TrainingRequest
from components.trainer.split import files_of
from serving.settings import Settings

CHUNK_BYTES = 1 << 20
ENERGY_COUNTER = Path("/sys/class/powercap/intel-rapl:0/energy_uj")


class TrainingRecord(Settings):
    """Written beside the model; `taxiway replay` trains from it again."""

    seed: int
    deterministic: bool
    """Whether a replay can be expected to be equal bit by bit."""
    git_commit: str | None
    """Commit of the project; None where it is not in git."""
    git_dirty: bool | None
    """Whether its files differed from that commit."""
    data_digest: str
    """sha256 of the transformed examples that were read."""
    transform_digest: str
    """sha256 of the Transform graph's files."""
    libraries: dict[str, str]
    """Versions of Python, TensorFlow, Keras, CUDA, cuDNN and the driver."""
    devices: tuple[str, ...]
    """Names of the devices, those of all workers being alike."""
    strategy: str
    """What was decided, for example `mirrored on GPU:0, GPU:1`."""
    num_replicas: int
    precision: str
    xla: str
    accumulation: int
    """Micro-batches of a replica, those that memory demanded included."""
    micro_batch_size: int
    num_steps: int
    seconds: float
    """Time in training, over all attempts."""
    gpu_hours: float
    energy_joules: float | None
    """Of the processor's package, last attempt; None where the machine hides it."""
    weight_digests: tuple[tuple[int, str], ...]
    """`(step, sha256 of the weights)` at intervals; the last is the end's."""
    micro_batches: tuple[tuple[int, int], ...] = ()
    """`(step, micro_batch_size from there on)`; more than one where memory was too
    little in the middle."""
    request: TrainingRequest
    """What was asked for."""


def libraries() -> dict[str, str]:
    """Return versions of what the numbers depend on; "" for what is not there."""
    build = tf.sysconfig.get_build_info()
    return {
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "cuda": str(build.get("cuda_version", "")),
        "cudnn": str(build.get("cudnn_version", "")),
        "driver": _driver(),
    }


def _driver() -> str:
    path = Path("/sys/module/nvidia/version")
    return path.read_text().strip() if path.exists() else ""


def device_names(device_type: str, count: int) -> tuple[str, ...]:
    """Return what the devices of this process are called by their makers."""
    if device_type == "GPU":
        gpus = tf.config.get_visible_devices("GPU")[:count]
        details = map(tf.config.experimental.get_device_details, gpus)
        return tuple(str(found.get("device_name", "GPU")) for found in details)
    return (f"{_processor()}, {count} parts" if count > 1 else _processor(),)


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    return names[0] if names else platform.machine()


def git_state(folder: Path) -> tuple[str | None, bool | None]:
    """Return commit and whether files differ from it; None where there is no git."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None, None
    return commit, bool(_git(folder, "status", "--porcelain", "--", "."))


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def digest_of_files(paths: Iterable[Path], root: Path) -> str:
    """Return the sha256 over names (below the root) and contents of files."""
    total = hashlib.sha256()
    for path in sorted(paths):
        total.update(str(path.relative_to(root)).encode() + b"\0")
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                total.update(chunk)
    return total.hexdigest()


def data_digest(request: TrainingRequest) -> str:
    """Return the digest of the examples that a request reads."""
    files = [
        Path(name)
        for patterns in (request.train_files, request.eval_files)
        for name in files_of(patterns)
    ]
    return digest_of_files(files, Path(_common_root(files)))


def _common_root(files: Sequence[Path]) -> Path:
    root = files[0].parent
    while not all(file.is_relative_to(root) for file in files):
        root = root.parent
    return root


def transform_digest(request: TrainingRequest) -> str:
    """Return the digest of a request's Transform graph."""
    root = Path(request.transform_output)
    return digest_of_files((p for p in root.rglob("*") if p.is_file()), root)


def digests(request: TrainingRequest) -> Digests:
    """Read what a request names and return its digests, whatever it says of them."""
    return Digests(data=data_digest(request), transform=transform_digest(request))


def differences(was: TrainingRecord, now: Mapping[str, Any]) -> list[str]:
    """Say in what a replay differs from the record before it begins.

    Args:
        was: The record.
        now: The same fields as they are today.
    """
    lines = []
    for name, value in now.items():
        before = getattr(was, name)
        if isinstance(before, dict):
            lines += [
                f"{key}: was {before.get(key) or 'none'}, is {value.get(key) or 'none'}"
                for key in sorted(before.keys() | value.keys())
                if (before.get(key) or "") != (value.get(key) or "")
            ]
        elif before != value:
            lines.append(
                f"{name.replace('_', ' ')}: was {_words(before)}, is {_words(value)}"
            )
    return lines


def _words(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def decided(made: TrainingRecord) -> dict[str, Any]:
    """Return the fields of a record that say how its training computed."""
    names = (
        "devices",
        "strategy",
        "num_replicas",
        "precision",
        "xla",
        "accumulation",
        "micro_batch_size",
    )
    return {name: getattr(made, name) for name in names}


def change_of_micro_batch(made: TrainingRecord) -> str | None:
    """Say why a replay cannot be equal; None where the micro-batch stayed the same.

    A sum over other parts of a batch is rounded another way, and a replay computes
    all steps in the micro-batches that the training ended with.
    """
    if len(made.micro_batches) < 2:
        return None
    (_, before), (step, after) = made.micro_batches[-2:]
    return (
        f"memory was too little after step {step:,}: until there a replica computed "
        f"{before:,} examples at once, then {after:,}; a replay takes {after:,} for all "
        "steps and cannot be equal bit by bit"
    )


def first_difference(
    was: Sequence[tuple[int, str]], now: Sequence[tuple[int, str]]
) -> tuple[int, int] | None:
    """Return the steps between which two trainings part; None when they do not.

    Args:
        was: `(step, digest)` of the record.
        now: The same of the replay.

    Returns:
        The last step at which both were equal (0 for the beginning) and the first at
        which they differ.
    """
    equal = 0
    found = set(now)  # pairs: the last step has a second digest, of the best weights
    for step, digest in was:
        if (step, digest) not in found:
            return equal, step
        equal = step
    return None


def read_energy() -> float | None:
    """Return the joules that the processor's package counted; None where hidden."""
    try:
        return int(ENERGY_COUNTER.read_text()) / 1e6
    except (OSError, ValueError):
        return None
