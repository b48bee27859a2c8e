"""The record of a run: a JSON file that says what happened, step by step."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from components.trainer.request import write_json

State = Literal["done", "cached", "failed", "not run"]
Status = Literal["pushed", "done", "unchanged", "not blessed", "not pushed", "failed"]

RECORD_FILE = "run.json"


@dataclass
class StepRecord:
    """What became of one step."""

    id: str
    state: State = "not run"
    seconds: float = 0.0
    log: str | None = None
    reason: str | None = None
    """Why it failed."""
    summary: dict[str, Any] = field(default_factory=dict)
    resumable: bool = False
    """Whether it was asked to stop: started again, the run goes on from there."""


@dataclass
class RunRecord:
    """What became of a run."""

    run_id: str
    project: str
    started: str
    """When, ISO 8601 in UTC."""
    steps: list[StepRecord]
    seconds: float = 0.0
    status: Status = "failed"

    def step(self, step_id: str) -> StepRecord:
        """Return the record of a step."""
        return next(step for step in self.steps if step.id == step_id)

    def write(self, folder: Path) -> Path:
        """Replace the record in the run's folder by one rename."""
        path = folder / RECORD_FILE
        write_json(path, asdict(self))
        return path


def read_record(path: Path) -> RunRecord:
    """Read a record that `RunRecord.write` has written."""
    content = json.loads(path.read_text())
    content["steps"] = [StepRecord(**step) for step in content["steps"]]
    return RunRecord(**content)
