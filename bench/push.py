"""Measures publishing, the time until a server has a version, and rolling back.

    .venv/bin/python bench/push.py [--runs 5]

By size of the model: a small network, and a file of random bytes beside it, which a
server hashes no more than it must. Writes bench/results/push.json.
"""

import argparse
import datetime as dt
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

import machine  # noqa: E402

from serving.client.grpc_client import GrpcClient  # noqa: E402
from serving.model_repository import ModelRepository  # noqa: E402
from serving.routing import Routes  # noqa: E402
from serving.server.process import EmbeddedServer  # noqa: E402

RESULT = ROOT / "bench" / "results" / "push.json"
SIZES_MB = (1, 32, 256)
TIMEOUT_S = 60.0
Runs = dict[str, list[float]]


def model(folder: Path, size_mb: int, original: Path) -> Path:
    """Return a model of a size, unlike any before it."""
    copy = folder / "source"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(original, copy)
    (copy / "assets.extra").mkdir()
    (copy / "assets.extra" / "ballast").write_bytes(os.urandom(size_mb << 20))
    return copy


def copied(source: Path, target: Path) -> float:
    """Return the seconds of a plain copy to the disk, which nothing can beat by much."""
    started = time.monotonic()
    shutil.copytree(source, target)
    for file in target.rglob("*"):
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    seconds = time.monotonic() - started
    shutil.rmtree(target)
    return seconds


def measure(folder: Path, original: Path, runs: Runs) -> None:
    """Push a model of each size to a server, promote it, and go back."""
    shutil.rmtree(folder / "models", ignore_errors=True)
    repository = ModelRepository(folder / "models", "m")
    repository.publish(original)
    Routes(folder / "models", "m", {}).pin()
    with EmbeddedServer("m", repository.folder, folder / "log") as server:
        client = GrpcClient(f"127.0.0.1:{server.grpc_port}", "m")
        routes = Routes(folder / "models", "m", {"server": client})
        for size_mb in SIZES_MB:
            source = model(folder, size_mb, original)
            seconds = copied(source, folder / "copy")
            runs[f"copy {size_mb}"].append(seconds)
            started = time.monotonic()
            version = repository.publish(source).version
            published = time.monotonic()
            routes.take(version, TIMEOUT_S)
            taken = time.monotonic()
            routes.promote(version, TIMEOUT_S)
            promoted = time.monotonic()
            before = routes.previous() or 0
            routes.promote(before, TIMEOUT_S, "rollback")
            runs["rollback"].append(time.monotonic() - promoted)
            runs["promote"].append(promoted - taken)
            runs[f"publish {size_mb}"].append(published - started)
            runs[f"available {size_mb}"].append(taken - started)
        client.close()


def figures(runs: Runs) -> dict[str, object]:
    """Return medians."""

    def median(name: str) -> float:
        return round(statistics.median(runs[name]), 4)

    largest = max(SIZES_MB)
    return {
        "rollback_s": median("rollback"),
        "promote_s": median("promote"),
        "publish_mb_per_s": round(largest / median(f"publish {largest}"), 1),
        "plain_copy_mb_per_s": round(largest / median(f"copy {largest}"), 1),
        "time_to_available_s": median(f"available {min(SIZES_MB)}"),
        "time_to_available_s_by_mb": {
            str(size): median(f"available {size}") for size in SIZES_MB
        },
        "publish_s_by_mb": {str(size): median(f"publish {size}") for size in SIZES_MB},
    }


def main() -> None:
    """Measure, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--result", type=Path, default=RESULT)
    args = parser.parse_args()
    runs: Runs = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="bench-push-") as name:
        folder = Path(name)
        script = str(ROOT / "bench" / "serving_model.py")
        command = [sys.executable, script, str(folder / "model")]
        subprocess.run(command, check=True, capture_output=True)
        for number in range(args.runs):
            measure(folder, folder / "model", runs)
            print(f"run {number + 1} of {args.runs}", flush=True)
        for _ in range(args.runs):
            started = time.monotonic()
            subprocess.run([sys.executable, "-c", "pass"], check=True)
            runs["python_pass"].append(time.monotonic() - started)
    result = {
        "name": "push",
        "commit": machine.commit(),
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": machine.describe(),
        "runs": args.runs,
        "figures": {
            **figures(runs),
            "python_pass_s": round(statistics.median(runs["python_pass"]), 3),
        },
    }
    args.result.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result["figures"], indent=2))


if __name__ == "__main__":
    main()
