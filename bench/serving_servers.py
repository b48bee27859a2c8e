"""Runs a contender's server on one core, and holds its answers to the first one's."""

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from serving_contenders import PREDICT, ROOT, Contender, Ports, predict_request

START_TIMEOUT_S = 120.0
ONE_ROW = json.dumps({"instances": [[i / 19 for i in range(20)]]}).encode()


def pinned(core: int, command: Sequence[str]) -> list[str]:
    """Return a command on one core."""
    return ["taskset", "-c", str(core), *command]


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Server:
    """A contender that runs."""

    ports: Ports
    pid: int
    start_s: float
    """Seconds to its first answer."""


@contextmanager
def running(contender: Contender, folder: Path, core: int) -> Iterator[Server]:
    """Run a server on one core."""
    ports = Ports(free_port(), free_port())
    environment = {
        **os.environ,
        **contender.environment,
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "PYTHONPATH": str(ROOT) if not contender.requirements else "",
    }
    started = time.monotonic()
    with (folder / f"{contender.name}.log").open("ab") as log:
        process = subprocess.Popen(
            pinned(core, contender.command(folder / "m", ports)),
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
    try:
        wait_for_answer(contender, ports, process)
        yield Server(ports, process.pid, time.monotonic() - started)
    finally:
        # The whole group: some servers are several processes.
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for_answer(
    contender: Contender, ports: Ports, process: "subprocess.Popen[bytes]"
) -> None:
    """Ask until the server answers, and hold the answer to what it must be."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{contender.name} ended with {process.returncode}")
        try:
            if contender.rest:
                check(ask_rest(contender, ports))
            if contender.grpc == PREDICT:
                check(ask_grpc(ports))
        except (OSError, urllib.error.URLError, ConnectionError):
            time.sleep(0.02)
        else:
            return
    raise RuntimeError(f"{contender.name} did not answer in {START_TIMEOUT_S:g} s")


def ask_rest(contender: Contender, ports: Ports) -> float:
    """Ask for one prediction."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{ports.rest}{contender.rest}",
        ONE_ROW,
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310  loopback
        return float(json.loads(response.read())["predictions"][0][0])


def ask_grpc(ports: Ports) -> float:
    """Ask for one prediction."""
    import grpc
    import numpy as np

    from serving import apis

    x = np.array(json.loads(ONE_ROW)["instances"], np.float32)
    with grpc.insecure_channel(f"127.0.0.1:{ports.grpc}") as channel:
        try:
            answer = channel.unary_unary(PREDICT)(predict_request(x), timeout=10)
        except grpc.RpcError as error:
            raise ConnectionError(str(error.code())) from error
    return float(apis.PredictResponse.FromString(answer).outputs["y"].float_val[0])


EXPECTED: list[float] = []


def check(value: float) -> None:
    """Hold every server to the first one's answer."""
    EXPECTED.append(value)
    if abs(value - EXPECTED[0]) > 1e-5:
        raise RuntimeError(f"got {value}, expected {EXPECTED[0]}")
