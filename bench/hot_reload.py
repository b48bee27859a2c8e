"""Measures requests while versions are swapped under them, and memory after many swaps.

    .venv/bin/python bench/hot_reload.py [--runs 5] [--swaps 20]

An open loop sends 200 requests/s, gRPC and REST in turn; a latency counts from the
time at which a request was meant to be sent. Writes bench/results/hot_reload.json.
"""

import argparse
import asyncio
import datetime as dt
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

import grpc  # noqa: E402
import machine  # noqa: E402
import numpy as np  # noqa: E402
from serving_contenders import (  # noqa: E402
    PREDICT,
    Contender,
    Ports,
    ours,
    predict_request,
)
from serving_servers import running  # noqa: E402

from serving import apis, tfrecord  # noqa: E402
from serving.server.warmup import FILE  # noqa: E402

RESULT = ROOT / "bench" / "results" / "hot_reload.json"
RATE = 200
NUM_CONNECTIONS = 16
PAUSE_S = 0.5
TIMEOUT_S = 30.0
NUM_RELOADS = 50
X = np.linspace(0, 1, 20, dtype=np.float32).reshape(1, 20)
BODY = json.dumps({"instances": X.tolist()}).encode()
STATUS = "/tensorflow.serving.ModelService/GetModelStatus"
RELOAD = "/tensorflow.serving.ModelService/HandleReloadConfigRequest"
AVAILABLE, END = 30, 50


@dataclass
class Sample:
    """All requests of a run."""

    sent: list[float] = field(default_factory=list)
    """When each was meant to be sent, by the clock."""
    seconds: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


class Client:
    """Asks over both protocols."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{ports.grpc}")
        self._predict = self._channel.unary_unary(PREDICT)
        self._idle: asyncio.Queue[Any] = asyncio.Queue()
        self._request = predict_request(X)

    async def open(self) -> None:
        """Open the connections for REST."""
        for _ in range(NUM_CONNECTIONS):
            opened = await asyncio.open_connection("127.0.0.1", self._ports.rest)
            self._idle.put_nowait(opened)

    async def grpc(self) -> None:
        """Ask over gRPC; a failure raises."""
        await self._predict(self._request, timeout=TIMEOUT_S)

    async def rest(self) -> None:
        """Ask over REST; a failure raises."""
        reader, writer = await self._idle.get()
        try:
            writer.write(
                b"POST /v1/models/m:predict HTTP/1.1\r\nHost: x\r\n"
                b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
            )
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split()[0])
            body = await reader.readexactly(length)
            if not head.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(body.decode())
        finally:
            self._idle.put_nowait((reader, writer))

    async def states(self) -> dict[int, int]:
        """Return the state of each version."""
        request = apis.GetModelStatusRequest()
        request.model_spec.name = "m"
        answer = await self._channel.unary_unary(STATUS)(
            request.SerializeToString(), timeout=TIMEOUT_S
        )
        response = apis.GetModelStatusResponse.FromString(answer)
        return {s.version: s.state for s in response.model_version_status}

    async def close(self) -> None:
        """Close all connections."""
        await self._channel.close()
        while not self._idle.empty():
            self._idle.get_nowait()[1].close()


async def send(client: Client, sample: Sample, stop: asyncio.Event) -> None:
    """Send at a fixed rate, whatever becomes of the requests before."""
    started = time.perf_counter()
    tasks: set[asyncio.Task[None]] = set()

    async def ask(number: int, meant: float) -> None:
        try:
            await (client.grpc() if number % 2 else client.rest())
        except Exception as error:  # noqa: BLE001  a failure is a result
            sample.failed.append(repr(error))
        sample.sent.append(meant)
        sample.seconds.append(time.perf_counter() - meant)

    number = 0
    while not stop.is_set():
        meant = started + number / RATE
        wait = meant - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        task = asyncio.create_task(ask(number, meant))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        number += 1
    await asyncio.gather(*tasks)


def publish(model: Path, base_path: Path, version: int) -> float:
    """Publish a version with warm-up requests; return the time of the rename."""
    staging = base_path / f".staging-{version}"
    shutil.copytree(model, staging)
    log = apis.PredictionLog()
    log.predict_log.request.MergeFromString(predict_request(X))
    (staging / FILE).parent.mkdir()
    (staging / FILE).write_bytes(tfrecord.encode(log.SerializeToString()) * 10)
    staging.rename(base_path / str(version))
    return time.perf_counter()


async def swap_all(
    client: Client, model: Path, base_path: Path, num_swaps: int
) -> list[tuple[float, float]]:
    """Swap versions; return from when to when each swap went on."""
    swaps = []
    for version in range(2, num_swaps + 2):
        await asyncio.sleep(PAUSE_S)
        begin = publish(model, base_path, version)
        while True:
            states = await client.states()
            if states.get(version) == AVAILABLE and states.get(version - 1) == END:
                break
            await asyncio.sleep(0.01)
        swaps.append((begin, time.perf_counter()))
    await asyncio.sleep(PAUSE_S)
    return swaps


def p99_ms(seconds: list[float]) -> float:
    """Return the 99th percentile in ms."""
    return float(np.percentile(seconds, 99) * 1000)


async def run(ports: Ports, model: Path, base_path: Path, swaps: int) -> dict[str, Any]:
    """Measure one run."""
    client, sample, stop = Client(ports), Sample(), asyncio.Event()
    await client.open()
    sending = asyncio.create_task(send(client, sample, stop))
    windows = await swap_all(client, model, base_path, swaps)
    stop.set()
    await sending
    await client.close()
    during, steady = [], []
    for sent, seconds in zip(sample.sent, sample.seconds, strict=True):
        is_in_swap = any(begin <= sent <= end for begin, end in windows)
        (during if is_in_swap else steady).append(seconds)
    return {
        "requests": len(sample.sent),
        "failed": len(sample.failed),
        "failures": sample.failed[:3],
        "swaps": len(windows),
        "p99_swap_ms": round(p99_ms(during), 3),
        "p99_steady_ms": round(p99_ms(steady), 3),
        "p50_steady_ms": round(float(np.median(steady) * 1000), 3),
    }


def resident_pages(pid: int) -> int:
    """Return the memory that a process holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1])


