"""What a training process is asked for, and what it answers."""

import contextlib
import json
import os
from enum import IntEnum
from pathlib import Path
from typing import Literal

from components.features import FeatureTable
from components.trainer.config import TrainerSettings
from serving.settings import Settings

OUTCOME_FILE = "outcome-{}.json"
CHECKPOINT_FOLDER = "checkpoints"
PROGRESS_FILE = "checkpoint.json"
"""In a checkpoint: where training was; the checkpoint is complete when it is there."""
CHECKPOINT_FILES = f"{CHECKPOINT_FOLDER}/step-*/{PROGRESS_FILE}"
SUMMARY_FILE = "summary.json"
"""Beside TensorBoard's files: what came of the training."""
STARTED_FILE = "started.json"
"""Holds the micro-batch size of the attempt that runs."""


class ExitCode(IntEnum):
    """How a training process ends."""

    DONE = 0
    FAILED = 1
    OUT_OF_MEMORY = 74
    """It says so itself; the next attempt takes half the micro-batch."""
    RESUME = 75
    """EX_TEMPFAIL of sysexits.h: state was saved, start it again to go on."""


class Digests(Settings):
    """What tells the data of a training from other data."""

    data: str
    """sha256 of the transformed examples."""
    transform: str
    """sha256 of the Transform graph's files."""


class TrainingRequest(Settings):
    """Everything that a training process needs; the record keeps it for a replay."""

    table: FeatureTable
    """The feature table."""
    settings: TrainerSettings
    """The `trainer` section of the settings."""
    train_files: tuple[str, ...]
    """Patterns of gzipped TFRecord files of transformed tf.Examples."""
    eval_files: tuple[str, ...]
    """The same for the eval split."""
    transform_output: str
    """Folder of the Transform graph."""
    work_dir: Path
    """Checkpoints, disk caches and the outcome; on a file system of all workers."""
    export_dir: Path
    """Where the SavedModel goes."""
    log_dir: Path
    """Where the summary, the record and TensorBoard's files go."""
    project_root: Path
    """The user's project, importable, and asked for its git commit."""
    progress_file: Path | None = None
    """Where one line about the progress is kept."""
    micro_batch_divisor: int = 1
    """Doubled each time that the run was out of memory."""
    digests: Digests | None = None
    """Of what is read, where they are known: they take a reading of their own."""

    @property
    def accumulation(self) -> int:
        """Micro-batches of a replica for one change of the weights."""
        return self.settings.accumulation_steps * self.micro_batch_divisor


class Outcome(Settings):
    """How an attempt ended."""

    status: Literal["done", "failed", "out_of_memory", "preempted"]
    """`preempted`: it saved its state and can go on."""
    message: str = ""
    """Why, in a sentence."""
    step: int = 0
    """Steps that are done and saved."""

    def write(self, folder: Path, index: int) -> None:
        """Leave it for the parent, as the process of this number among all."""
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / OUTCOME_FILE.format(index), self.model_dump_json())

    @property
    def exit_code(self) -> ExitCode:
        """What the process exits with."""
        return {
            "done": ExitCode.DONE,
            "failed": ExitCode.FAILED,
            "out_of_memory": ExitCode.OUT_OF_MEMORY,
            "preempted": ExitCode.RESUME,
        }[self.status]


def write_atomically(path: Path, text: str) -> None:
    """Write a small file that a reader sees whole or not at all.

    Raises:
        OSError: It cannot be written; names the path, which a full disk does not.
    """
    staged = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        staged.write_text(text)
        os.replace(staged, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            staged.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_json(path: Path, content: object) -> None:
    """Write JSON for people, whole or not at all."""
    write_atomically(path, json.dumps(content, indent=2) + "\n")
