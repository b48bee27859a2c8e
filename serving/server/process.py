"""The embedded model server as a child process: started, ready, stopped."""

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from serving.errors import ServerError

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 20.0
NUM_READY_LINES = 3


class EmbeddedServer:
    """A server on free ports of this machine, for as long as the block runs."""

    def __init__(
        self,
        model: str,
        base_path: Path,
        log: Path,
        poll_interval_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model = model
        self._base_path = base_path
        self._log = log
        self._poll_interval_s = poll_interval_s
        self._clock = clock
        self._process: subprocess.Popen[str] | None = None
        self.host = "127.0.0.1"
        self.grpc_port = 0
        self.rest_port = 0

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._running().pid

    def __enter__(self) -> Self:
        """Start the process and wait for its ports.

        Raises:
            ServerError: It ended, or was not ready in two minutes.
        """
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdout=subprocess.PIPE,
                stderr=log,
                env=_environment(),
                text=True,
            )
        try:
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the process."""
        self.stop()

    def stop(self) -> None:
        """Ask it to stop, and end it if it does not."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _command(self) -> list[str]:
        return [
            sys.executable,
            "-P",  # a folder of the user's called `serving` is not ours
            "-m",
            "serving.server",
            f"--model_name={self._model}",
            f"--model_base_path={self._base_path.absolute()}",
            "--host=127.0.0.1",
            "--port=0",
            "--free_ports",
            "--max_num_load_retries=0",
            "--may_be_empty",
            f"--file_system_poll_wait_seconds={self._poll_interval_s}",
        ]

    def _running(self) -> "subprocess.Popen[str]":
        if self._process is None:
            raise ServerError("the embedded model server is not running")
        return self._process

    def _wait_until_ready(self) -> None:
        lines: queue.Queue[str] = queue.Queue()
        # The thread also keeps the pipe empty for as long as the server lives.
        threading.Thread(
            target=_pump, args=(self._running().stdout, lines), daemon=True
        ).start()
        deadline = self._clock() + START_TIMEOUT_S
        for _ in range(NUM_READY_LINES):
            try:
                line = lines.get(timeout=max(0.0, deadline - self._clock()))
            except queue.Empty:
                raise ServerError(
                    f"the model server was not ready in {START_TIMEOUT_S:g} s; "
                    f"its log is {self._log}"
                ) from None
            self._read(line)

    def _read(self, line: str) -> None:
        if not line:
            raise ServerError(f"the model server ended; its log is {self._log}")
        if line.startswith("gRPC"):
            self.grpc_port = int(line.rpartition(":")[2])
        elif line.startswith("REST"):
            self.rest_port = int(line.split("/")[2].rpartition(":")[2])


def _environment() -> dict[str, str]:
    """Return an environment in which the child finds this very package."""
    root = str(Path(__file__).parents[2])
    path = os.environ.get("PYTHONPATH")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([root, path] if path else [root]),
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    # With it every start compiles TensorFlow's modules anew.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def _pump(output: IO[str], lines: "queue.Queue[str]") -> None:
    with output:
        for line in output:
            lines.put(line)
    lines.put("")
