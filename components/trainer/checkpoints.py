r"""Checkpoints of a training: atomic, complete, and few.

```
<folder>/step-00001200/checkpoint.json          where training was
                       values.index             \ TensorFlow's checkpoint format:
                       values.data-00000-of-…   / tf.train.load_checkpoint reads it
<folder>/.writing                               what a killed run leaves; never read
```
"""

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import tensorflow as tf

from components.errors import ModelError
from components.trainer.request import PROGRESS_FILE
from serving.model_repository import flush

PREFIX = "values"
WRITING = ".writing"


@dataclass(frozen=True)
class Progress:
    """Where training is; enough to go on from there."""

    epoch: int = 0
    """Epochs that are done."""
    step: int = 0
    """Steps that are done, over all epochs."""
    epoch_step: int = 0
    """Steps that are done in the current epoch."""
    history: tuple[Mapping[str, float], ...] = ()
    """Loss and metrics of each epoch that is done."""
    best_epoch: int | None = None
    """Epoch with the lowest eval loss, counted from 0."""
    digests: tuple[tuple[int, str], ...] = ()
    """`(step, digest of the weights)` at intervals."""
    examples: int = 0
    """Examples gone through."""
    seconds: float = 0.0
    """Time in training, over all attempts."""
    waited_s: float = 0.0
    """Time that devices waited for data after the first epoch."""
    after_first_s: float = 0.0
    """Time in steps after the first epoch."""
    skipped: tuple[int, ...] = ()
    """Steps whose batch was skipped."""

    @property
    def best_loss(self) -> float:
        """Eval loss of the best epoch."""
        if self.best_epoch is None:
            return float("inf")
        return self.history[self.best_epoch]["val_loss"]


@dataclass(frozen=True)
class Checkpoint:
    """One complete checkpoint."""

    path: Path
    progress: Progress = field(repr=False)

    def values(self, names: Sequence[str]) -> dict[str, Any]:
        """Read values by name.

        Raises:
            ModelError: The checkpoint is not of this model.
        """
        reader = tf.train.load_checkpoint(str(self.path / PREFIX))
        known = reader.get_variable_to_shape_map()
        missing = [name for name in names if name not in known]
        if missing:
            raise ModelError(
                f"{self.path} is the checkpoint of another model: it has no "
                f"{missing[0]}; remove it to begin anew"
            )
        return {name: reader.get_tensor(name) for name in names}


class Checkpoints:
    """The checkpoints in a folder."""

    def __init__(self, folder: Path, keep: int) -> None:
        """Look after a folder, keeping so many of the newest and the best."""
        self._folder = folder
        self._keep = keep

    def all(self) -> list[Checkpoint]:
        """Return the complete checkpoints, oldest first."""
        found = []
        for path in sorted(self._folder.glob("step-*")):
            file = path / PROGRESS_FILE
            if re.fullmatch(r"step-\d{8,}", path.name) and file.exists():
                found.append(Checkpoint(path, _read(file)))
        return sorted(found, key=lambda checkpoint: checkpoint.progress.step)

    def latest(self) -> Checkpoint | None:
        """Return the newest; None when there is none."""
        return max(
            self.all(), key=lambda checkpoint: checkpoint.progress.step, default=None
        )

    def best(self) -> Checkpoint | None:
        """Return the one at the end of the best epoch; None when there is none."""
        return next(
            (found for found in self.all() if _is_best(found, self.all())), None
        )

    def save(self, values: Mapping[str, Any], progress: Progress) -> None:
        """Write a checkpoint; it is there whole or not at all. Remove old ones."""
        writing = self._folder / WRITING
        shutil.rmtree(writing, ignore_errors=True)
        writing.mkdir(parents=True)
        tf.raw_ops.SaveV2(
            prefix=str(writing / PREFIX),
            tensor_names=list(values),
            shape_and_slices=[""] * len(values),
            tensors=[tf.convert_to_tensor(value) for value in values.values()],
        )
        (writing / PROGRESS_FILE).write_text(json.dumps(asdict(progress)))
        for file in writing.iterdir():
            flush(file)
        flush(writing)
        path = self._folder / f"step-{progress.step:08d}"
        if path.exists():  # the same position: keep what says more, the newer one
            _remove(path)
        os.replace(writing, path)
        flush(self._folder)
        self._remove_old()

    def _remove_old(self) -> None:
        found = self.all()
        kept = {checkpoint.path for checkpoint in found[-self._keep :]}
        for checkpoint in found:
            if checkpoint.path not in kept and not _is_best(checkpoint, found):
                _remove(checkpoint.path)

    def clear(self) -> None:
        """Remove all of them."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _is_best(checkpoint: Checkpoint, among: Sequence[Checkpoint]) -> bool:
    newest = among[-1].progress
    here = checkpoint.progress
    return (
        newest.best_epoch is not None
        and here.epoch_step == 0
        and here.epoch == newest.best_epoch + 1
    )


def _remove(path: Path) -> None:
    """Remove a checkpoint; what a killed run leaves of it is none any more."""
    (path / PROGRESS_FILE).unlink(missing_ok=True)
    shutil.rmtree(path)


def _read(file: Path) -> Progress:
    content = json.loads(file.read_text())
    for name in ("history", "digests", "skipped"):
        content[name] = tuple(
            tuple(item) if isinstance(item, list) else item for item in content[name]
        )
    return Progress(**content)
