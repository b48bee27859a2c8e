"""Which examples make which batch, however the batch is cut."""

from itertools import chain
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.errors import DataError
from components.trainer.batches import (
    CHUNK_BYTES,
    MAX_CHUNK_STEPS,
    BatchPlan,
    chunk_steps,
    epoch_order,
)

FEW = st.integers(1, 5)
EXAMPLES = st.integers(1, 150)
SEEDS = st.integers(-(2**40), 2**40)
PLANS = st.builds(BatchPlan, EXAMPLES, FEW, FEW, FEW, FEW)


def steps_of(plan: BatchPlan, order: np.ndarray) -> list[list[int]]:
    """Return the real examples of each step, in their order."""
    steps = [
        numbers[mask > 0].tolist()
        for numbers_of, mask_of in plan.chunks(order)
        for numbers, mask in zip(numbers_of, mask_of, strict=True)
    ]
    assert not any(steps[plan.steps_per_epoch :])
    return steps[: plan.steps_per_epoch]


@given(PLANS, SEEDS)
def test_every_example_is_in_an_epoch_exactly_once(plan: BatchPlan, seed: int) -> None:
    steps = steps_of(plan, epoch_order(plan.num_examples, seed, epoch=0))
    assert sorted(chain.from_iterable(steps)) == list(range(plan.num_examples))


@given(PLANS, SEEDS)
def test_only_the_last_batch_of_an_epoch_is_incomplete(
    plan: BatchPlan, seed: int
) -> None:
    *full, last = steps_of(plan, epoch_order(plan.num_examples, seed, epoch=0))
    assert {len(step) for step in full} <= {plan.batch_size}
    assert 0 < len(last) <= plan.batch_size


@given(EXAMPLES, FEW, FEW, FEW, FEW)
def test_drop_leaves_out_the_incomplete_batch_alone(
    num_examples: int, replicas: int, accumulation: int, micro: int, chunk: int
) -> None:
    num_examples += replicas * accumulation * micro
    cut = (num_examples, replicas, accumulation, micro, chunk)
    order = epoch_order(num_examples, 1, 0)
    padded = steps_of(BatchPlan(*cut), order)
    dropped = BatchPlan(*cut, last_batch="drop")
    full = [step for step in padded if len(step) == dropped.batch_size]
    assert steps_of(dropped, order) == full


@given(EXAMPLES, st.integers(1, 48), st.data())
def test_a_batch_holds_the_same_examples_however_it_is_cut(
    num_examples: int, batch: int, data: st.DataObject
) -> None:
    order = epoch_order(num_examples, 3, 1)
    divisors = [n for n in range(1, batch + 1) if batch % n == 0]
    replicas = data.draw(st.sampled_from(divisors))
    each = batch // replicas
    accumulation = data.draw(st.sampled_from([n for n in divisors if each % n == 0]))
    cut = BatchPlan(
        num_examples, replicas, accumulation, each // accumulation, data.draw(FEW)
    )
    assert cut.batch_size == batch
    assert steps_of(cut, order) == steps_of(
        BatchPlan(num_examples, 1, 1, batch, 1), order
    )


@given(PLANS, SEEDS)
def test_a_batch_is_filled_up_with_real_examples(plan: BatchPlan, seed: int) -> None:
    for numbers, mask in plan.chunks(epoch_order(plan.num_examples, seed, 0)):
        assert numbers.shape == mask.shape == plan.chunk_shape
        assert numbers.min() >= 0
        assert numbers.max() < plan.num_examples
        assert set(np.unique(mask)) <= {0.0, 1.0}


@given(PLANS, SEEDS)
def test_a_batch_is_filled_up_with_its_own_examples(plan: BatchPlan, seed: int) -> None:
    """Else a NaN in an example of another batch would make it bad."""
    order = epoch_order(plan.num_examples, seed, 0)
    for numbers, mask in plan.chunks(order):
        for batch, real in zip(numbers, mask, strict=True):
            if real.any():
                assert set(batch[real == 0]) <= set(batch[real > 0])


@given(PLANS, SEEDS, st.data())
def test_resuming_at_a_chunk_gives_the_same_chunks(
    plan: BatchPlan, seed: int, data: st.DataObject
) -> None:
    order = epoch_order(plan.num_examples, seed, 2)
    first = data.draw(st.integers(0, plan.chunks_per_epoch))
    whole = list(plan.chunks(order))
    assert len(whole) == plan.chunks_per_epoch
    resumed = list(plan.chunks(order, first))
    assert len(resumed) == len(whole) - first
    for (numbers, mask), (again, mask_again) in zip(
        whole[first:], resumed, strict=True
    ):
        np.testing.assert_array_equal(numbers, again)
        np.testing.assert_array_equal(mask, mask_again)


