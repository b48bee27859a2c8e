"""The table of steps says what the TFX pipeline is."""

from pathlib import Path

import pytest

from pipeline import steps
from pipeline.config import load_settings
from pipeline.runners.ingredients import OUR_PACKAGES, OUR_ROOT, code_digest
from pipeline.user_code import module_file

FLIGHTS = Path(__file__).parents[2] / "examples" / "flights"


def test_every_step_comes_after_those_it_needs() -> None:
    seen: set[str] = set()
    for step in steps.STEPS:
        assert {*step.inputs, *step.after} <= seen
        seen.add(step.id)


@pytest.mark.parametrize("step", [s for s in steps.STEPS if s.code], ids=lambda s: s.id)
def test_the_code_of_a_step_is_there_and_has_a_digest(step: steps.Step) -> None:
    assert step.code is not None
    assert module_file(step.code, OUR_ROOT) is not None
    assert code_digest(step.code, OUR_ROOT, OUR_PACKAGES)


@pytest.mark.integration
def test_the_table_has_the_steps_and_the_arrows_of_the_tfx_pipeline() -> None:
    from pipeline.definition import create_pipeline

    made = create_pipeline(load_settings(FLIGHTS, environ={}))
    arrows = {
        node.id: {upstream.id for upstream in node.upstream_nodes}
        - {steps.BASELINE_RESOLVER_ID}
        for node in made.components
        if node.id != steps.BASELINE_RESOLVER_ID
    }
    assert arrows == {step.id: {*step.inputs, *step.after} for step in steps.STEPS}
