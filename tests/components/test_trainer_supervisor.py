"""What the end of a training process means, and what is done about it."""

import json
import math
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.errors import ModelError, ResumeError, StorageError
from components.trainer.request import ExitCode, Outcome, TrainingRequest
from components.trainer.supervisor import (
    SHRINKINGS_FILE,
    Ended,
    Shrinking,
    Shrinkings,
    shrink,
    supervise,
    understand,
)

DONE = Ended(ExitCode.DONE, Outcome(status="done", step=9))


def out_of_memory(size: int | None) -> Ended:
    outcome = Outcome(status="out_of_memory", message="OOM when allocating")
    return Ended(ExitCode.OUT_OF_MEMORY, outcome, size)


def request(folder: Path, **settings: Any) -> TrainingRequest:
    return TrainingRequest.model_validate(
        {
            "table": {
                "label": {"column": "y", "kind": "binary"},
                "features": {"x": {"kind": "numeric"}},
            },
            "settings": settings,
            "train_files": ["t*"],
            "eval_files": ["e*"],
            "transform_output": "transform",
            "work_dir": folder,
            "export_dir": folder / "export",
            "log_dir": folder / "log",
            "project_root": folder,
        }
    )


class FakeLauncher:
    """Ends each attempt as told, and keeps what it was asked for."""

    def __init__(self, *ends: Ended) -> None:
        self._ends = iter(ends)
        self.asked: list[TrainingRequest] = []

    def __call__(self, request: TrainingRequest) -> Ended:
        self.asked.append(request)
        return next(self._ends)

    @property
    def divisors(self) -> list[int]:
        return [asked.micro_batch_divisor for asked in self.asked]


def test_a_run_that_goes_well_is_launched_once(tmp_path: Path) -> None:
    launcher = FakeLauncher(DONE)
    assert supervise(request(tmp_path), launcher) == Shrinkings()
    assert launcher.asked == [request(tmp_path)]
    assert list(tmp_path.iterdir()) == []


def test_out_of_memory_twice_goes_on_with_a_quarter_each_time_as_often(
    tmp_path: Path,
) -> None:
    launcher = FakeLauncher(out_of_memory(64), out_of_memory(32), DONE)
    asked = request(tmp_path, accumulation_steps=3)
    shrunk = supervise(asked, launcher)
    assert launcher.divisors == [1, 2, 4]
    assert [each.accumulation for each in launcher.asked] == [3, 6, 12]
    assert [(t.micro_batch_size, t.divisor) for t in shrunk.times] == [(64, 2), (32, 2)]
    assert {time.reason for time in shrunk.times} == {"OOM when allocating"}


def test_what_memory_demanded_is_remembered_by_a_later_call(tmp_path: Path) -> None:
    preempted = Ended(ExitCode.RESUME, Outcome(status="preempted", message="stopped"))
    with pytest.raises(ResumeError):
        supervise(request(tmp_path), FakeLauncher(out_of_memory(64), preempted))
    launcher = FakeLauncher(out_of_memory(32), DONE)
    shrunk = supervise(request(tmp_path), launcher)
    assert launcher.divisors == [2, 4]
    assert [time.micro_batch_size for time in shrunk.times] == [64, 32]


def test_the_times_are_on_disk_before_the_next_attempt(tmp_path: Path) -> None:
    class Looking(FakeLauncher):
        def __call__(self, request: TrainingRequest) -> Ended:
            file = tmp_path / SHRINKINGS_FILE
            seen.append(
                len(json.loads(file.read_text())["times"]) if file.exists() else 0
            )
            return super().__call__(request)

    seen: list[int] = []
    supervise(request(tmp_path), Looking(out_of_memory(4), out_of_memory(2), DONE))
    assert seen == [0, 1, 2]


def test_a_preempted_run_invites_to_run_again(tmp_path: Path) -> None:
    outcome = Outcome(
        status="preempted", message="stopped after step 7; its state is saved", step=7
    )
    with pytest.raises(ResumeError) as error:
        supervise(request(tmp_path), FakeLauncher(Ended(ExitCode.RESUME, outcome)))
    assert error.value.exit_code == 75
    assert str(error.value) == (
        "stopped after step 7; its state is saved: run again to go on"
    )


def test_a_failed_run_fails_with_the_processs_own_sentence(tmp_path: Path) -> None:
    outcome = Outcome(status="failed", message="trainer.device: got gpu, but …")
    with pytest.raises(ModelError, match=r"^trainer.device: got gpu, but …$"):
        supervise(request(tmp_path), FakeLauncher(Ended(ExitCode.FAILED, outcome)))


def test_memory_is_not_retried_more_often_than_asked(tmp_path: Path) -> None:
    launcher = FakeLauncher(out_of_memory(8), out_of_memory(4), out_of_memory(2))
    with pytest.raises(ModelError, match=r"memory_retries \(now 2\) higher"):
        supervise(request(tmp_path, memory_retries=2), launcher)
    assert launcher.divisors == [1, 2, 4]


@pytest.mark.parametrize(
    ("size", "divisor"), [(2, 2), (64, 2), (9, 3), (15, 3), (35, 5), (7, 7), (97, 97)]
)
def test_the_micro_batch_becomes_half_or_the_largest_part_that_divides_it(
    size: int, divisor: int
) -> None:
    [time] = shrink(Shrinkings(), out_of_memory(size), "full", retries=4).times
    assert time == Shrinking(micro_batch_size=size, divisor=divisor, reason="full")


