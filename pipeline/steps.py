"""The pipeline as a table: which steps there are and what each one depends on.

`definition.py` wires the same steps as TFX components; this table needs no TFX, so
that what is cached can be decided before TFX is imported. A test holds the two to
each other.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """One node of the pipeline, by the id that TFX knows it under."""

    id: str
    inputs: tuple[str, ...]
    """Steps whose outputs it reads: when they change, it runs again."""
    code: str | None
    """Our module that does the work, with all that it imports; None: TFX's own."""
    after: tuple[str, ...] = ()
    """Steps that must have succeeded first, though their outputs are not read."""


EXAMPLE_GEN = Step("ExampleGen", (), "components.example_gen.component")
STATISTICS_GEN = Step("StatisticsGen", ("ExampleGen",), None)
SCHEMA_GEN = Step("SchemaGen", ("StatisticsGen",), None)
EXAMPLE_VALIDATOR = Step(
    "ExampleValidator",
    ("StatisticsGen", "SchemaGen"),
    "components.example_validator.component",
)
TRANSFORM = Step(
    "Transform",
    ("ExampleGen", "SchemaGen"),
    "components.transform.preprocess",
    after=("ExampleValidator",),
)
TRAINER = Step("Trainer", ("Transform",), "components.trainer.component")
EVALUATOR = Step(
    "Evaluator", ("ExampleGen", "Trainer"), "components.evaluator.component"
)
PUSHER = Step(
    "Pusher", ("ExampleGen", "Trainer", "Evaluator"), "components.pusher.component"
)

STEPS = (
    EXAMPLE_GEN,
    STATISTICS_GEN,
    SCHEMA_GEN,
    EXAMPLE_VALIDATOR,
    TRANSFORM,
    TRAINER,
    EVALUATOR,
    PUSHER,
)
BASELINE_RESOLVER_ID = "latest_blessed_model_resolver"
