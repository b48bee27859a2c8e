"""Runs a project's pipeline on this machine, each step in a process of its own."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from pipeline import steps
from pipeline.cache import Cache, Entry, step_keys
from pipeline.config import ProjectSettings
from pipeline.extras import require_tfx
from pipeline.runners import preflight
from pipeline.runners.ingredients import Ingredients
from pipeline.runners.job import Failure, Job, Outcome
from pipeline.runners.processes import StepProcesses
from pipeline.runners.record import RunRecord, Status, StepRecord
from pipeline.steps import Step
from serving.locks import exclusive


class Display(Protocol):
    """Where the progress of a run is shown."""

    def waiting(self, pid: str) -> None:
        """Say that another process holds the project's store."""

    def started(self, record: RunRecord) -> None:
        """Say that a run begins."""

    def loading(self) -> None:
        """Say that TFX is being imported, once for the run."""

    def loaded(self, seconds: float) -> None:
        """Say that TFX is there."""

    def running(self, step: StepRecord) -> None:
        """Say that a step begins."""

    def progress(self, text: str) -> None:
        """Say how far the step is."""

    def finished(self, step: StepRecord) -> None:
        """Say that a step has ended, or was cached."""


def run_pipeline(
    settings: ProjectSettings,
    display: Display,
    clock: Callable[[], float],
    use_cache: bool = True,
    wants_stop: Callable[[], bool] = lambda: False,
) -> RunRecord:
    """Run what is not cached and return the record of the run.

    A step that fails ends the run; the record says so. Two runs of one project wait
    for each other: they share a metadata store and a cache.

    Args:
        settings: The project's settings.
        display: Told of the progress.
        clock: Seconds that never go back.
        use_cache: Leave out steps whose ingredients have not changed.
        wants_stop: Whether the run was asked to stop; asked again and again.

    Raises:
        TaxiwayError: The data or a function of the user is not there, or TFX is not
            installed.
    """
    with exclusive(settings.state_dir / "lock", display.waiting):
        begun = clock()
        run = _Run(settings, display, clock, use_cache, wants_stop)
        run.execute()
        run.record.seconds = round(clock() - begun, 3)
        run.write()
        return run.record


class _Run:
    """What was decided for one run, and what has happened in it so far."""

    def __init__(
        self,
        settings: ProjectSettings,
        display: Display,
        clock: Callable[[], float],
        use_cache: bool,
        wants_stop: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._display = display
        self._clock = clock
        self._ingredients = Ingredients.gather(settings)
        self._keys = step_keys(steps.STEPS, self._ingredients)
        self._cache = Cache(settings.state_dir / "cache.sqlite")
        self._use_cache = use_cache
        self._wants_stop = wants_stop
        self._adopted: list[Entry] = []
        self._processes: StepProcesses | None = None
        self.record = _new_record(settings)
        self._folder = settings.state_dir / "runs" / self.record.run_id

    def execute(self) -> None:
        """Take over what is cached and run the rest, in order, until one fails."""
        self._display.started(self.record)
        fresh: set[str] = set()
        for step in steps.STEPS:
            record = self.record.step(step.id)
            # A step that ran again has the key of its ingredients, but not always
            # the same output: what reads it must read the new one.
            entry = None if fresh & set(step.inputs) else self._find(step)
            if entry is not None:
                record.state, record.summary = "cached", entry.summary
                self._adopted.append(entry)
            else:
                fresh.add(step.id)
                self._execute(step, record)
            self._display.finished(record)
            if record.state == "failed":
                return
        self.record.status = _status(self.record, bool(fresh))

    def write(self) -> None:
        """Keep the record of a run that did something."""
        if self._processes is not None:
            self.record.write(self._folder)

    def _find(self, step: Step) -> Entry | None:
        if not self._use_cache:
            return None
        return self._cache.find(step.id, self._keys[step.id])

    def _execute(self, step: Step, record: StepRecord) -> None:
        processes = self._processes or self._start()
        record.log = str(self._folder / f"{step.id}.log")
        self._display.running(record)
        begun = self._clock()
        answer = processes.run(
            self._job(step, Path(record.log)), self._display.progress, self._wants_stop
        )
        record.seconds = round(self._clock() - begun, 3)
        match answer:
            case Failure(reason, resumable):
                record.state, record.reason = "failed", reason
                record.resumable = resumable
            case Outcome():
                outcome = self._named(step, answer)
                record.state, record.summary = "done", outcome.summary
                # What no server has taken is to be tried again.
                if not outcome.summary.get("problem"):
                    self._cache.record(self._entry(step, outcome))
                self._adopted.clear()
        self.write()

    def _named(self, step: Step, outcome: Outcome) -> Outcome:
        """Add the version that the Evaluator's baseline is published under."""
        if step is not steps.EVALUATOR:
            return outcome
        version = self._cache.version_of(outcome.summary["baseline"])
        summary = {**outcome.summary, "baseline_version": version}
        return replace(outcome, summary=summary)

    def _start(self) -> StepProcesses:
        preflight.check(self._settings)
        require_tfx()
        self._folder.mkdir(parents=True)
        self._display.loading()
        begun = self._clock()
        self._processes = StepProcesses(self._folder / "tfx.log")
        self._processes.load()
        self._display.loaded(self._clock() - begun)
        return self._processes

    def _job(self, step: Step, log: Path) -> Job:
        return Job(
            settings=self._settings.to_json(),
            run_id=self.record.run_id,
            step=step.id,
            data_digest=self._ingredients.data_digest,
            log=log,
            key=self._keys[step.id],
            cached=tuple(self._adopted),
        )

    def _entry(self, step: Step, outcome: Outcome) -> Entry:
        outputs = [*outcome.outputs, str(self._settings.metadata_path)]
        version = outcome.summary.get("version")
        if step is steps.PUSHER and version is not None:
            push = self._settings.push
            outputs.append(str(push.base_path / push.model / str(version)))
        return Entry(
            step=step.id,
            key=self._keys[step.id],
            execution_id=outcome.execution_id,
            run_id=self.record.run_id,
            outputs=tuple(outputs),
            summary=outcome.summary,
        )


def _new_record(settings: ProjectSettings) -> RunRecord:
    now = datetime.now(UTC)
    return RunRecord(
        run_id=f"{now:%Y%m%d-%H%M%S}-{uuid4().hex[:4]}",
        project=settings.project,
        started=now.isoformat(timespec="seconds"),
        steps=[StepRecord(step.id) for step in steps.STEPS],
    )


def _status(record: RunRecord, did_something: bool) -> Status:
    verdict: Mapping[str, object] = record.step(steps.EVALUATOR.id).summary
    if not verdict.get("blessed"):
        return "not blessed"
    pusher = record.step(steps.PUSHER.id)
    if pusher.state == "done":
        return "not pushed" if pusher.summary.get("problem") else "pushed"
    return "done" if did_something else "unchanged"
