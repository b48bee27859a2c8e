"""Checkpoints are there whole or not at all, the newest and the best are kept."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from components.errors import ModelError
from components.trainer.checkpoints import (
    WRITING,
    Checkpoint,
    Checkpoints,
    Progress,
)
from components.trainer.request import PROGRESS_FILE


def values_at(step: int) -> dict[str, Any]:
    return {
        "trainable/0000/kernel": np.full((3, 2), step, np.float32),
        "optimizer/0000/iteration": np.int64(step),
    }


def holds(checkpoint: Checkpoint | None) -> int:
    """Read a checkpoint in full and return the step that its values are of."""
    assert checkpoint is not None
    step = checkpoint.progress.step
    read = checkpoint.values(values_at(0))
    for name, value in values_at(step).items():
        np.testing.assert_array_equal(read[name], value)
        assert read[name].dtype == value.dtype
    return step


def save(checkpoints: Checkpoints, step: int, **progress: Any) -> None:
    checkpoints.save(values_at(step), Progress(step=step, **progress))


def steps(checkpoints: Checkpoints) -> list[int]:
    return [checkpoint.progress.step for checkpoint in checkpoints.all()]


def test_a_folder_that_is_not_there_holds_no_checkpoints(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "none", keep=2)
    assert checkpoints.all() == []
    assert checkpoints.latest() is None
    assert checkpoints.best() is None


def test_a_checkpoint_gives_back_all_of_the_progress(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    progress = Progress(
        epoch=2,
        step=7,
        epoch_step=1,
        history=({"loss": 0.5, "val_loss": 0.7}, {"loss": 0.4, "val_loss": 0.6}),
        best_epoch=1,
        digests=((3, "ab"), (6, "cd")),
        examples=70,
        seconds=1.5,
        waited_s=0.25,
        after_first_s=0.75,
        skipped=(4,),
        micro_batches=((0, 8), (5, 4)),
    )
    checkpoints.save(values_at(7), progress)
    found = checkpoints.latest()
    assert found is not None
    assert found.progress == progress
    assert holds(found) == 7


def test_a_loss_that_is_not_a_number_comes_back(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    save(checkpoints, 1, epoch=1, history=({"val_loss": float("nan")},))
    found = checkpoints.latest()
    assert found is not None
    assert np.isnan(found.progress.history[0]["val_loss"])


def test_the_best_loss_of_no_epoch_is_worse_than_any() -> None:
    assert Progress().best_loss == float("inf")
    history = ({"val_loss": 0.7}, {"val_loss": 0.6})
    assert Progress(history=history, best_epoch=1).best_loss == 0.6


def test_the_latest_is_the_one_with_most_steps_beyond_eight_digits_too(
    tmp_path: Path,
) -> None:
    checkpoints = Checkpoints(tmp_path, keep=9)
    for step in (99_999_999, 100_000_000, 5):
        save(checkpoints, step)
    assert steps(checkpoints) == [5, 99_999_999, 100_000_000]
    assert holds(checkpoints.latest()) == 100_000_000


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_so_many_of_the_newest_are_kept(tmp_path: Path, keep: int) -> None:
    checkpoints = Checkpoints(tmp_path, keep=keep)
    for step in range(1, 6):
        save(checkpoints, step, epoch_step=step)
    assert steps(checkpoints) == list(range(6 - keep, 6))
    assert len(list(tmp_path.iterdir())) == keep


def test_the_best_is_kept_though_newer_ones_come(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    history = tuple({"val_loss": loss} for loss in (0.5, 0.3, 0.4, 0.6))
    for epoch in range(1, 5):
        best = 0 if epoch == 1 else 1
        save(
            checkpoints,
            epoch * 10,
            epoch=epoch,
            history=history[:epoch],
            best_epoch=best,
        )
    save(checkpoints, 45, epoch=4, epoch_step=5, history=history, best_epoch=1)
    assert steps(checkpoints) == [20, 45]
    assert holds(checkpoints.best()) == 20
    assert holds(checkpoints.latest()) == 45


def test_a_checkpoint_within_the_epoch_after_the_best_is_not_the_best(
    tmp_path: Path,
) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    save(
        checkpoints, 12, epoch=1, epoch_step=2, history=({"val_loss": 1},), best_epoch=0
    )
    assert checkpoints.best() is None


def test_what_a_killed_run_leaves_is_never_selected(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    save(checkpoints, 3)
    for name in ("step-00000009", "step-7", "step-00000010.tmp", "other"):
        shutil.copytree(tmp_path / "step-00000003", tmp_path / name)
    (tmp_path / "step-00000009" / PROGRESS_FILE).unlink()
    shutil.copytree(tmp_path / "step-00000003", tmp_path / WRITING)
    assert steps(checkpoints) == [3]
    assert holds(checkpoints.latest()) == 3


def test_saving_goes_over_what_a_killed_run_left(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    for name in (WRITING, "step-00000004"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "values.index").write_text("half")
    save(checkpoints, 4)
    assert holds(checkpoints.latest()) == 4
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000004"]


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    save(checkpoints, 1)
    found = checkpoints.latest()
    assert found is not None
    with pytest.raises(ModelError) as error:
        found.values({**values_at(0), "trainable/0001/bias": np.float32(0)})
    assert str(error.value) == (
        f"{tmp_path}/step-00000001 is the checkpoint of another model: it has no "
        "trainable/0001/bias; remove it to begin anew"
    )


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.zeros((3, 4), np.float32), "[3, 2] float32, the model's is [3, 4] float32"),
        (np.zeros((3, 2), np.float16), "[3, 2] float32, the model's is [3, 2] float16"),
    ],
)
def test_a_checkpoint_whose_values_do_not_fit_is_of_another_model(
    value: np.ndarray, words: str, tmp_path: Path
) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    save(checkpoints, 1)
    save(checkpoints, 2)
    with pytest.raises(ModelError) as error:
        checkpoints.read_latest(
            {**values_at(0), "trainable/0000/kernel": value}, may_move=True
        )
    assert str(error.value) == (
        f"{tmp_path}/step-00000002 is the checkpoint of another model: its "
        f"trainable/0000/kernel is {words}; remove it to begin anew"
    )
    assert steps(checkpoints) == [1, 2]


def test_a_change_of_the_micro_batch_is_noted_with_its_step() -> None:
    begun = Progress().computed_in(64)
    assert begun.micro_batches == ((0, 64),)
    assert begun.computed_in(32).micro_batches == ((0, 32),)
    later = replace(begun, step=7)
    assert later.computed_in(64) == later
    changed = later.computed_in(32)
    assert changed.micro_batches == ((0, 64), (7, 32))
    assert changed.computed_in(16).micro_batches == ((0, 64), (7, 16))
    assert changed.computed_in(64) == later


FILES = (PROGRESS_FILE, "values.index", "values.data-00000-of-00001")


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def overwrite(file: Path) -> None:
    file.write_bytes(bytes(255 - byte for byte in file.read_bytes()))


@pytest.mark.parametrize("damage", [truncate, empty, overwrite, Path.unlink])
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_newest_checkpoint_is_passed_over_with_a_warning(
    name: str,
    damage: Callable[[Path], None],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    save(checkpoints, 1)
    save(checkpoints, 2)
    damage(tmp_path / "step-00000002" / name)
    found = checkpoints.read_latest(values_at(0), may_move=True)
    assert found is not None
    progress, values = found
    assert (progress.step, values["optimizer/0000/iteration"]) == (1, 1)
    if (name, damage) == (PROGRESS_FILE, Path.unlink):
        return  # as of a run that was killed: it was never complete
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert record.message.startswith(f"{tmp_path}/step-00000002 is damaged (")
    assert record.message.endswith("): taking the one before it")
    save(checkpoints, 2)  # the same step again, and the one after it
    save(checkpoints, 3)
    assert steps(checkpoints) == [2, 3]
    assert holds(checkpoints.latest()) == 3


@pytest.mark.parametrize("name", FILES)
def test_no_wrong_byte_gives_wrong_values(name: str, tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    save(checkpoints, 2, history=({"val_loss": 0.5},))
    file = tmp_path / "step-00000002" / name
    right, num_noticed = file.read_bytes(), 0
    for place in range(len(right)):
        wrong = bytearray(right)
        wrong[place] ^= 0x10
        file.write_bytes(wrong)
        found = checkpoints.read_latest(values_at(0), may_move=False)
        if found is None:
            num_noticed += 1
            continue
        assert found[0] == Progress(step=2, history=({"val_loss": 0.5},))
        for key, value in values_at(2).items():
            np.testing.assert_array_equal(found[1][key], value)
    assert num_noticed > 10


def test_where_all_are_damaged_training_begins_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in (1, 2):
        save(checkpoints, step)
        (tmp_path / f"step-{step:08d}" / "values.index").unlink()
    assert not checkpoints.is_empty()
    assert checkpoints.read_latest(values_at(0), may_move=True) is None
    assert caplog.messages[-1] == "no checkpoint can be read: beginning anew"
    assert checkpoints.is_empty()


def test_only_one_of_several_workers_sets_a_damaged_one_aside(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    save(checkpoints, 1)
    (tmp_path / "step-00000001" / "values.index").unlink()
    assert checkpoints.read_latest(values_at(0), may_move=False) is None
    assert not checkpoints.is_empty()


def test_what_cannot_be_read_for_another_reason_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files may be whole: nothing is set aside."""
    checkpoints = Checkpoints(tmp_path, keep=2)
    save(checkpoints, 1)

    def refuse(_: str) -> None:
        raise tf.errors.PermissionDeniedError(None, None, "/x; Permission denied")

    monkeypatch.setattr(tf.train, "load_checkpoint", refuse)
    with pytest.raises(tf.errors.PermissionDeniedError):
        checkpoints.read_latest(values_at(0), may_move=True)
    assert steps(checkpoints) == [1]