def test_a_replica_gets_neighbours_and_its_micro_batches_in_turn() -> None:
    [(numbers, mask)] = BatchPlan(8, 2, 2, 2, 1).chunks(np.arange(8))
    assert numbers.tolist() == [[[[0, 1], [2, 3]], [[4, 5], [6, 7]]]]
    assert mask.all()


def test_a_split_smaller_than_a_batch_is_repeated_under_the_mask() -> None:
    [(numbers, mask)] = BatchPlan(3, 1, 1, 8, 1).chunks(np.array([2, 0, 1]))
    assert numbers.flatten().tolist() == [2, 0, 1, 2, 0, 1, 2, 0]
    assert mask.flatten().tolist() == [1, 1, 1, 0, 0, 0, 0, 0]


def test_dropping_the_only_batch_is_refused() -> None:
    with pytest.raises(DataError) as error:
        BatchPlan(7, 2, 2, 2, 1, last_batch="drop")
    assert str(error.value) == (
        "trainer.last_batch: got drop, but the 7 examples do not fill one batch of 8; "
        "allowed here: pad"
    )


@given(st.integers(1, 300), SEEDS, st.integers(0, 50))
def test_an_epochs_order_is_a_permutation(n: int, seed: int, epoch: int) -> None:
    assert sorted(epoch_order(n, seed, epoch).tolist()) == list(range(n))


@given(SEEDS, st.integers(0, 50))
def test_an_epochs_order_depends_on_seed_and_epoch_alone(seed: int, epoch: int) -> None:
    before = epoch_order(100, seed, epoch)
    np.random.default_rng().random()  # no global state is drawn from
    np.random.seed(seed % 1000)  # noqa: NPY002  the state it must not depend on
    np.testing.assert_array_equal(epoch_order(100, seed, epoch), before)
    assert (epoch_order(100, seed, epoch + 1) != before).any()
    assert (epoch_order(100, seed + 1, epoch) != before).any()


def test_an_epochs_order_is_the_same_in_every_process_and_release() -> None:
    assert epoch_order(8, 1, 0).tolist() == [5, 0, 1, 4, 2, 6, 3, 7]


@given(st.integers(1, 100), st.integers(1, 10**6), st.integers(1, 10**4))
def test_the_steps_of_a_chunk_are_those_asked_for(
    wanted: int, batch_size: int, row_bytes: int
) -> None:
    assert chunk_steps(wanted, batch_size, row_bytes) == wanted


@given(st.integers(1, 10**6), st.integers(1, 10**4))
def test_a_chunk_has_as_many_steps_as_fit(batch_size: int, row_bytes: int) -> None:
    steps = chunk_steps(None, batch_size, row_bytes)
    step_bytes = batch_size * row_bytes
    assert 1 <= steps <= MAX_CHUNK_STEPS
    assert steps == 1 or steps * step_bytes <= CHUNK_BYTES
    assert steps == MAX_CHUNK_STEPS or (steps + 1) * step_bytes > CHUNK_BYTES


@pytest.mark.integration
def test_input_that_is_not_cached_is_filled_up_in_the_same_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import tensorflow as tf

    from components.trainer import input_pipeline

    def parsed(records: Any) -> dict[str, Any]:
        return {"value": tf.strings.to_number(records)[:, None]}

    monkeypatch.setattr(input_pipeline, "parser", lambda _: parsed)
    plan = BatchPlan(6, 1, 1, 4, 3)
    reading = SimpleNamespace(plan=plan, layout=None, replicas=range(1))
    records = tf.constant([str(number) for number in range(6)])
    chunk = input_pipeline._chunk_parser(reading)(tf.range(6), records)
    [(numbers, mask)] = plan.chunks(np.arange(6))
    assert chunk["row"].numpy().ravel().tolist() == numbers.ravel().tolist()
    assert chunk["value"].numpy().ravel().tolist() == numbers.ravel().tolist()
    assert chunk["mask"].numpy().ravel().tolist() == mask.ravel().tolist()
    assert numbers.ravel().tolist()[4:8] == [4, 5, 4, 5]
