"""Training processes on this machine: forked clean, watched, ended together."""

import contextlib
import logging
import multiprocessing
import os
import signal
import socket
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import reduction
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from components.trainer.cluster import TF_CONFIG, Cluster
from components.trainer.request import (
    CHECKPOINT_FILES,
    OUTCOME_FILE,
    STARTED_FILE,
    ExitCode,
    Outcome,
    TrainingRequest,
)
from components.trainer.supervisor import Ended

log = logging.getLogger(__name__)
PRELOAD = "components.trainer.preload"
TAIL_BYTES = 20_000
STOP_LIMIT_S = 300.0
"""What an attempt has to end when it is asked to: a long step, an evaluation and the
writing of a checkpoint go into it."""
GRACE_S = 20.0
"""What the other workers have to end by themselves when one has ended badly."""


class Output:
    """A descriptor that this process prints to, for a child to print to as well."""

    def __init__(self, file: int) -> None:
        self._file = file

    def __getstate__(self) -> Any:
        return reduction.DupFd(self._file)

    def __setstate__(self, handle: Any) -> None:
        self._file = handle.detach()

    def take_over(self) -> None:
        """Make it this process's standard output and error."""
        for number in (1, 2):
            os.dup2(self._file, number)

    def size(self) -> int:
        """Return how many bytes are in it; 0 where it is no file."""
        status = os.fstat(self._file)
        return status.st_size if stat.S_ISREG(status.st_mode) else 0

    def since(self, position: int) -> str:
        """Return what was printed after a position, the end of it; "" if no file."""
        size = self.size()
        if size <= position:
            return ""
        with Path(f"/proc/self/fd/{self._file}").open("rb") as file:
            file.seek(max(position, size - TAIL_BYTES))
            return file.read().decode(errors="replace")


def launch(request: TrainingRequest, stop_limit_s: float = STOP_LIMIT_S) -> Ended:
    """Run one attempt: a process, or one for each local worker, to its end.

    What they print goes where this process's standard error goes. SIGTERM is handed
    on, and the attempt then waited for: it saves its state.

    Args:
        request: What is asked for.
        stop_limit_s: What the attempt has to end when it is asked to; then it is
            killed.
    """
    output = Output(2)
    # tensorflow_transform would choose Keras 2 for the fork server and its children.
    os.environ["TF_USE_LEGACY_KERAS"] = "0"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([PRELOAD])
    for path in (*_outcome_files(request), request.work_dir / STARTED_FILE):
        path.unlink(missing_ok=True)
    killed_before, begun_at = _kills_for_memory(), output.size()
    content, children, pipes = request.model_dump_json(), [], []
    for variables in environments(request):
        pipe = context.Pipe(duplex=False)
        arguments = (content, variables, output, pipe[1])
        children.append(context.Process(target=_child, args=arguments))
        pipes.append(pipe)
    with _terminating(children, stop_limit_s) as stop:
        for child, (_, sender) in zip(children, pipes, strict=True):
            child.start()
            sender.close()
            if stop.asked:  # while it was started: nobody could be told
                child.terminate()
        if served := len(children) > 1 and bool(request.settings.num_local_servers):
            _wait_for_chief(children, request.settings.num_local_workers or 0)
        else:
            _wait(children)
    outcomes = [_heard(receiver) for receiver, _ in pipes]
    # Whom a chief gives work to may be killed meanwhile, and is in the end.
    deciding = children[:1] if served else children
    outcomes = outcomes[:1] if served else [*outcomes, *_left(request)]
    exit_code, outcome = decide(
        [child.exitcode or 0 for child in deciding],
        [outcome for outcome in outcomes if outcome is not None],
    )
    return Ended(
        exit_code=exit_code,
        outcome=outcome,
        asked_to_stop=stop.asked,
        overdue_s=stop_limit_s if stop.overdue else None,
        has_checkpoint=any(request.work_dir.glob(CHECKPOINT_FILES)),
        micro_batch_size=_read_started(request.work_dir),
        killed_for_memory=_kills_for_memory() > killed_before,
        last_words=output.since(begun_at),
    )