def test_a_damaged_best_checkpoint_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    save(checkpoints, 1, epoch=1, history=({"val_loss": 1.0},), best_epoch=0)
    values = checkpoints.read_best(values_at(0))
    assert values is not None
    truncate(tmp_path / "step-00000001" / "values.data-00000-of-00001")
    assert checkpoints.read_best(values_at(0)) is None
    assert caplog.messages[-1].endswith("the weights of the best epoch are lost")


def test_clear_removes_all(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=1)
    save(checkpoints, 1)
    checkpoints.clear()
    assert list(tmp_path.iterdir()) == []


class Killed(BaseException):
    """What nothing catches, like SIGKILL."""


@dataclass
class Killer:
    """Ends the process at a call, before or after the call has had its effect."""

    at: int
    after: bool
    calls: int = 0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            number, self.calls = self.calls, self.calls + 1
            if number == self.at and not self.after:
                raise Killed
            result = function(*args, **kwargs)
            if number == self.at:
                raise Killed
            return result

        return call


EFFECTS = (
    (os, "mkdir"),
    (os, "fsync"),
    (os, "replace"),
    (os, "unlink"),
    (os, "rmdir"),
    (tf.raw_ops, "SaveV2"),
    (Path, "write_text"),
    (json, "dumps"),
)
"""Each call by which `save` changes something, those within `shutil.rmtree` too."""


