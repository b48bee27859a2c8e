"""What came of a training, as JSON and in a sentence."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from components.trainer.checkpoints import Progress
from components.trainer.summary import input_bound, summarise, verdict

NAN = float("nan")
MADE: Any = SimpleNamespace(
    strategy="one_device on CPU:0",
    num_replicas=1,
    precision="float32",
    xla="off",
    micro_batch_size=32,
    accumulation=1,
    request=SimpleNamespace(settings=SimpleNamespace(batch_size=32)),
)
ENDED = Progress(
    epoch=3,
    step=30,
    history=({"val_loss": 0.5}, {"val_loss": NAN}, {"val_loss": 0.7}),
    best_epoch=0,
    examples=960,
    seconds=2.0,
    between_s=1.0,
    waited_s=0.25,
    after_first_s=1.0,
)


def test_summary_is_json_though_a_figure_is_not_finite() -> None:
    text = json.dumps(summarise(MADE, ENDED, exports_best=True), allow_nan=False)
    assert json.loads(text)["history"] == {"val_loss": [0.5, None, 0.7]}


def test_time_is_that_of_the_clock_and_the_rate_that_of_steps() -> None:
    found = summarise(MADE, ENDED, exports_best=True)
    assert (found["seconds"], found["examples_per_second"]) == (3.0, 480.0)


@pytest.mark.parametrize(("exports_best", "epoch"), [(True, 1), (False, 3)])
def test_exported_epoch_is_the_one_whose_weights_were_taken(
    exports_best: bool, epoch: int
) -> None:
    found = summarise(MADE, ENDED, exports_best=exports_best)
    assert (found["best_epoch"], found["exported_epoch"]) == (1, epoch)


def test_verdict_says_what_training_was_bound_by() -> None:
    assert input_bound(ENDED) == 0.25
    assert verdict(ENDED) == "480 examples/s; input-bound 25%"
    assert "one epoch only" in verdict(Progress(seconds=1.0, examples=10))
