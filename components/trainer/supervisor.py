"""The parent of training processes: starts them, and decides what their end means.

```
done            the model is exported
out of memory   again, with half the micro-batch and twice the accumulation
preempted       state is saved: `ResumeError`, the run goes on when started again
failed          `ModelError` with the process's own sentence
```

A process is out of memory when it says so, when the kernel killed it for memory, or
when an allocation that failed took it down.
"""

import logging
import math
import signal
from dataclasses import dataclass
from typing import Protocol

from components.errors import ModelError, ResumeError
from components.faults import telling_of_storage
from components.trainer.request import (
    ExitCode,
    Outcome,
    TrainingRequest,
    write_atomically,
)
from serving.settings import Settings

log = logging.getLogger(__name__)
SHRINKINGS_FILE = "memory.json"
MEMORY_WORDS = (
    "std::bad_alloc",
    "Cannot allocate memory",
    "out of memory",
    "OOM when",
    "pthread_create failed",
)
"""What a process prints when an allocation takes it down."""


@dataclass(frozen=True)
class Ended:
    """How the processes of one attempt ended."""

    exit_code: int
    """Of the first that did not end well; negative for a signal; else 0."""
    outcome: Outcome | None
    """What it left; None when it was killed before it could."""
    micro_batch_size: int | None = None
    """Examples that a replica computed at once; None when it did not get so far."""
    killed_for_memory: bool = False
    """Whether the kernel counted a process killed for memory meanwhile."""
    last_words: str = ""
    """End of what the processes printed."""
    asked_to_stop: bool = False
    """Whether SIGTERM came meanwhile."""
    overdue_s: float | None = None
    """Seconds after SIGTERM at which it was killed; None when it was not."""
    has_checkpoint: bool = False
    """Whether there is something to go on from."""


class Launcher(Protocol):
    """Runs the processes of one attempt to their end."""

    def __call__(self, request: TrainingRequest) -> Ended:
        """Run one attempt."""


class Shrinking(Settings):
    """One time that memory was too little."""

    micro_batch_size: int
    """Examples that a replica computed at once until then."""
    divisor: int
    """What it was divided by."""
    reason: str
    """What said that memory was too little."""


class Shrinkings(Settings):
    """All such times of a run."""

    times: tuple[Shrinking, ...] = ()
    """In their order."""

    @property
    def divisor(self) -> int:
        """What the micro-batch of the settings is divided by by now."""
        return math.prod(time.divisor for time in self.times)


def supervise(request: TrainingRequest, launch: Launcher) -> Shrinkings:
    """Train to the end, with as many attempts as memory demands.

    Returns:
        The times that memory was too little.

    Raises:
        ModelError: Training failed, or memory is too little even so.
        ResumeError: It was asked to stop and has saved its state.
        StorageError: The work folder cannot be written.
    """
    with telling_of_storage(request.work_dir, request.project_root):
        return _supervise(request, launch)


def _supervise(request: TrainingRequest, launch: Launcher) -> Shrinkings:
    file = request.work_dir / SHRINKINGS_FILE
    shrunk = Shrinkings()
    if file.exists():
        shrunk = Shrinkings.model_validate_json(file.read_text())
    while True:
        divisor = request.micro_batch_divisor * shrunk.divisor
        asked = request.model_copy(update={"micro_batch_divisor": divisor})
        ended = launch(asked)
        outcome = understand(ended)
        match outcome.status:
            case "done":
                return shrunk
            case "preempted":
                raise ResumeError(f"{outcome.message}: run again to go on")
            case "failed":
                raise ModelError(outcome.message)
        shrunk = shrink(shrunk, ended, outcome.message, request.settings.memory_retries)
        log.warning(
            "out of memory (%s): from micro-batches of %d examples to 1/%d of that",
            outcome.message,
            shrunk.times[-1].micro_batch_size,
            shrunk.times[-1].divisor,
        )
        write_atomically(file, shrunk.model_dump_json())
        if ended.asked_to_stop:
            raise ResumeError("stopped when out of memory: run again to go on")


def shrink(shrunk: Shrinkings, ended: Ended, reason: str, retries: int) -> Shrinkings:
    """Take half the micro-batch, or the largest part that divides it.

    Raises:
        ModelError: It was tried too often, or there is nothing to divide.
    """
    size = ended.micro_batch_size
    if size is None:
        raise ModelError(f"out of memory before the first step: {reason}")
    if size == 1:
        raise ModelError(f"out of memory with one example at a time: {reason}")
    if len(shrunk.times) >= retries:
        raise ModelError(
            f"out of memory with {size} examples at a time: {reason}; set "
            f"trainer.batch_size lower, or trainer.memory_retries (now {retries}) higher"
        )
    divisor = next(n for n in range(2, size + 1) if size % n == 0)
    once = Shrinking(micro_batch_size=size, divisor=divisor, reason=reason)
    return Shrinkings(times=(*shrunk.times, once))


def understand(ended: Ended) -> Outcome:
    """Say how an attempt ended, where the process could not, too."""
    code, outcome = ended.exit_code, ended.outcome
    lack = _lack_of_memory(ended)
    if outcome is not None and code in set(ExitCode):
        return outcome
    if outcome is not None and outcome.status == "preempted" and lack is None:
        return outcome  # another process was killed; this one could save its state
    if ended.overdue_s is not None:
        return _overdue(ended.overdue_s, has_checkpoint=ended.has_checkpoint)
    if lack is not None:
        return Outcome(status="out_of_memory", message=lack)
    if code in {-signal.SIGTERM, -signal.SIGINT}:
        return Outcome(status="preempted", message="stopped before it had begun")
    how = (
        f"ended with exit code {code} before it could say why: trainer.model, or what "
        "it calls, may have ended it (os._exit)"
    )
    if code < 0:
        name = signal.Signals(-code).name
        how = f"was killed by {name}; run again to go on from its last checkpoint"
    return Outcome(status="failed", message=f"the training process {how}")


def _overdue(limit_s: float, *, has_checkpoint: bool) -> Outcome:
    how = (
        f"the training process did not end within {limit_s:.0f} s of being asked to "
        "stop, and was killed"
    )
    if has_checkpoint:
        return Outcome(status="preempted", message=f"{how}; its last checkpoint stands")
    return Outcome(status="failed", message=f"{how} before its first checkpoint")


def _lack_of_memory(ended: Ended) -> str | None:
    """Say what shows that a process was killed for memory; None if nothing does."""
    if ended.exit_code == -signal.SIGKILL and ended.killed_for_memory:
        return "the kernel killed the process for memory"
    if ended.exit_code >= 0:
        return None
    return next((words for words in MEMORY_WORDS if words in ended.last_words), None)
