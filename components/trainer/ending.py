"""What an exception that ended a training means."""

import logging

import tensorflow as tf

from components.faults import reason, sentence, storage_fault
from components.trainer.loop import Preempted
from components.trainer.request import Outcome, TrainingRequest
from serving.errors import TaxiwayError

log = logging.getLogger(__name__)
MAX_MESSAGE = 2_000
"""Characters: more would not be read, nor fit into a pipe that nobody reads yet."""


def ending(error: BaseException, request: TrainingRequest) -> Outcome:
    """Say how an attempt ended, and log what a person may want to see of it."""
    if isinstance(error, Preempted):
        return Outcome(status="preempted", message=str(error), step=error.progress.step)
    full = storage_fault(error, request.work_dir, request.project_root)
    if full is not None:
        log.error("%s", full)
        return Outcome(status="failed", message=full)
    log.error("training ended", exc_info=error)
    outcome = _meaning(error, request)
    return outcome.model_copy(update={"message": outcome.message[:MAX_MESSAGE]})


def _meaning(error: BaseException, request: TrainingRequest) -> Outcome:
    match error:
        case tf.errors.ResourceExhaustedError() | MemoryError():
            return Outcome(status="out_of_memory", message=reason(error))
        case tf.errors.UnavailableError():
            message = f"another worker is gone: {reason(error)}"
            return Outcome(status="preempted", message=message)
        case TaxiwayError():
            return Outcome(status="failed", message=str(error))
        case SystemExit():
            called = sentence(error, request.project_root)
            message = f"trainer.model: {request.settings.model}: {called}"
            return Outcome(status="failed", message=message)
    message = sentence(error, request.project_root)
    return Outcome(status="failed", message=message)
