"""The TFX component: evaluates a model, compares it and blesses it, or says why not."""

from pathlib import Path

import apache_beam as beam
import tensorflow_model_analysis as tfma
from tfx import v1 as tfx
from tfx.components.evaluator import constants
from tfx.utils import path_utils

from components.evaluator.analysis import analyse, build_eval_config, read_metrics
from components.evaluator.comparable import why_not_comparable
from components.evaluator.config import EvaluatorSettings
from components.evaluator.verdict import VERDICT_FILE, judge
from components.features import FeatureTable


@tfx.dsl.components.component(use_beam=True)
def Evaluator(
    examples: tfx.dsl.components.InputArtifact[tfx.types.standard_artifacts.Examples],
    model: tfx.dsl.components.InputArtifact[tfx.types.standard_artifacts.Model],
    evaluation: tfx.dsl.components.OutputArtifact[
        tfx.types.standard_artifacts.ModelEvaluation
    ],
    blessing: tfx.dsl.components.OutputArtifact[
        tfx.types.standard_artifacts.ModelBlessing
    ],
    settings: tfx.dsl.components.Parameter[str],
    feature_table: tfx.dsl.components.Parameter[str],
    baseline_model: tfx.dsl.components.InputArtifact[
        tfx.types.standard_artifacts.Model
    ] = None,
    beam_pipeline: tfx.dsl.components.BeamComponentParameter[beam.Pipeline] = None,
) -> None:
    """Write TFMA's evaluation, a verdict beside it, and the blessing that follows.

    The blessing's properties are those of TFX's Evaluator: its resolver reads them.
    """
    asked = EvaluatorSettings.model_validate_json(settings)
    table = FeatureTable.model_validate_json(feature_table)
    models = {tfma.CANDIDATE_KEY: model}
    notes: tuple[str, ...] = ()
    if baseline_model is not None:
        path = Path(path_utils.serving_model_path(baseline_model.uri))
        reason = why_not_comparable(table, path)
        if reason is None:
            models[tfma.BASELINE_KEY] = baseline_model
        else:
            notes = (f"not compared with the blessed baseline: {reason}",)
            baseline_model = None
    config = build_eval_config(asked, table, baseline_model is not None)
    analyse(examples, models, config, evaluation.uri, asked.batch_size, beam_pipeline)
    if baseline_model is None:
        verdict = judge(asked, read_metrics(evaluation.uri, None), None, notes)
    else:
        candidate, baseline = (
            read_metrics(evaluation.uri, name)
            for name in (tfma.CANDIDATE_KEY, tfma.BASELINE_KEY)
        )
        verdict = judge(asked, candidate, baseline)
    Path(evaluation.uri, VERDICT_FILE).write_text(verdict.model_dump_json(indent=2))
    bless(blessing, model, baseline_model, verdict.blessed)


def bless(
    blessing: tfx.types.standard_artifacts.ModelBlessing,
    model: tfx.types.standard_artifacts.Model,
    baseline: tfx.types.standard_artifacts.Model | None,
    blessed: bool,
) -> None:
    """Write the blessing as TFX's Evaluator would."""
    Path(blessing.uri).mkdir(parents=True, exist_ok=True)
    name = constants.BLESSED_FILE_NAME if blessed else constants.NOT_BLESSED_FILE_NAME
    Path(blessing.uri, name).touch()
    blessing.set_int_custom_property(
        constants.ARTIFACT_PROPERTY_BLESSED_KEY, int(blessed)
    )
    blessing.set_string_custom_property(
        constants.ARTIFACT_PROPERTY_CURRENT_MODEL_URI_KEY, model.uri
    )
    blessing.set_int_custom_property(
        constants.ARTIFACT_PROPERTY_CURRENT_MODEL_ID_KEY, model.id
    )
    if baseline is not None:
        blessing.set_string_custom_property(
            constants.ARTIFACT_PROPERTY_BASELINE_MODEL_URI_KEY, baseline.uri
        )
        blessing.set_int_custom_property(
            constants.ARTIFACT_PROPERTY_BASELINE_MODEL_ID_KEY, baseline.id
        )