@given(st.integers(2, 5_000))
def test_shrinking_ends_at_one_example_and_always_divides(size: int) -> None:
    shrunk, left = Shrinkings(), size
    while left > 1:
        shrunk = shrink(shrunk, out_of_memory(left), "full", retries=99)
        assert left % shrunk.times[-1].divisor == 0
        left //= shrunk.times[-1].divisor
    assert shrunk.divisor == size
    assert math.prod(time.divisor for time in shrunk.times) == size


@pytest.mark.parametrize(
    ("size", "retries", "sentence"),
    [
        (None, 4, "out of memory before the first step: full"),
        (1, 4, "out of memory with one example at a time: full"),
        (
            8,
            1,
            (
                "out of memory with 8 examples at a time: full; set "
                "trainer.batch_size lower, or trainer.memory_retries (now 1) higher"
            ),
        ),
    ],
)
def test_memory_that_cannot_be_shrunk_further_is_an_error(
    size: int | None, retries: int, sentence: str
) -> None:
    before = shrink(Shrinkings(), out_of_memory(16), "full", retries=4)
    with pytest.raises(ModelError) as error:
        shrink(before, out_of_memory(size), "full", retries)
    assert str(error.value) == sentence


def test_no_retries_means_none() -> None:
    with pytest.raises(ModelError, match="out of memory with 8 examples at a time"):
        shrink(Shrinkings(), out_of_memory(8), "full", retries=0)


@pytest.mark.parametrize("status", ["done", "failed", "out_of_memory", "preempted"])
def test_what_a_process_says_of_its_end_is_believed(status: Any) -> None:
    outcome = Outcome(status=status, message="so")
    assert understand(Ended(outcome.exit_code, outcome)) == outcome


def test_a_process_that_the_kernel_killed_for_memory_was_out_of_memory() -> None:
    ended = Ended(-signal.SIGKILL, None, 8, killed_for_memory=True)
    assert understand(ended) == Outcome(
        status="out_of_memory", message="the kernel killed the process for memory"
    )


@pytest.mark.parametrize(
    "words", ["std::bad_alloc", "Cannot allocate memory", "out of memory", "OOM when"]
)
def test_a_failed_allocation_that_took_the_process_down_was_memory(words: str) -> None:
    ended = Ended(-signal.SIGABRT, None, last_words=f"terminate called: {words} …")
    assert understand(ended) == Outcome(status="out_of_memory", message=words)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_a_signal_of_another_cause_is_named(number: signal.Signals) -> None:
    ended = Ended(-number, None, last_words="Segmentation fault")
    assert understand(ended) == Outcome(
        status="failed",
        message=f"the training process was killed by {number.name}; run again to go "
        "on from its last checkpoint",
    )


def test_an_exit_without_an_outcome_is_a_failure_that_names_the_code() -> None:
    for code in (0, 1, 3, 74):
        assert understand(Ended(code, None, last_words="out of memory")) == Outcome(
            status="failed",
            message=f"the training process ended with exit code {code} before it "
            "could say why: trainer.model, or what it calls, may have ended it "
            "(os._exit)",
        )


def test_an_outcome_does_not_hide_an_exit_code_that_is_not_ours() -> None:
    ended = Ended(3, Outcome(status="done"))
    assert understand(ended).status == "failed"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_that_is_stopped_before_it_has_begun_can_be_run_again(
    number: int,
) -> None:
    outcome = understand(Ended(-number, None))
    assert (outcome.status, outcome.message) == (
        "preempted",
        "stopped before it had begun",
    )


def test_a_replay_begins_with_the_parts_that_the_record_ended_with(
    tmp_path: Path,
) -> None:
    launcher = FakeLauncher(out_of_memory(8), Ended(0, Outcome(status="done")))
    asked = request(tmp_path).model_copy(update={"micro_batch_divisor": 4})
    supervise(asked, launcher)
    assert launcher.divisors == [4, 8]


def test_being_asked_to_stop_is_not_forgotten_over_a_lack_of_memory(
    tmp_path: Path,
) -> None:
    ended = replace(out_of_memory(8), asked_to_stop=True)
    launcher = FakeLauncher(ended, Ended(0, Outcome(status="done")))
    with pytest.raises(ResumeError, match="stopped when out of memory"):
        supervise(request(tmp_path), launcher)
    supervise(request(tmp_path), launcher)
    assert launcher.divisors == [1, 2]


def test_a_process_that_does_not_end_when_asked_to_is_gone_on_with_later() -> None:
    ended = Ended(
        -signal.SIGKILL,
        None,
        killed_for_memory=True,  # some other process was
        asked_to_stop=True,
        overdue_s=300.0,
        has_checkpoint=True,
    )
    outcome = understand(ended)
    assert (outcome.status, outcome.message) == (
        "preempted",
        (
            "the training process did not end within 300 s of being asked to stop, and was "
            "killed; its last checkpoint stands"
        ),
    )
    without = understand(replace(ended, has_checkpoint=False))
    assert without.status == "failed"
    assert without.message.endswith("and was killed before its first checkpoint")


def test_a_work_folder_that_cannot_be_written_is_told_in_a_sentence(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()
    asked = request(tmp_path).model_copy(update={"work_dir": tmp_path / "file" / "x"})
    with pytest.raises(StorageError) as error:
        supervise(asked, FakeLauncher(out_of_memory(8)))
    assert str(error.value) == (
        f"{tmp_path}/file/x/memory.json: Not a directory; remove the file that is in a "
        "folder's place, then run again"
    )
