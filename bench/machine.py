"""What a benchmark ran on: the machine and the commit."""

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[1]


def describe() -> dict[str, object]:
    """Name processor, cores, memory, GPUs, Python and TensorFlow."""
    return {
        "cpu": _after("/proc/cpuinfo", "model name") or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(
            int(_after("/proc/meminfo", "MemTotal").split()[0]) / 2**20, 1
        ),
        "gpus": gpu_names(),
        "python": platform.python_version(),
        "tensorflow": version("tensorflow"),
        "keras": version("keras"),
        "tfx": version("tfx"),
        "system": platform.platform(),
    }


def _after(file: str, key: str) -> str:
    """Return what follows `key:` in a file of /proc; "" where it is not there."""
    for line in Path(file).read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""


def gpu_names() -> list[str]:
    """Return the names of the GPUs that the driver sees."""
    found = _output("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
    return found.splitlines()


def commit() -> str:
    """Return the commit, with `-dirty` after it where files differ from it.

    Results do not count: a run that was just written does not make the next one dirty.
    """
    head = _output("git", "rev-parse", "HEAD")
    changed = _output("git", "status", "--porcelain", "--", ".", ":!bench/results")
    return f"{head or 'unknown'}{'-dirty' if changed else ''}"


def _output(*command: str) -> str:
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
