"""Runs one step with TFX's own launcher, as one run of the pipeline."""

from collections.abc import Iterable, Mapping

from ml_metadata.proto import metadata_store_pb2
from tfx.dsl.compiler import compiler, constants
from tfx.orchestration import metadata
from tfx.orchestration.local import runner_utils
from tfx.orchestration.portable import (
    execution_publish_utils,
    launcher,
    runtime_parameter_utils,
)
from tfx.orchestration.portable.mlmd import context_lib, execution_lib
from tfx.proto.orchestration import pipeline_pb2

from pipeline import steps
from pipeline.cache import Entry
from pipeline.config import ProjectSettings
from pipeline.definition import create_pipeline
from pipeline.errors import StepError
from pipeline.runners.job import Outcome
from pipeline.runners.summary import Artifacts, summarise

SUCCEEDED = (metadata_store_pb2.Execution.COMPLETE, metadata_store_pb2.Execution.CACHED)


class PipelineRun:
    """One run of a project's pipeline, compiled, with its metadata store."""

    def __init__(
        self, settings: ProjectSettings, run_id: str, data_digest: str
    ) -> None:
        self._ir = compiler.Compiler().compile(create_pipeline(settings, data_digest))
        runtime_parameter_utils.substitute_runtime_parameter(
            self._ir, {constants.PIPELINE_RUN_ID_PARAMETER_NAME: run_id}
        )
        self._deployment = runner_utils.extract_local_deployment_config(self._ir)
        self._nodes: Mapping[str, pipeline_pb2.PipelineNode] = {
            node.pipeline_node.node_info.id: node.pipeline_node
            for node in self._ir.nodes
        }

    def metadata(self) -> metadata.Metadata:
        """Return an unopened connection to the metadata store."""
        config = self._deployment.metadata_connection_config
        return metadata.Metadata(
            getattr(config, config.WhichOneof("connection_config"))
        )

    def adopt(self, entries: Iterable[Entry]) -> None:
        """Record earlier executions as this run's own, so that later steps see them.

        Raises:
            StepError: An execution is not in the metadata store.
        """
        with self.metadata() as store:
            for entry in entries:
                node = self._nodes[entry.step]
                outputs = execution_lib.get_output_artifacts(store, entry.execution_id)
                if not outputs:
                    raise StepError(
                        f"{entry.step}: execution {entry.execution_id} is in the cache "
                        "but not in ML Metadata; run again with --no-cache"
                    )
                contexts = context_lib.prepare_contexts(store, node.contexts)
                execution = execution_publish_utils.register_execution(
                    store, node.node_info.type, contexts
                )
                execution_publish_utils.publish_cached_executions(
                    store, contexts, [execution], [outputs]
                )

    def launch(self, step: str) -> Outcome:
        """Run a step and return what it wrote.

        Raises:
            StepError: An input is missing.
            Exception: Whatever the step raised.
        """
        if step == steps.EVALUATOR.id:
            self._launcher(steps.BASELINE_RESOLVER_ID).launch()
        info = self._launcher(step).launch()
        with self.metadata() as store:
            if info is None or not info.execution_id:
                raise StepError(f"{step}: an input is missing")
            [execution] = store.store.get_executions_by_id([info.execution_id])
            if execution.last_known_state not in SUCCEEDED:
                raise StepError(f"{step}: its inputs could not be resolved")
            artifacts = Artifacts(
                execution_lib.get_input_artifacts(store, execution.id),
                execution_lib.get_output_artifacts(store, execution.id),
            )
        return Outcome(
            execution_id=execution.id,
            outputs=tuple(
                artifact.uri for many in artifacts.outputs.values() for artifact in many
            ),
            summary=summarise(step, artifacts),
        )

    def _launcher(self, step: str) -> launcher.Launcher:
        return launcher.Launcher(
            pipeline_node=self._nodes[step],
            mlmd_connection=self.metadata(),
            pipeline_info=self._ir.pipeline_info,
            pipeline_runtime_spec=self._ir.runtime_spec,
            executor_spec=runner_utils.extract_executor_spec(self._deployment, step),
            custom_driver_spec=runner_utils.extract_custom_driver_spec(
                self._deployment, step
            ),
        )
