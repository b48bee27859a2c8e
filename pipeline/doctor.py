"""What a machine has and lacks for Taxiway, found without importing any of it."""

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from pipeline.extras import EXTRAS, GLIBC_SENTENCE, LOCKS, missing_modules

State = Literal["ok", "note", "missing", "broken"]
"""`missing` is what an extra would add; `broken` is what nothing works without."""

KEY_PACKAGES = (
    "tfx",
    "tensorflow",
    "keras",
    "apache-beam",
    "ml-metadata",
    "tensorflow-data-validation",
    "numpy",
    "protobuf",
    "pyarrow",
    "pydantic",
    "grpcio",
)
ESSENTIAL = frozenset({"numpy", "protobuf", "pyarrow", "pydantic", "grpcio"})
PYTHONS = ((3, 11), (3, 13))
"""First and last Python that Taxiway runs on."""
NEEDED_DISK_BYTES = 2 << 30
NEEDED_MEMORY_BYTES = 4 << 30
LOCK = Path(__file__).parents[1] / "requirements" / "full.txt"
NVIDIA_SMI = (
    "nvidia-smi",
    "--query-gpu=name,memory.total,driver_version",
    "--format=csv,noheader",
)
LIST_DEVICES = (
    "import tensorflow as tf\n"
    "print(*(d.name for d in tf.config.list_physical_devices()), sep=', ')"
)


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    topic: str
    state: State
    what: str
    remedy: str | None = None
    """What to do about it; None when nothing is wrong."""


@dataclass(frozen=True)
class Machine:
    """What the checks ask: every effect they have."""

    environ: Mapping[str, str]
    version_of: Callable[[str], str | None]
    """Installed version of a distribution; None when it is not."""
    output_of: Callable[[tuple[str, ...]], str | None]
    """Output of a command; None when it is not there or fails."""
    libc: tuple[str, str]
    """Name and version of the C library, `("glibc", "2.36")`."""
    python: tuple[int, int, int]
    memory_bytes: int
    free_disk_bytes: int
    lock: str | None
    """Text of the lock; None when it is not at hand."""


def this_machine() -> Machine:
    """Look at this machine."""
    pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return Machine(
        environ=os.environ,
        version_of=_version_of,
        output_of=_output_of,
        libc=platform.libc_ver(),
        python=sys.version_info[:3],
        memory_bytes=pages * page_bytes,
        free_disk_bytes=shutil.disk_usage(Path.cwd()).free,
        lock=LOCK.read_text(encoding="utf-8") if LOCK.is_file() else None,
    )


def examine(machine: Machine, deep: bool = False) -> list[Finding]:
    """Return all findings, in the order in which they are shown.

    Args:
        machine: What is asked.
        deep: Import TensorFlow, in a process of its own, to see its devices.
    """
    return [
        _python(machine),
        _libc(machine),
        _resources(machine),
        *_packages(machine),
        *_extras(machine),
        _agreement(machine),
        _gpus(machine),
        *([_devices(machine)] if deep else []),
        *_environment(machine),
    ]


def _python(machine: Machine) -> Finding:
    text = ".".join(map(str, machine.python))
    first, last = PYTHONS
    what = f"Python {text}, {platform.system()} {platform.machine()}"
    if first <= machine.python[:2] <= last:
        return Finding("python", "ok", what)
    span = f"{'.'.join(map(str, first))} to {'.'.join(map(str, last))}"
    return Finding("python", "broken", what, f"use a Python from {span}")


def _libc(machine: Machine) -> Finding:
    name, number = machine.libc
    if name != "glibc":
        return Finding(
            "libc",
            "note",
            f"the C library is {name or 'unknown'}",
            "TensorFlow and TFX have wheels for glibc only",
        )
    return Finding("libc", "ok", f"glibc {number}; {GLIBC_SENTENCE}")