async def growth(ports: Ports, base_path: Path, pid: int) -> float:
    """Reload between two versions, and return memory after by memory before."""
    sizes = []
    async with grpc.aio.insecure_channel(f"127.0.0.1:{ports.grpc}") as channel:
        call = channel.unary_unary(RELOAD)
        for number in range(NUM_RELOADS + 5):
            request = apis.ReloadConfigRequest()
            config = request.config.model_config_list.config.add(
                name="m", base_path=str(base_path), model_platform="tensorflow"
            )
            config.model_version_policy.specific.versions.append(1 + number % 2)
            await call(request.SerializeToString(), timeout=TIMEOUT_S)
            sizes.append(resident_pages(pid))
    return sizes[-1] / sizes[4]


def measure(folder: Path, args: Any) -> dict[str, Any]:
    """Start a server on the first core, and measure one run and its memory."""
    base_path = folder / "m"
    shutil.rmtree(base_path, ignore_errors=True)
    base_path.mkdir()
    publish(folder / "model", base_path, 1)
    contender = Contender("ours", ours(), PREDICT)
    with running(contender, folder, args.cores[0]) as server:
        measured = asyncio.run(
            run(server.ports, folder / "model", base_path, args.swaps)
        )
        measured["rss_growth"] = asyncio.run(
            growth(server.ports, base_path, server.pid)
        )
    return measured


def main() -> None:
    """Measure, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--swaps", type=int, default=20)
    parser.add_argument("--result", type=Path, default=RESULT)
    args = parser.parse_args()
    args.cores = sorted(os.sched_getaffinity(0))
    if len(args.cores) > 1:
        os.sched_setaffinity(0, args.cores[1:])
    runs = []
    with tempfile.TemporaryDirectory(prefix="bench-reload-") as name:
        folder = Path(name)
        script = str(ROOT / "bench" / "serving_model.py")
        command = [sys.executable, script, str(folder / "model")]
        subprocess.run(command, check=True, capture_output=True)
        for number in range(args.runs):
            runs.append(measure(folder, args))
            print(f"run {number + 1} of {args.runs}: {runs[-1]}", flush=True)

    def median(key: str) -> float:
        return round(statistics.median(run[key] for run in runs), 3)

    ratios = [run["p99_swap_ms"] / run["p99_steady_ms"] for run in runs]
    result = {
        "name": "hot_reload",
        "commit": machine.commit(),
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": machine.describe(),
        "runs": args.runs,
        "figures": {
            "swaps": min(run["swaps"] for run in runs),
            "failed_requests": sum(run["failed"] for run in runs),
            "p99_swap_vs_steady": round(statistics.median(ratios), 3),
            "rss_growth_after_50_reloads": median("rss_growth"),
            "requests": sum(run["requests"] for run in runs),
            "requests_per_s": RATE,
            "p99_swap_ms": median("p99_swap_ms"),
            "p99_steady_ms": median("p99_steady_ms"),
            "p50_steady_ms": median("p50_steady_ms"),
        },
    }
    args.result.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result["figures"], indent=2))


if __name__ == "__main__":
    main()
