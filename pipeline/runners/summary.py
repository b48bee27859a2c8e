"""What a finished step reports of its outputs, as plain JSON-like values."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfx.types import Artifact

from components.evaluator.verdict import VERDICT_FILE
from components.example_gen.component import COUNTS_PROPERTY
from components.example_validator.component import WARNINGS_PROPERTY
from components.pusher.component import PUSH_FILE
from components.trainer.request import SUMMARY_FILE
from pipeline import steps

Summary = dict[str, Any]


@dataclass(frozen=True)
class Artifacts:
    """What an execution read and wrote, by channel."""

    inputs: Mapping[str, Sequence[Artifact]]
    outputs: Mapping[str, Sequence[Artifact]]

    def output(self, channel: str) -> Artifact:
        """Return the only artifact of an output channel."""
        [artifact] = self.outputs[channel]
        return artifact


def summarise(step: str, artifacts: Artifacts) -> Summary:
    """Return the report of a step; empty for steps that have nothing to say."""
    reader = _READERS.get(step)
    return {} if reader is None else reader(artifacts)


def _counts(artifacts: Artifacts) -> Summary:
    examples = artifacts.output("examples")
    counts: Summary = json.loads(examples.get_string_custom_property(COUNTS_PROPERTY))
    return counts


def _warnings(artifacts: Artifacts) -> Summary:
    anomalies = artifacts.output("anomalies")
    return {
        "warnings": json.loads(anomalies.get_string_custom_property(WARNINGS_PROPERTY))
    }


def _training(artifacts: Artifacts) -> Summary:
    path = Path(artifacts.output("model_run").uri, SUMMARY_FILE)
    summary: Summary = json.loads(path.read_text())
    return summary


def _verdict(artifacts: Artifacts) -> Summary:
    [model] = artifacts.inputs["model"]
    baselines = artifacts.inputs.get("baseline_model", ())
    path = Path(artifacts.output("evaluation").uri, VERDICT_FILE)
    return {
        **json.loads(path.read_text()),
        "model": model.id,
        "baseline": baselines[0].id if baselines else None,
    }


def _version(artifacts: Artifacts) -> Summary:
    [model] = artifacts.inputs["model"]
    path = Path(artifacts.output("pushed_model").uri, PUSH_FILE)
    pushed: Summary = json.loads(path.read_text()) or {"version": None}
    return {**pushed, "model": model.id}


_READERS: Mapping[str, Callable[[Artifacts], Summary]] = {
    steps.EXAMPLE_GEN.id: _counts,
    steps.EXAMPLE_VALIDATOR.id: _warnings,
    steps.TRAINER.id: _training,
    steps.EVALUATOR.id: _verdict,
    steps.PUSHER.id: _version,
}
