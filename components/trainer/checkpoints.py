r"""Checkpoints of a training: atomic, complete, checked when read, and few.

```
<folder>/step-00001200/checkpoint.json          where training was
                       values.index             \ TensorFlow's checkpoint format:
                       values.data-00000-of-…   / tf.train.load_checkpoint reads it
<folder>/.writing                               what a killed run leaves; never read
<folder>/damaged-step-00001200                  what could not be read; never read again
```
"""

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import tensorflow as tf

from components.errors import CheckpointError, ModelError
from components.faults import reason, storage_fault
from components.trainer.request import PROGRESS_FILE
from serving.model_repository import flush

log = logging.getLogger(__name__)
PREFIX = "values"
DIGEST_KEY = "sha256"
"""In the progress file: of all the rest of it."""
WRITING = ".writing"
DAMAGES = (tf.errors.OpError, RuntimeError, LookupError, TypeError, ValueError, OSError)
"""What is raised by reading files that hold something else than was written."""
MEMORY = tf.errors.ResourceExhaustedError
"""Raised by reading as well, and no damage."""


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
    """Time in steps and waiting for their data, over all attempts."""
    between_s: float = 0.0
    """Time between steps: evaluation, digests and checkpoints."""
    waited_s: float = 0.0
    """Time that devices waited for data after the first epoch."""
    after_first_s: float = 0.0
    """Time in steps after the first epoch."""
    skipped: tuple[int, ...] = ()
    """Steps whose batch was skipped."""
    micro_batches: tuple[tuple[int, int], ...] = ()
    """`(steps done, examples that a replica computes at once from then on)`."""

    @property
    def all_s(self) -> float:
        """Time from the first step to the last, evaluation and checkpoints included.

        Over all attempts; without reading the data, building the model and exporting.
        """
        return self.seconds + self.between_s

    def computed_in(self, micro_batch_size: int) -> "Progress":
        """Note the micro-batch of the steps that follow, where it is another one."""
        noted = [each for each in self.micro_batches if each[0] < self.step]
        if not noted or noted[-1][1] != micro_batch_size:
            noted.append((self.step, micro_batch_size))
        return replace(self, micro_batches=tuple(noted))

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

    def values(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Read values by name.

        Args:
            wanted: The model's values as they are, for their names, shapes and dtypes.

        Raises:
            ModelError: The checkpoint is not of this model.
            CheckpointError: It is damaged.
        """
        with _noticing_damage(self.path):
            reader = tf.train.load_checkpoint(str(self.path / PREFIX))
            shapes = reader.get_variable_to_shape_map()
            dtypes = reader.get_variable_to_dtype_map()
        for name, value in wanted.items():
            if name not in shapes:
                raise self._of_another_model(f"it has no {name}")
            here = (tuple(shapes[name]), dtypes[name])
            there = (tuple(value.shape), tf.as_dtype(value.dtype))
            if here != there:
                raise self._of_another_model(
                    f"its {name} is {_words(*here)}, the model's is {_words(*there)}"
                )
        with _noticing_damage(self.path):
            return {name: reader.get_tensor(name) for name in wanted}

    def _of_another_model(self, why: str) -> ModelError:
        return ModelError(
            f"{self.path} is the checkpoint of another model: {why}; remove it to "
            "begin anew"
        )


def _words(shape: Sequence[int], dtype: tf.DType) -> str:
    return f"{list(shape)} {dtype.name}"


@contextmanager
def _noticing_damage(path: Path) -> Iterator[None]:
    """Tell files that hold something else than was written from all other errors."""
    try:
        yield
    except DAMAGES as error:
        if storage_fault(error, path) is not None or isinstance(error, MEMORY):
            raise
        raise CheckpointError(f"{path} is damaged ({reason(error)})") from error


class Checkpoints:
    """The checkpoints in a folder."""

    def __init__(self, folder: Path, keep: int) -> None:
        """Look after a folder, keeping so many of the newest and the best."""
        self._folder = folder
        self._keep = keep

    def all(self) -> list[Checkpoint]:
        """Return the complete checkpoints that say where they are, oldest first."""
        found = []
        for path in self._paths():
            with contextlib.suppress(CheckpointError):
                found.append(Checkpoint(path, _read(path)))
        return found

    def _paths(self) -> list[Path]:
        """Return the folders of complete checkpoints, damaged or not, oldest first."""
        found = [
            path
            for path in self._folder.glob("step-*")
            if re.fullmatch(r"step-\d{8,}", path.name)
            and (path / PROGRESS_FILE).exists()
        ]
        return sorted(found, key=_step)

    def is_empty(self) -> bool:
        """Tell whether there is none, not even a damaged one."""
        return not self._paths()

    def read_latest(
        self, wanted: Mapping[str, Any], *, may_move: bool
    ) -> tuple[Progress, dict[str, Any]] | None:
        """Read the newest that is not damaged; None when there is none.

        Args:
            wanted: The model's values as they are, for their names, shapes and dtypes.
            may_move: Whether this process sets damaged ones aside: kept among the
                others, they would be the newest for ever.

        Raises:
            ModelError: It is not of this model.
        """
        for path in reversed(self._paths()):
            try:
                found = Checkpoint(path, _read(path))
                return found.progress, found.values(wanted)
            except CheckpointError as error:
                log.warning("%s: taking the one before it", error)
                if may_move:
                    self._set_aside(path)
        log.warning("no checkpoint can be read: beginning anew")
        return None

    def _set_aside(self, path: Path) -> None:
        target = path.with_name(f"damaged-{path.name}")
        shutil.rmtree(target, ignore_errors=True)
        os.replace(path, target)

    def read_best(self, wanted: Mapping[str, Any]) -> dict[str, Any] | None:
        """Read the values at the end of the best epoch; None when there are none.

        Raises:
            ModelError: They are not of this model.
        """
        found = self.best()
        try:
            return None if found is None else found.values(wanted)
        except CheckpointError as error:
            log.warning("%s: the weights of the best epoch are lost", error)
            return None

    def latest(self) -> Checkpoint | None:
        """Return the newest; None when there is none."""
        return next(reversed(self.all()), None)

    def best(self) -> Checkpoint | None:
        """Return the one at the end of the best epoch; None when there is none."""
        among = self.all()
        return next((found for found in among if _is_best(found, among)), None)

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
        content = asdict(progress)
        (writing / PROGRESS_FILE).write_text(
            json.dumps({**content, DIGEST_KEY: _digest(content)})
        )
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


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def _read(path: Path) -> Progress:
    """Read where training was.

    Raises:
        CheckpointError: That is damaged.
    """
    with _noticing_damage(path):
        content = json.loads((path / PROGRESS_FILE).read_text())
        if content.pop(DIGEST_KEY, None) != _digest(content):
            raise ValueError(f"{PROGRESS_FILE} is not what was written")
        for name in ("history", "digests", "skipped", "micro_batches"):
            content[name] = tuple(
                tuple(item) if isinstance(item, list) else item
                for item in content[name]
            )
        return Progress(**content)


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
