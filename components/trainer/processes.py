"""Training processes on this machine: forked clean, watched, ended together."""

import contextlib
import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import reduction
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from components.trainer.cluster import TF_CONFIG, Cluster
from components.trainer.request import (
    OUTCOME_FILE,
    STARTED_FILE,
    Outcome,
    TrainingRequest,
)
from components.trainer.supervisor import Ended

PRELOAD = "components.trainer.process"
TAIL_BYTES = 20_000
GRACE_S = 20.0
"""What the other workers have to end by themselves when one has ended badly."""


class Output:
    """Standard output and error of this process, for a child of the fork server."""

    def __getstate__(self) -> Any:
        return [reduction.DupFd(number) for number in (1, 2)]

    def __setstate__(self, handles: Any) -> None:
        self._handles = handles

    def take_over(self) -> None:
        """Make them this process's own."""
        for number, handle in zip((1, 2), self._handles, strict=True):
            os.dup2(handle.detach(), number)


def launch(request: TrainingRequest) -> Ended:
    """Run one attempt: a process, or one for each local worker, to its end.

    SIGTERM is handed on, and the attempt then waited for: it saves its state.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([PRELOAD])
    for name in (OUTCOME_FILE, STARTED_FILE):
        (request.work_dir / name).unlink(missing_ok=True)
    killed_before, begun_at = _kills_for_memory(), _size_of_log()
    children = [
        context.Process(
            target=_child, args=(request.model_dump_json(), variables, Output())
        )
        for variables in _environments(request)
    ]
    with _terminating(children):
        for child in children:
            child.start()
        _wait(children)
    codes = [child.exitcode or 0 for child in children]
    return Ended(
        exit_code=next((code for code in codes if code), 0),
        outcome=_read_outcome(request.work_dir),
        micro_batch_size=_read_started(request.work_dir),
        killed_for_memory=_kills_for_memory() > killed_before,
        last_words=_log_since(begun_at),
    )


def _environments(request: TrainingRequest) -> list[dict[str, str]]:
    """Return what each process's environment holds beside this one's."""
    inherited = {
        name: os.environ[name]
        for name in (TF_CONFIG, "HOSTNAME", "JOB_COMPLETION_INDEX", "TMPDIR")
        if name in os.environ
    }
    count = request.settings.num_local_workers
    if count is None or TF_CONFIG in os.environ:
        return [inherited]
    addresses = tuple(f"127.0.0.1:{port}" for port in free_ports(count))
    return [
        {**inherited, TF_CONFIG: Cluster(addresses, index).to_tf_config()}
        for index in range(count)
    ]


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback interface that nothing listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _child(request: str, variables: dict[str, str], output: Output) -> None:
    output.take_over()
    # The fork server's environment is that of its start.
    os.environ.pop(TF_CONFIG, None)
    os.environ.update(variables)
    threading.Thread(target=die_with_parent, daemon=True).start()
    from components.trainer.process import main

    main(TrainingRequest.model_validate_json(request))


def die_with_parent() -> None:
    """End this process when its parent is gone: nobody would hear its answer."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


@contextmanager
def _terminating(children: Sequence[Any]) -> Iterator[None]:
    """Hand SIGTERM on to the children meanwhile; only the main thread can."""

    def hand_on(number: int, frame: object) -> None:
        _end(children)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, hand_on) for number in signals}
    try:
        yield
    except BaseException:
        _end(children)
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(children: Sequence[Any]) -> None:
    for child in children:
        if child.pid is not None and child.is_alive():
            child.terminate()


def _wait(children: Sequence[Any]) -> None:
    """Wait for all; when one ends badly, the others have a while to notice."""
    for _ in children:
        running = [child.sentinel for child in children if child.is_alive()]
        if not running:
            break
        wait(running)
        if any(child.exitcode for child in children):
            break
    for child in children:
        child.join(GRACE_S if any(other.exitcode for other in children) else None)
        if child.is_alive():
            child.kill()
            child.join()


def _read_outcome(folder: Path) -> Outcome | None:
    path = folder / OUTCOME_FILE
    if not path.exists():
        return None
    return Outcome.model_validate_json(path.read_text())


def _read_started(folder: Path) -> int | None:
    path = folder / STARTED_FILE
    return int(path.read_text()) if path.exists() else None


def _kills_for_memory() -> int:
    """Return how many processes the kernel has killed for memory so far."""
    total = 0
    for path in (Path("/sys/fs/cgroup/memory.events"), Path("/proc/vmstat")):
        if path.exists():
            words = dict(line.split() for line in path.read_text().splitlines())
            total += int(words.get("oom_kill", 0))
    return total


def _log_file() -> Path | None:
    """Return the file that this process prints into; None when it is none."""
    path = Path("/proc/self/fd/2").readlink()
    return path if path.is_file() else None


def _size_of_log() -> int:
    path = _log_file()
    return path.stat().st_size if path else 0


def _log_since(position: int) -> str:
    path = _log_file()
    if path is None:
        return ""
    with path.open("rb") as file:
        file.seek(max(position, path.stat().st_size - TAIL_BYTES))
        return file.read().decode(errors="replace")