def environments(request: TrainingRequest) -> list[dict[str, str]]:
    """Return what each process's environment holds beside this one's."""
    inherited = {
        name: os.environ[name]
        for name in (TF_CONFIG, "HOSTNAME", "JOB_COMPLETION_INDEX", "TMPDIR")
        if name in os.environ
    }
    count = request.settings.num_local_workers
    if count is None or TF_CONFIG in os.environ:
        return [inherited]
    num_servers = request.settings.num_local_servers or 0
    has_chief = num_servers > 0
    computing = count + int(has_chief)
    ports = free_ports(computing + num_servers)
    addresses = tuple(f"127.0.0.1:{port}" for port in ports)
    clusters = [
        Cluster(addresses[:computing], index, has_chief, addresses[computing:])
        for index in range(len(addresses))
    ]
    return [{**inherited, TF_CONFIG: each.to_tf_config()} for each in clusters]


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback interface that nothing listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _heard(receiver: Connection) -> Outcome | None:
    """Return what a process that has ended said; None when it was killed before."""
    with receiver:
        try:
            text = receiver.recv() if receiver.poll() else None
        except EOFError:
            return None
    return None if text is None else Outcome.model_validate_json(text)


def _left(request: TrainingRequest) -> list[Outcome]:
    """Return what workers left in the work folder, those of other machines too."""
    found = []
    for path in _outcome_files(request):
        with contextlib.suppress(FileNotFoundError):  # another machine begins anew
            found.append(Outcome.model_validate_json(path.read_text()))
    return found


def _child(
    request: str, variables: dict[str, str], output: Output, answer: Connection
) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    output.take_over()
    # The fork server's environment is that of its start.
    os.environ.pop(TF_CONFIG, None)
    os.environ.update(variables)
    threading.Thread(target=die_with_parent, daemon=True).start()
    from components.trainer.process import main

    main(
        TrainingRequest.model_validate_json(request),
        lambda outcome: answer.send(outcome.model_dump_json()),
    )


def die_with_parent() -> None:
    """End this process when its parent is gone: nobody would hear its answer."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def outlive_sigterm() -> None:
    """Let this fork server live on when its whole group or service is told to stop.

    `timeout`, systemd and batch systems tell all processes. Without its server nobody
    would hear how a process ends that saves its state meanwhile. A child that is told
    before it has a handler of its own ends.
    """
    server = os.getpid()

    def hear(number: int, _: object) -> None:
        if os.getpid() != server:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, hear)


@dataclass
class Stop:
    """Whether an attempt was asked to stop, and killed since it did not."""

    asked: bool = False
    overdue: bool = False


@contextmanager
def _terminating(children: Sequence[Any], limit_s: float) -> Iterator[Stop]:
    """Hand SIGTERM on to the children meanwhile; only the main thread can.

    A child may not hear it: what waits in a library, for a service or a file server,
    never comes back to Python. So it is killed after a while.
    """
    stop = Stop()

    def kill() -> None:
        stop.overdue = True
        log.warning("still running %.0f s after being asked to stop: killed", limit_s)
        for child in children:
            if child.is_alive():
                child.kill()

    late = threading.Timer(limit_s, kill)
    late.daemon = True

    def hand_on(*_: object) -> None:
        if not stop.asked:
            stop.asked = True
            late.start()
        _end(children)

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    signals = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, hand_on) for number in signals}
    try:
        yield stop
    except BaseException:
        _end(children)
        raise
    finally:
        late.cancel()
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


def _wait_for_chief(children: Sequence[Any], num_workers: int) -> None:
    """Wait for the chief, the first; workers follow, then servers.

    Workers may end before it. When none is left it is told to stop.
    """
    chief, *others = children
    while chief.is_alive():
        left = [worker for worker in others[:num_workers] if worker.is_alive()]
        if not left:
            _end([chief])
            chief.join()
        wait([child.sentinel for child in (chief, *left)])
    for child in others:  # they hold nothing that anybody would miss
        child.kill()
        child.join()


def _outcome_files(request: TrainingRequest) -> list[Path]:
    return sorted(request.work_dir.glob(OUTCOME_FILE.format("*")))


def decide(
    exit_codes: Sequence[int], outcomes: Sequence[Outcome]
) -> tuple[int, Outcome | None]:
    """Say how several processes ended together.

    What one of them says of itself counts before how the others fell with it, and a
    lack of memory or a failure before being left alone.

    Args:
        exit_codes: Of each process that counts; negative for a signal.
        outcomes: What those that could have left.

    Returns:
        Exit code and outcome; where a process was killed, what the others say that
        could save their state, else None.
    """
    for status in ("failed", "out_of_memory"):
        for outcome in outcomes:
            if outcome.status == status:
                return outcome.exit_code, outcome
    stopped = next((each for each in outcomes if each.status == "preempted"), None)
    killed = next((code for code in exit_codes if code not in set(ExitCode)), None)
    if killed is not None:
        return killed, stopped
    if stopped is not None:
        return stopped.exit_code, stopped
    return next(filter(None, exit_codes), 0), next(iter(outcomes), None)


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
