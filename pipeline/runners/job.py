"""What the local runner tells a step's process, and what it hears back."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.cache import Entry


@dataclass(frozen=True)
class Job:
    """One step to run; picklable."""

    settings: str
    """The project's settings as JSON."""
    run_id: str
    """Run that the execution belongs to."""
    step: str
    """Id of the step."""
    data_digest: str
    """Digest of the input files."""
    log: Path
    """File that takes all that the step prints."""
    key: str = ""
    """What the cache knows this step by."""
    cached: tuple[Entry, ...] = ()
    """Earlier executions whose outputs stand in for steps of this run."""

    @property
    def progress(self) -> Path:
        """File that holds one line about how far the step is."""
        return self.log.with_suffix(".progress")


@dataclass(frozen=True)
class Outcome:
    """A step that succeeded."""

    execution_id: int
    """Id of its execution in ML Metadata."""
    outputs: tuple[str, ...]
    """Folders that it wrote."""
    summary: dict[str, Any] = field(default_factory=dict)
    """What it reports: counts, metrics, version."""


@dataclass(frozen=True)
class Failure:
    """A step that failed."""

    reason: str
    """Why, in a sentence."""
    resumable: bool = False
    """Whether it was asked to stop, so that the run can be started again to go on."""