def _resources(machine: Machine) -> Finding:
    memory, disk = machine.memory_bytes, machine.free_disk_bytes
    what = (
        f"{os.cpu_count()} cores, {memory / 2**30:.1f} GiB memory, "
        f"{disk / 2**30:.1f} GiB free on this disk"
    )
    if disk < NEEDED_DISK_BYTES:
        return Finding(
            "machine", "note", what, "runs keep examples and models: free 2 GiB"
        )
    if memory < NEEDED_MEMORY_BYTES:
        return Finding(
            "machine", "note", what, "TFX alone takes 1 GiB; 4 GiB are advised"
        )
    return Finding("machine", "ok", what)


def _packages(machine: Machine) -> Iterator[Finding]:
    found = {name: machine.version_of(name) for name in KEY_PACKAGES}
    installed = [f"{name} {number}" for name, number in found.items() if number]
    if installed:
        yield Finding("packages", "ok", ", ".join(installed))
    absent = [name for name, number in found.items() if not number]
    needed = [name for name in absent if name in ESSENTIAL]
    if needed:
        yield Finding(
            "packages", "broken", f"without {', '.join(needed)}", _install("full")
        )


def _extras(machine: Machine) -> Iterator[Finding]:
    for extra in EXTRAS:
        missing = missing_modules(extra)
        topic = f"extra {extra}"
        if missing:
            lacks = f"lacks {', '.join(missing)}"
            yield Finding(topic, "missing", lacks, _install(LOCKS[extra]))
        else:
            yield Finding(topic, "ok", "all there")
    if machine.version_of("nvidia-cudnn-cu12") or machine.version_of(
        "nvidia-cudnn-cu13"
    ):
        yield Finding("extra gpu", "ok", "TensorFlow's CUDA libraries are there")
    else:
        lacks = "lacks TensorFlow's CUDA libraries: training uses the CPU"
        yield Finding(
            "extra gpu", "missing", lacks, f"with an NVIDIA GPU: {_install('gpu')}"
        )


def _install(lock: str) -> str:
    return f"pip install --no-deps -r requirements/{lock}.txt"


def _agreement(machine: Machine) -> Finding:
    if machine.lock is None:
        what = "requirements/full.txt is not at hand: versions were not compared"
        return Finding(
            "lock", "note", what, "run doctor from a clone of the repository"
        )
    locked = locked_versions(machine.lock)
    differing = []
    for name, wanted in locked.items():
        got = machine.version_of(name)
        if got is not None and got != wanted:
            differing.append(f"{name} is {got}, locked is {wanted}")
    if differing:
        more = f", and {len(differing) - 5} more" if len(differing) > 5 else ""
        what = ", ".join(differing[:5]) + more
        return Finding("lock", "note", what, _install("full"))
    return Finding(
        "lock", "ok", f"installed packages agree with {len(locked)} locked ones"
    )


def locked_versions(text: str) -> dict[str, str]:
    """Return the version of each distribution that a lock names."""
    return dict(re.findall(r"^([A-Za-z0-9_.\-]+)==([^\s;\\]+)", text, re.MULTILINE))


def _gpus(machine: Machine) -> Finding:
    output = machine.output_of(NVIDIA_SMI)
    if output is None:
        return Finding(
            "gpu",
            "note",
            "no NVIDIA GPU, or no driver: nvidia-smi fails",
            ("none is needed; for one, install NVIDIA's driver"),
        )
    return Finding("gpu", "ok", "; ".join(output.strip().splitlines()))


def _devices(machine: Machine) -> Finding:
    if missing_modules("serving"):
        what = "TensorFlow is not installed"
        return Finding("devices", "missing", what, _install("full"))
    output = machine.output_of((sys.executable, "-c", LIST_DEVICES))
    if output is None:
        what = "importing TensorFlow fails"
        remedy = f"{sys.executable} -c 'import tensorflow' says why; {_install('full')}"
        return Finding("devices", "broken", what, remedy)
    return Finding("devices", "ok", f"TensorFlow sees {output.strip()}")


def _environment(machine: Machine) -> Iterator[Finding]:
    if machine.environ.get("PYTHONDONTWRITEBYTECODE"):
        yield Finding(
            "environment",
            "note",
            "PYTHONDONTWRITEBYTECODE is set: each import of TFX takes half a minute",
            "unset PYTHONDONTWRITEBYTECODE",
        )


def _version_of(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _output_of(command: tuple[str, ...]) -> str | None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=120, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout
