"""The pipeline: which TFX components, wired how; nothing of where they run."""

import json

from tfx import v1 as tfx
from tfx.dsl.components.base.base_node import BaseNode

from components.evaluator.component import Evaluator
from components.example_gen.component import ExampleGen
from components.example_gen.request import IngestRequest
from components.example_validator.component import ExampleValidator
from components.features import TABLE_KEY
from components.pusher.component import Pusher
from components.trainer.component import Trainer
from pipeline import steps
from pipeline.config import ProjectSettings

TRANSFORM_FN = "components.transform.preprocess.preprocessing_fn"


def create_pipeline(
    settings: ProjectSettings, data_digest: str = ""
) -> tfx.dsl.Pipeline:
    """Wire the project's pipeline.

    Args:
        settings: The project's settings.
        data_digest: Digest of the input files, kept with the execution.
    """
    return tfx.dsl.Pipeline(
        pipeline_name=settings.project,
        pipeline_root=str(settings.state_dir / "pipeline"),
        components=_components(settings, data_digest),
        enable_cache=False,
        metadata_connection_config=tfx.orchestration.metadata.sqlite_metadata_connection_config(
            str(settings.metadata_path)
        ),
        beam_pipeline_args=beam_args(settings),
    )


def beam_args(settings: ProjectSettings) -> list[str]:
    """Return Beam's options: in one process, or in several on this machine.

    FnApiRunner is named because DirectRunner would first try to download Prism. The
    container image is never used here; naming one keeps TFX from packing a copy of
    itself into a temporary folder for every step, and leaving it there.
    """
    if any(arg.startswith("--runner") for arg in settings.beam.args):
        return list(settings.beam.args)
    args = ["--runner=FnApiRunner", "--sdk_container_image=unused"]
    if settings.beam.num_processes > 1:
        args += [
            "--direct_running_mode=multi_processing",
            f"--direct_num_workers={settings.beam.num_processes}",
        ]
    return [*args, *settings.beam.args]


def _components(settings: ProjectSettings, data_digest: str) -> list[BaseNode]:
    data = _DataSteps(settings, data_digest)
    model = _ModelSteps(settings, data)
    return [*data.nodes, *model.nodes]


class _DataSteps:
    """From files to a schema that they are held to."""

    def __init__(self, settings: ProjectSettings, data_digest: str) -> None:
        request = IngestRequest.build(
            settings.root, settings.data, settings.table, settings.slice_columns
        )
        self.example_gen = ExampleGen(
            request=request.model_dump_json(), data_digest=data_digest
        ).with_id(steps.EXAMPLE_GEN.id)
        self.examples = self.example_gen.outputs["examples"]
        statistics_gen = tfx.components.StatisticsGen(examples=self.examples).with_id(
            steps.STATISTICS_GEN.id
        )
        schema_gen = _schema(settings, statistics_gen)
        self.schema = schema_gen.outputs["schema"]
        self.validator = ExampleValidator(
            statistics=statistics_gen.outputs["statistics"],
            schema=self.schema,
            settings=settings.schema_.model_dump_json(),
        ).with_id(steps.EXAMPLE_VALIDATOR.id)
        self.nodes = [self.example_gen, statistics_gen, schema_gen, self.validator]


class _ModelSteps:
    """From examples to a published version."""

    def __init__(self, settings: ProjectSettings, data: _DataSteps) -> None:
        table = {TABLE_KEY: settings.table.model_dump_json()}
        transform = tfx.components.Transform(
            examples=data.examples,
            schema=data.schema,
            preprocessing_fn=settings.transform.preprocessing_fn or TRANSFORM_FN,
            custom_config=table,
            disable_statistics=True,
        ).with_id(steps.TRANSFORM.id)
        # It reads none of the validator's outputs, but must not start before the gate.
        transform.add_upstream_node(data.validator)
        trainer = Trainer(
            examples=transform.outputs["transformed_examples"],
            transform_graph=transform.outputs["transform_graph"],
            settings=settings.trainer.model_dump_json(),
            project_root=str(settings.root),
            state_dir=str(settings.state_dir / "training"),
            **table,
        ).with_id(steps.TRAINER.id)
        baseline = _baseline()
        evaluator = Evaluator(
            examples=data.examples,
            model=trainer.outputs["model"],
            baseline_model=baseline.outputs["model"],
            settings=settings.evaluator.model_dump_json(),
            **table,
        ).with_id(steps.EVALUATOR.id)
        pusher = Pusher(
            model=trainer.outputs["model"],
            model_blessing=evaluator.outputs["blessing"],
            evaluation=evaluator.outputs["evaluation"],
            examples=data.examples,
            settings=settings.push.model_dump_json(),
            servers=json.dumps(settings.serving.servers),
            timeout_s=settings.serving.change_timeout_s,
        ).with_id(steps.PUSHER.id)
        self.nodes = [transform, trainer, baseline, evaluator, pusher]


def _baseline() -> BaseNode:
    """Resolve the newest blessed model of any earlier run."""
    types = tfx.types.standard_artifacts
    return tfx.dsl.Resolver(
        strategy_class=tfx.dsl.experimental.LatestBlessedModelStrategy,
        model=tfx.dsl.Channel(type=types.Model),
        model_blessing=tfx.dsl.Channel(type=types.ModelBlessing),
    ).with_id(steps.BASELINE_RESOLVER_ID)


def _schema(settings: ProjectSettings, statistics_gen: BaseNode) -> BaseNode:
    curated = settings.schema_file
    if curated is not None:
        node = tfx.components.ImportSchemaGen(schema_file=str(curated))
    else:
        # Shapes are not inferred: a column without gaps in the train split may have
        # some when served, so every column is parsed as one that may be missing.
        node = tfx.components.SchemaGen(
            statistics=statistics_gen.outputs["statistics"], infer_feature_shape=False
        )
    return node.with_id(steps.SCHEMA_GEN.id)
