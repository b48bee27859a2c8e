"""When the loop saves, stops, looks and goes on; devices and time are fakes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from components.errors import DataError, ModelError
from components.trainer.batches import BatchPlan
from components.trainer.checkpoints import Progress
from components.trainer.config import TrainerSettings
from components.trainer.execution import Executed
from components.trainer.loop import (
    NUM_DIGESTS,
    PIECE_S,
    InputLost,
    Loop,
    Preempted,
    Schedule,
)

Position = tuple[int, int]
"""Epoch, and step in it."""
FEW = st.integers(1, 6)


@dataclass
class FakeClock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class FakeMachine:
    """Knows what it ran; a chunk is its epoch and number."""

    schedule: Schedule
    clock: FakeClock
    step_s: float = 0.125
    wait_s: float = 0.0
    losses: Sequence[float] = ()
    """Eval loss of each epoch; 1 where it says nothing."""
    norm: float = 1.0
    """Of every gradient."""
    bad: dict[int, float] = field(default_factory=dict)
    """Loss of bad steps, counted from 1 over all epochs."""
    others_want: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """What other workers wish."""
    ran: list[Position] = field(default_factory=list)
    pieces: list[int] = field(default_factory=list)
    saved: list[Progress] = field(default_factory=list)
    explained: list[tuple[Position, int]] = field(default_factory=list)

    def chunks(self, first_epoch: int, first_chunk: int) -> Iterator[Position]:
        epoch, chunk = first_epoch, first_chunk
        while True:
            self.clock.now += self.wait_s
            yield epoch, chunk
            chunk += 1
            if chunk == self.schedule.plan.chunks_per_epoch:
                epoch, chunk = epoch + 1, 0

    def execute(
        self, chunk: Position, first: int, last: int, wishes: Sequence[float]
    ) -> Executed:
        plan = self.schedule.plan
        assert 0 <= first < last <= plan.chunk_steps
        epoch, number = chunk
        begin = number * plan.chunk_steps
        steps = range(begin + first, begin + last)
        self.ran += [(epoch, step) for step in steps]
        self.pieces.append(len(steps))
        self.clock.now += self.step_s * len(steps)
        done = [epoch * plan.steps_per_epoch + step + 1 for step in steps]
        return Executed(
            loss=np.array([self.bad.get(step, 0.5) for step in done]),
            gradient_norm=np.full(len(done), self.norm),
            bad=np.array([step in self.bad for step in done]),
            loss_scale=np.ones(len(done)),
            wishes=np.float32(wishes) * plan.num_replicas
            + np.float32(self.others_want),
        )

    def epoch_metrics(self) -> dict[str, float]:
        return {"loss": 0.5}

    def evaluate(self) -> dict[str, float]:
        epoch = self.ran[-1][0]
        return {"loss": self.losses[epoch] if epoch < len(self.losses) else 1.0}

    def save(self, progress: Progress) -> None:
        self.saved.append(progress)

    def digest(self) -> str:
        return str(self.ran[-1])

    def explain(self, chunk: Position, step: int) -> str:
        self.explained.append((chunk, step))
        return "x is nan in row 3"


@dataclass
class FakeObserver:
    steps: list[int] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    skips: list[tuple[int, str]] = field(default_factory=list)

    def executed(self, progress: Progress, done: Executed, seconds: float) -> None:
        self.steps.append(progress.step)

    def epoch_done(self, progress: Progress) -> None:
        self.epochs.append(progress.epoch)

    def skipped(self, step: int, reason: str) -> None:
        self.skips.append((step, reason))


@dataclass
class Run:
    """One attempt, with all that it ran and told."""

    machine: FakeMachine
    observer: FakeObserver
    end: Progress
    preempted: bool


def schedule(
    steps_per_epoch: int = 10, chunk_steps: int = 4, batch: int = 2, **settings: Any
) -> Schedule:
    checkpoints = {"every_s": 1e9, **settings.pop("checkpoints", {})}
    made = TrainerSettings.model_validate({**settings, "checkpoints": checkpoints})
    return Schedule(made, BatchPlan(steps_per_epoch * batch, 1, 1, batch, chunk_steps))


def train(
    plan: Schedule,
    start: Progress | None = None,
    stop_after: int | None = None,
    **fake: Any,
) -> Run:
    """Run an attempt; asked to stop once so many pieces were run."""
    clock = FakeClock()
    machine, observer = FakeMachine(plan, clock, **fake), FakeObserver()

    def wants_stop() -> bool:
        return stop_after is not None and len(machine.pieces) >= stop_after

    loop = Loop(machine, observer, plan, clock, wants_stop)
    try:
        return Run(machine, observer, loop.run(start or Progress()), False)
    except Preempted as ended:
        return Run(machine, observer, ended.progress, True)


def positions(plan: Schedule, epochs: int) -> list[Position]:
    steps = range(plan.plan.steps_per_epoch)
    return [(epoch, step) for epoch in range(epochs) for step in steps]


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    first = draw(st.integers(1, 40))
    profile = draw(st.sampled_from([None, (first, first + draw(FEW))]))
    return schedule(
        draw(st.integers(1, 25)),
        draw(st.integers(1, 12)),
        epochs=draw(FEW),
        checkpoints={"every_steps": draw(st.none() | st.integers(1, 30))},
        tensorboard={"profile_steps": profile},
    )


@given(schedules(), st.data(), st.none() | st.just(0.0) | st.floats(1e-9, 1))
def test_a_piece_never_runs_over_what_is_due(
    plan: Schedule, data: st.DataObject, step_s: float | None
) -> None:
    size = plan.plan.steps_per_epoch
    epoch = data.draw(st.integers(0, plan.settings.epochs - 1))
    begin = data.draw(st.integers(0, size - 1))
    step = epoch * size + begin
    end = plan.end_of_piece(step, begin, step_s)
    assert begin < end <= size
    profile = plan.settings.tensorboard.profile_steps or ()
    every = plan.settings.checkpoints.every_steps
    for inside in range(1, end - begin):
        assert (begin + inside) % plan.plan.chunk_steps
        assert (step + inside) % plan.digest_every
        assert every is None or (step + inside) % every
        assert step + inside not in profile
    if step_s is None:
        assert end == begin + 1
    elif end > begin + 1:
        assert (end - begin) * step_s <= PIECE_S


@given(schedules())
def test_about_so_many_digests_are_taken(plan: Schedule) -> None:
    taken = plan.total_steps // plan.digest_every
    assert min(plan.total_steps, NUM_DIGESTS) <= taken < 2 * NUM_DIGESTS


@given(schedules(), st.floats(0.001, 1))
def test_all_steps_are_run_in_their_order_and_each_once(
    plan: Schedule, step_s: float
) -> None:
    done = train(plan, step_s=step_s)
    assert done.machine.ran == positions(plan, plan.settings.epochs)
    assert done.end.step == plan.total_steps
    assert (done.end.epoch, done.end.epoch_step) == (plan.settings.epochs, 0)
    assert done.end.examples == plan.settings.epochs * plan.plan.num_examples
    assert done.observer.epochs == list(range(1, plan.settings.epochs + 1))
    assert [s for s, _ in done.end.digests] == [
        step for step in range(1, plan.total_steps + 1) if step % plan.digest_every == 0
    ]


@given(schedules(), st.data())
def test_from_any_position_the_rest_is_run_as_if_never_interrupted(
    plan: Schedule, data: st.DataObject
) -> None:
    everything = positions(plan, plan.settings.epochs)
    step = data.draw(st.integers(0, plan.total_steps))
    epoch, epoch_step = divmod(step, plan.plan.steps_per_epoch)
    history = ({"loss": 0.5, "val_loss": 1.0},) * epoch
    start = Progress(epoch, step, epoch_step, history, 0 if epoch else None)
    done = train(plan, start)
    assert done.machine.ran == everything[step:]
    assert done.end.step == plan.total_steps


@given(
    schedules(),
    st.lists(st.floats(0, 1), max_size=6),
    st.integers(0, 3),
    st.integers(0, 40),
    st.floats(0.01, 0.6),
)
def test_a_run_that_was_preempted_ends_as_one_that_was_not(
    plan: Schedule, losses: list[float], patience: int, stop_after: int, step_s: float
) -> None:
    settings = plan.settings.model_copy(update={"early_stopping_patience": patience})
    plan = Schedule(settings, plan.plan)
    whole = train(plan, losses=losses, step_s=0.05)
    before = train(plan, losses=losses, stop_after=stop_after, step_s=step_s)
    assume(before.preempted)
    assert before.machine.saved[-1] == before.end
    after = train(plan, before.end, losses=losses)
    assert before.machine.ran + after.machine.ran == whole.machine.ran
    for name in ("epoch", "step", "history", "best_epoch", "digests", "examples"):
        assert getattr(after.end, name) == getattr(whole.end, name)


def test_the_incomplete_last_batch_counts_only_its_examples() -> None:
    plan = Schedule(TrainerSettings(epochs=3), BatchPlan(7, 1, 1, 4, 1))
    assert train(plan).end.examples == 21


def test_a_run_that_is_over_runs_nothing() -> None:
    plan = schedule(epochs=2)
    end = Progress(epoch=2, step=20)
    done = train(plan, end)
    assert done.end == end
    assert done.machine.ran == []


def test_pieces_are_one_step_until_all_have_heard_how_long_one_takes() -> None:
    plan = schedule(100, 100, epochs=1, checkpoints={"every_steps": 1_000})
    pieces = train(plan, step_s=0.25).machine.pieces
    # The first compiles, the second is timed, the third tells the other workers.
    assert pieces[:5] == [1, 1, 1, 2, 2]


def test_pieces_follow_the_mean_of_what_all_replicas_measured() -> None:
    plan = Schedule(
        TrainerSettings(epochs=10, batch_size=2), BatchPlan(200, 2, 1, 1, 100)
    )
    # No time on this replica and 0.25 s on the other: 0.125 s in the mean.
    pieces = train(plan, step_s=0.0, others_want=(0.0, 0.0, 0.25)).machine.pieces
    assert pieces[:4] == [1, 4, 4, 4]


def test_training_stops_after_epochs_without_a_lower_eval_loss() -> None:
    plan = schedule(epochs=10, early_stopping_patience=2)
    done = train(plan, losses=[0.9, 0.7, 0.8, 0.7, 0.1])
    assert (done.end.epoch, done.end.best_epoch) == (4, 1)
    assert len(done.machine.ran) == 40


def test_training_stops_where_no_epoch_can_be_judged() -> None:
    plan = schedule(epochs=9, early_stopping_patience=2, nan_policy="skip")
    assert train(plan, losses=[float("nan")] * 9).end.epoch == 2


def test_without_patience_training_goes_on_to_the_end() -> None:
    done = train(schedule(epochs=4), losses=[0.1, 0.2, 0.3, 0.4])
    assert (done.end.epoch, done.end.best_epoch) == (4, 0)


def test_an_eval_loss_that_is_no_number_is_never_the_best() -> None:
    plan = schedule(epochs=3, nan_policy="skip")
    done = train(plan, losses=[float("nan"), 0.5, float("nan")])
    assert done.end.best_epoch == 1


def test_an_eval_loss_that_is_no_number_stops_and_says_which_split() -> None:
    with pytest.raises(ModelError, match="eval split's loss is nan after epoch 2"):
        train(schedule(epochs=3), losses=[0.5, float("nan")])


def test_an_epoch_of_skipped_steps_only_is_the_end() -> None:
    plan = schedule(4, epochs=9, nan_policy="skip")
    with pytest.raises(ModelError, match="every step of epoch 2 was skipped"):
        train(plan, bad=dict.fromkeys(range(5, 9), float("nan")))


def test_steps_that_overflow_after_a_resume_are_not_all_there_were() -> None:
    plan = schedule(10, epochs=2)
    done = train(plan, Progress(epoch=1, step=19, epoch_step=9), norm=float("inf"))
    assert done.end.step == 20


def test_an_eval_loss_of_minus_infinity_is_never_the_best() -> None:
    plan = schedule(epochs=2, nan_policy="skip")
    assert train(plan, losses=[0.5, float("-inf")]).end.best_epoch == 0


def test_a_run_whose_every_step_overflowed_is_not_done() -> None:
    with pytest.raises(ModelError, match="all 20 steps overflowed float16"):
        train(schedule(10, epochs=2), norm=float("inf"))


def test_a_run_that_stopped_early_stays_stopped_when_resumed() -> None:
    plan = schedule(epochs=10, early_stopping_patience=1)
    end = train(plan, losses=[0.1, 0.2]).end
    assert end.epoch == 2
    assert train(plan, end).machine.ran == []


def test_metrics_of_an_epoch_are_those_of_both_splits() -> None:
    done = train(schedule(epochs=2), losses=[0.9, 0.7])
    assert done.end.history == (
        {"loss": 0.5, "val_loss": 0.9},
        {"loss": 0.5, "val_loss": 0.7},
    )


def test_being_asked_to_stop_saves_and_then_says_where() -> None:
    plan = schedule(epochs=3)
    clock = FakeClock()
    machine = FakeMachine(plan, clock)
    loop = Loop(machine, FakeObserver(), plan, clock, lambda: True)
    with pytest.raises(
        Preempted, match="^stopped after step 1; its state is saved$"
    ) as ended:
        loop.run(Progress())
    assert machine.saved == [ended.value.progress]
    assert ended.value.progress.step == 1


class LostInput(FakeMachine):
    """Its input is gone after so many chunks."""

    num_chunks = 2
    may_save = True
    by_wish = False

    def chunks(self, first_epoch: int, first_chunk: int) -> Iterator[Position]:
        yield from islice(super().chunks(first_epoch, first_chunk), self.num_chunks)
        raise InputLost(
            "the service is gone", may_save=self.may_save, by_wish=self.by_wish
        )


def without_input(**fake: Any) -> tuple[LostInput, Exception]:
    plan = schedule(epochs=3)
    clock = FakeClock()
    machine = LostInput(plan, clock)
    for name, value in fake.items():
        setattr(machine, name, value)
    with pytest.raises((Preempted, DataError)) as ended:
        Loop(machine, FakeObserver(), plan, clock, lambda: False).run(Progress())
    return machine, ended.value


def test_input_that_is_gone_saves_what_was_done_and_says_whose_it_was() -> None:
    machine, ended = without_input()
    assert [progress.step for progress in machine.saved] == [8]
    assert isinstance(ended, Preempted)
    assert str(ended) == (
        "the service is gone, stopped after step 8; its state is saved"
    )


def test_one_of_several_workers_without_input_saves_nothing() -> None:
    machine, ended = without_input(may_save=False)
    assert machine.saved == []
    assert str(ended).endswith("stopped after step 8; what was saved stands")


def test_input_that_never_came_is_an_error_of_the_settings() -> None:
    machine, ended = without_input(num_chunks=0)
    assert isinstance(ended, DataError)
    assert str(ended) == "the service is gone; is it running, and reachable?"
    assert machine.saved == []


def test_a_stop_while_the_first_input_is_waited_for_can_be_gone_on_with() -> None:
    _, ended = without_input(num_chunks=0, by_wish=True)
    assert isinstance(ended, Preempted)


def test_what_another_worker_was_asked_stops_this_one_too() -> None:
    done = train(schedule(epochs=3), others_want=(0.0, 1.0, 0.0))
    assert done.preempted
    assert [progress.step for progress in done.machine.saved] == [1]


def test_a_checkpoint_that_another_worker_finds_due_is_saved_here_too() -> None:
    done = train(schedule(3, epochs=1), others_want=(1.0, 0.0, 0.0), step_s=1.0)
    assert [progress.step for progress in done.machine.saved] == [1, 2, 3]


def test_being_asked_to_stop_at_the_last_step_lets_the_run_end() -> None:
    plan = schedule(1, epochs=1)
    done = train(plan, stop_after=0)
    assert not done.preempted
    assert done.end.epoch == 1


def test_a_stop_at_the_end_of_an_epoch_is_saved_with_its_metrics() -> None:
    done = train(schedule(1, epochs=2), stop_after=0)
    assert done.preempted
    assert (done.end.epoch, done.end.epoch_step) == (1, 0)
    assert done.machine.saved[-1].history == ({"loss": 0.5, "val_loss": 1.0},)


def test_checkpoints_are_saved_when_time_has_gone_by() -> None:
    plan = schedule(30, 30, epochs=1, checkpoints={"every_s": 10})
    saved = train(plan, step_s=1.0).machine.saved
    # Asked before a step; the step that is due then is done first.
    assert [progress.step for progress in saved] == [11, 22]


@pytest.mark.parametrize("step_s", [0.01, 0.3])
def test_checkpoints_are_saved_at_the_steps_asked_for(step_s: float) -> None:
    plan = schedule(10, 4, epochs=2, checkpoints={"every_steps": 3})
    saved = train(plan, step_s=step_s).machine.saved
    assert [progress.step for progress in saved] == [3, 6, 9, 12, 15, 18]


def test_each_epoch_that_is_the_best_so_far_is_saved() -> None:
    plan = schedule(10, epochs=4, checkpoints={"export": "best"})
    saved = train(plan, losses=[0.9, 0.7, 0.8, 0.6]).machine.saved
    assert [progress.epoch for progress in saved] == [1, 2, 4]


def test_the_best_is_not_saved_where_the_last_is_exported() -> None:
    assert train(schedule(epochs=3), losses=[0.9, 0.7, 0.6]).machine.saved == []


@pytest.mark.parametrize(
    ("loss", "what"), [(float("nan"), "the loss"), (0.5, "a gradient")]
)
def test_nan_policy_stop_says_where_and_why(loss: float, what: str) -> None:
    with pytest.raises(ModelError) as error:
        train(schedule(10, epochs=2, nan_policy="stop"), bad={13: loss})
    assert str(error.value) == (
        f"{what} is not finite at step 13 (epoch 2): x is nan in row 3; "
        "trainer.nan_policy: skip would leave such batches out"
    )


def test_nan_policy_skip_goes_on_and_keeps_count() -> None:
    plan = schedule(10, 4, epochs=2, nan_policy="skip")
    done = train(plan, step_s=0.01, bad={6: float("nan"), 20: float("inf")})
    assert done.end.skipped == (6, 20)
    assert done.observer.skips == [(6, "x is nan in row 3"), (20, "x is nan in row 3")]
    assert done.machine.ran == positions(plan, 2)


def test_a_bad_step_is_explained_by_its_place_in_its_chunk() -> None:
    plan = schedule(10, 4, epochs=2, nan_policy="skip")
    done = train(plan, step_s=0.01, bad={6: 0.5, 20: 0.5})
    assert done.machine.explained == [((0, 1), 1), ((1, 2), 1)]


def test_waiting_for_input_is_counted_after_the_first_epoch_only() -> None:
    plan = schedule(10, 5, epochs=3)
    end = train(plan, step_s=0.5, wait_s=0.25).end
    chunks_after, steps_after = 4, 20
    assert end.waited_s == pytest.approx(chunks_after * 0.25)
    assert end.after_first_s == pytest.approx(chunks_after * 0.25 + steps_after * 0.5)
    assert end.seconds == pytest.approx(6 * 0.25 + 30 * 0.5)


def test_time_between_steps_is_counted_apart() -> None:
    """The rate is that of steps; the clock on the wall shows evaluation, too."""

    class SlowEvaluation(FakeMachine):
        def evaluate(self) -> dict[str, float]:
            self.clock.now += 3.0
            return super().evaluate()

    plan, clock = schedule(10, epochs=2), FakeClock()
    machine = SlowEvaluation(plan, clock)
    loop = Loop(machine, FakeObserver(), plan, clock, lambda: False)
    end = loop.run(Progress())
    assert end.between_s == pytest.approx(6.0)
    assert end.all_s == pytest.approx(clock.now - 100.0)


def test_with_one_epoch_no_wait_is_counted() -> None:
    end = train(schedule(epochs=1), wait_s=3.0).end
    assert (end.waited_s, end.after_first_s) == (0.0, 0.0)
    assert end.seconds > 0


def test_time_and_digests_go_on_from_where_an_attempt_left_them() -> None:
    plan = schedule(10, epochs=2)
    start = Progress(step=4, epoch_step=4, seconds=100.0, digests=((4, "old"),))
    end = train(plan, start, step_s=0.5).end
    assert end.seconds == pytest.approx(100.0 + 16 * 0.5)
    assert end.digests[0] == (4, "old")
    assert [step for step, _ in end.digests] == list(range(4, 21))


def test_the_observer_is_told_of_every_piece() -> None:
    done = train(schedule(epochs=2))
    assert done.observer.steps == np.cumsum(done.machine.pieces).tolist()
