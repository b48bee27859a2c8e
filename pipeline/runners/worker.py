"""The process of one step: forked with TFX loaded, its output in a log file."""

import logging
import os
import signal
import tempfile
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

from components.errors import ResumeError
from components.faults import sentence, storage_fault
from components.pusher.config import RUN_VARIABLE
from components.trainer.config import KEY_VARIABLE, PROGRESS_VARIABLE
from components.trainer.processes import die_with_parent
from pipeline.config import ProjectSettings
from pipeline.runners.job import Failure, Job, Outcome
from pipeline.runners.output import leave_out_dumps, redirect
from serving.errors import TaxiwayError


def work(job: Job, answer: Connection) -> None:
    """Run the job and send an `Outcome` or a `Failure`."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    redirect(str(job.log))
    threading.Thread(target=die_with_parent, daemon=True).start()
    with _own_temporary_files():
        outcome = _attempt(job)
    answer.send(outcome)
    answer.close()


@contextmanager
def _own_temporary_files() -> Iterator[None]:
    """Give this process a folder for temporary files, and remove it at the end.

    TensorFlow leaves one for each function that AutoGraph converts, and removes them
    when the interpreter exits: a forked child never gets there.
    """
    with tempfile.TemporaryDirectory(
        prefix="taxiway-", ignore_cleanup_errors=True
    ) as folder:
        tempfile.tempdir = os.environ["TMPDIR"] = folder
        yield


def _attempt(job: Job) -> Outcome | Failure:
    settings = ProjectSettings.from_json(job.settings)
    os.environ[KEY_VARIABLE] = job.key
    os.environ[PROGRESS_VARIABLE] = str(job.progress)
    os.environ[RUN_VARIABLE] = job.run_id
    try:
        return _run(job, settings)
    except ResumeError as error:
        return Failure(str(error), resumable=True)
    except TaxiwayError as error:
        traceback.print_exc()
        return Failure(str(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001  user code may do anything
        full = storage_fault(error, settings.state_dir, settings.root)
        if full is None:
            traceback.print_exc()
        return Failure(full or sentence(error, settings.root))


def _run(job: Job, settings: ProjectSettings) -> Outcome:
    from pipeline.runners.launch import PipelineRun
    from pipeline.user_code import make_importable

    logging.getLogger().setLevel(logging.INFO)
    leave_out_dumps()
    make_importable(settings.root)
    run = PipelineRun(settings, job.run_id, job.data_digest)
    run.adopt(job.cached)
    return run.launch(job.step)
