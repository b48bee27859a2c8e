"""The history of a project, read from ML Metadata; needs ml-metadata but not TFX."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ml_metadata import errors as mlmd_errors
from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2 as mlmd

from pipeline.errors import MetadataError

RUN_CONTEXT = "pipeline_run"
STATE_NAMES = {
    mlmd.Execution.COMPLETE: "done",
    mlmd.Execution.CACHED: "cached",
    mlmd.Execution.FAILED: "failed",
    mlmd.Execution.RUNNING: "running or killed",
}


@dataclass(frozen=True)
class ArtifactRecord:
    """One input or output of an execution."""

    id: int
    type: str
    channel: str
    uri: str
    properties: dict[str, Any]


@dataclass(frozen=True)
class ExecutionRecord:
    """One step of one run."""

    id: int
    step: str
    state: str
    started: str
    """When, ISO 8601 in UTC."""
    inputs: tuple[ArtifactRecord, ...]
    outputs: tuple[ArtifactRecord, ...]


@dataclass(frozen=True)
class RunHistory:
    """One run of the pipeline."""

    run_id: str
    started: str
    """When, ISO 8601 in UTC."""
    executions: tuple[ExecutionRecord, ...]

    def find(self, name: str) -> Any:
        """Return a property of any output of the run; None when no output has it."""
        for execution in self.executions:
            for artifact in execution.outputs:
                if name in artifact.properties:
                    return artifact.properties[name]
        return None

    @property
    def version(self) -> str | None:
        """The version that the run published or took over from an earlier run."""
        value = self.find("pushed_version")
        return None if value is None else str(value)

    @property
    def blessed(self) -> bool | None:
        """Whether the run's model was blessed; None if it was not judged."""
        value = self.find("blessed")
        return None if value is None else value == 1


class History:
    """Read access to a metadata store."""

    def __init__(self, path: Path) -> None:
        """Open the store.

        Raises:
            MetadataError: There is none, or it cannot be opened.
        """
        if not path.exists():
            raise MetadataError(
                f"no runs yet: there is no {path}; `taxiway run` makes it"
            )
        config = mlmd.ConnectionConfig()
        config.sqlite.filename_uri = str(path)
        config.sqlite.connection_mode = mlmd.SqliteMetadataSourceConfig.READWRITE
        try:
            self._store = metadata_store.MetadataStore(config)
        except (RuntimeError, *_STORE_ERRORS) as error:
            raise MetadataError(f"{path} cannot be opened: {error}") from error
        self._types = {t.id: t.name for t in self._store.get_artifact_types()}
        self._steps = {
            t.id: t.name.rsplit(".", 1)[-1] for t in self._store.get_execution_types()
        }

    def runs(self) -> list[RunHistory]:
        """Return all runs, newest first."""
        contexts = self._store.get_contexts_by_type(RUN_CONTEXT)
        newest_first = sorted(contexts, key=lambda context: -context.id)
        return [self._run(context) for context in newest_first]

    def run(self, run_id: str) -> RunHistory:
        """Return one run, by its id or the beginning of it.

        Raises:
            MetadataError: No run, or more than one, is called so.
        """
        found = [run for run in self.runs() if run.run_id.startswith(run_id)]
        if len(found) != 1:
            what = "no run is" if not found else f"{len(found)} runs are"
            raise MetadataError(f"{what} called {run_id!r}; see `taxiway runs`")
        return found[0]

    def _run(self, context: mlmd.Context) -> RunHistory:
        executions = sorted(
            self._store.get_executions_by_context(context.id), key=lambda e: e.id
        )
        records = tuple(self._execution(execution) for execution in executions)
        return RunHistory(context.name, _time(context), records)

    def _execution(self, execution: mlmd.Execution) -> ExecutionRecord:
        events = self._store.get_events_by_execution_ids([execution.id])
        return ExecutionRecord(
            id=execution.id,
            step=self._steps[execution.type_id],
            state=STATE_NAMES.get(execution.last_known_state, "unknown"),
            started=_time(execution),
            inputs=tuple(self._artifacts(events, mlmd.Event.INPUT)),
            outputs=tuple(self._artifacts(events, mlmd.Event.OUTPUT)),
        )

    def _artifacts(
        self, events: list[mlmd.Event], kind: int
    ) -> Iterator[ArtifactRecord]:
        channels = {e.artifact_id: _channel(e) for e in events if e.type == kind}
        for artifact in self._store.get_artifacts_by_id(list(channels)):
            yield ArtifactRecord(
                id=artifact.id,
                type=self._types[artifact.type_id],
                channel=channels[artifact.id],
                uri=artifact.uri,
                properties={
                    name: getattr(value, value.WhichOneof("value"))
                    for properties in (artifact.properties, artifact.custom_properties)
                    for name, value in properties.items()
                    if value.WhichOneof("value")
                },
            )


_STORE_ERRORS = (mlmd_errors.StatusError,)


def _channel(event: mlmd.Event) -> str:
    keys = [step.key for step in event.path.steps if step.HasField("key")]
    return keys[0] if keys else ""


def _time(record: mlmd.Context | mlmd.Execution) -> str:
    seconds = record.create_time_since_epoch / 1000
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
