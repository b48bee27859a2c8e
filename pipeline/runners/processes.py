"""Processes for steps: forked from one that has imported TFX, once for a run."""

import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path

from pipeline.runners.job import Failure, Job, Outcome
from pipeline.runners.output import LOG_VARIABLE
from pipeline.runners.worker import work

PRELOAD = "pipeline.runners.preload"
POLL_S = 0.5


class StepProcesses:
    """Runs jobs, each in a fresh child of a server that has TFX loaded."""

    def __init__(self, preload_log: Path) -> None:
        self._preload_log = preload_log
        self._context: ForkServerContext = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([PRELOAD])
        with _environment(preload_log):
            forkserver.ensure_running()

    def load(self) -> None:
        """Wait until TFX is loaded: the first child can only start then."""
        process = self._context.Process(target=_nothing)
        process.start()
        process.join()

    def run(
        self, job: Job, watch: Callable[[str], None], wants_stop: Callable[[], bool]
    ) -> Outcome | Failure:
        """Run one job to its end; a process that dies is a failure, too.

        Args:
            job: The job.
            watch: Told how far the step is, now and then.
            wants_stop: Whether the run was asked to stop; the step is then asked, too,
                and given the time that it takes.
        """
        receiver, sender = self._context.Pipe(duplex=False)
        process = self._context.Process(target=work, args=(job, sender))
        process.start()
        sender.close()
        asked = False
        try:
            while not receiver.poll(POLL_S):
                if wants_stop() and not asked:
                    asked = True
                    process.terminate()
                if job.progress.exists():
                    watch(job.progress.read_text())
            answer: Outcome | Failure = receiver.recv()
        except EOFError:
            process.join()
            stopped = asked or wants_stop()  # a terminal tells the step itself, too
            return Failure(self._death(process.exitcode), resumable=stopped)
        except BaseException:
            process.terminate()
            raise
        finally:
            process.join()
        return answer

    def _death(self, exit_code: int | None) -> str:
        if exit_code is not None and exit_code < 0:
            hint = "; was the machine out of memory?" if exit_code == -9 else ""
            return f"its process was killed by signal {-exit_code}{hint}"
        return (
            f"its process ended with exit code {exit_code} and no answer; "
            f"see {self._preload_log}"
        )


def _nothing() -> None:
    """Do nothing; see `StepProcesses.load`."""


@contextmanager
def _environment(preload_log: Path) -> Iterator[None]:
    """Set what the server and the steps inherit, and only they."""
    before = dict(os.environ)
    os.environ[LOG_VARIABLE] = str(preload_log)
    # Keras 3 for user code; tensorflow_transform would choose Keras 2 for all.
    os.environ["TF_USE_LEGACY_KERAS"] = "0"
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "1"
    # With it every import of TFX compiles all of it anew: 25 s instead of 8.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