real_scandir = os.scandir


@contextmanager
def progress_last(folder: Any) -> Iterator[Iterator[os.DirEntry[str]]]:
    """List a folder in the order in which a half removal does most harm."""
    with real_scandir(folder) as found:
        yield iter(sorted(found, key=lambda entry: entry.name == PROGRESS_FILE))


@contextmanager
def killed_at(killer: Killer) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in EFFECTS:
            patch.setattr(owner, name, killer.around(getattr(owner, name)))
        patch.setattr(os, "scandir", progress_last)
        yield


def interrupted(
    folder: Path, step: int, keep: int, killer: Killer
) -> tuple[Checkpoints, bool]:
    """Save a step over an earlier state, killed in between; tell whether it was."""
    before = Checkpoints(folder, keep=9)
    for earlier in (1, 2, 3):
        save(before, earlier)
    (folder / WRITING).mkdir()
    (folder / WRITING / "values.index").write_text("half")
    checkpoints = Checkpoints(folder, keep)
    try:
        with killed_at(killer):
            save(checkpoints, step)
    except Killed:
        return checkpoints, True
    return checkpoints, False


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("step", "keep"), [(4, 1), (4, 2), (3, 2)])
def test_a_kill_at_any_moment_of_saving_leaves_a_checkpoint_that_can_be_read(
    tmp_path: Path, step: int, keep: int, *, after: bool
) -> None:
    was_killed, moment = True, 0
    while was_killed:
        folder = tmp_path / str(moment)
        killer = Killer(moment, after)
        checkpoints, was_killed = interrupted(folder, step, keep, killer)
        latest = holds(checkpoints.latest())
        assert latest in ({3, 4} if step == 4 else {2, 3})
        for each in checkpoints.all():
            holds(each)
        save(checkpoints, 5)
        assert holds(checkpoints.latest()) == 5
        moment += 1
    assert moment > 10  # it was killed at many moments, and at last not at all


def test_nothing_is_renamed_before_all_of_it_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[int] = set()
    renamed: list[set[int]] = []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(handle: int) -> None:
        real_fsync(handle)
        synced.add(os.fstat(handle).st_ino)

    def replace(source: Path, target: Path) -> None:
        here = {path.stat().st_ino for path in (source, *source.iterdir())}
        renamed.append(here - synced)
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    save(Checkpoints(tmp_path, keep=1), 1)
    assert renamed == [set()]
    assert tmp_path.stat().st_ino in synced
