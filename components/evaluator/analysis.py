"""TensorFlow Model Analysis: its configuration, its run in Beam, its results."""

from collections.abc import Iterator, Mapping
from typing import Any

import apache_beam as beam
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.proto import config_pb2
from tfx.components.util import tfxio_utils
from tfx.types import Artifact, artifact_utils
from tfx.utils import io_utils, path_utils

from components.evaluator.config import EvaluatorSettings, Metric
from components.evaluator.verdict import EXAMPLE_COUNT
from components.features import FeatureTable, Label
from components.trainer.export import LABEL_SIGNATURE, PREDICTION_KEYS

CLASSES: Mapping[Metric, str] = {
    "auc": "AUC",
    "auc_precision_recall": "AUCPrecisionRecall",
    "binary_accuracy": "BinaryAccuracy",
    "precision": "Precision",
    "recall": "Recall",
    "binary_crossentropy": "BinaryCrossEntropy",
    "calibration": "Calibration",
    "sparse_categorical_accuracy": "SparseCategoricalAccuracy",
    "sparse_categorical_crossentropy": "SparseCategoricalCrossentropy",
    "mean_absolute_error": "MeanAbsoluteError",
    "mean_squared_error": "MeanSquaredError",
    "root_mean_squared_error": "RootMeanSquaredError",
}
DEFAULT_METRICS: Mapping[str, tuple[Metric, ...]] = {
    "binary": ("auc", "auc_precision_recall", "binary_accuracy", "calibration"),
    "multiclass": ("sparse_categorical_accuracy", "sparse_categorical_crossentropy"),
    "regression": ("mean_absolute_error", "root_mean_squared_error"),
}


def analyse(
    examples: Artifact,
    models: Mapping[str, Artifact],
    config: config_pb2.EvalConfig,
    output_uri: str,
    batch_size: int,
    pipeline: beam.Pipeline,
) -> None:
    """Evaluate models by name on the eval split and write TFMA's files."""
    source = tfxio_utils.get_tfxio_factory_from_artifact(
        examples=[examples],
        telemetry_descriptors=["Evaluator"],
        raw_record_column_name=tfma.constants.ARROW_INPUT_COLUMN,
    )(io_utils.all_files_pattern(artifact_utils.get_split_uri([examples], "eval")))
    shared = [
        tfma.default_eval_shared_model(
            eval_saved_model_path=path_utils.serving_model_path(model.uri),
            model_name=name,
            eval_config=config,
        )
        for name, model in models.items()
    ]
    with pipeline as p:
        _ = (
            p
            | "ReadExamples" >> source.BeamSource(batch_size)
            | "Analyse"
            >> tfma.ExtractEvaluateAndWriteResults(
                eval_shared_model=shared, eval_config=config, output_path=output_uri
            )
        )


def build_eval_config(
    settings: EvaluatorSettings, table: FeatureTable, has_baseline: bool
) -> config_pb2.EvalConfig:
    """Say which metrics are computed on which slices; thresholds are ours.

    TFMA's own thresholds cannot leave small slices out: their metrics then count as
    0 and fail.
    """
    names = [tfma.CANDIDATE_KEY, *([tfma.BASELINE_KEY] if has_baseline else [])]
    metrics = [_metric(CLASSES[name], name) for name in _metrics(settings, table.label)]
    return config_pb2.EvalConfig(
        model_specs=[_model_spec(table, name) for name in names],
        slicing_specs=[config_pb2.SlicingSpec(), *_slices(settings)],
        metrics_specs=[
            config_pb2.MetricsSpec(metrics=metrics, model_names=names),
            # Of rows, not of their weights: it says how far a metric can be trusted.
            config_pb2.MetricsSpec(
                metrics=[_metric("ExampleCount", EXAMPLE_COUNT)],
                model_names=names,
                example_weights=config_pb2.ExampleWeightOptions(unweighted=True),
            ),
        ],
    )


def _model_spec(table: FeatureTable, name: str) -> config_pb2.ModelSpec:
    return config_pb2.ModelSpec(
        name=name,
        is_baseline=name == tfma.BASELINE_KEY,
        signature_name="serving_default",
        preprocessing_function_names=[LABEL_SIGNATURE],
        prediction_key=PREDICTION_KEYS[table.label.kind],
        label_key=table.label_key,
        example_weight_key=table.weight_key or "",
    )


def _metrics(settings: EvaluatorSettings, label: Label) -> list[Metric]:
    chosen = settings.metrics or DEFAULT_METRICS[label.kind]
    return list(dict.fromkeys([*chosen, *settings.thresholds]))


def _slices(settings: EvaluatorSettings) -> Iterator[config_pb2.SlicingSpec]:
    for entry in settings.slices:
        keys = [entry] if isinstance(entry, str) else list(entry)
        yield config_pb2.SlicingSpec(feature_keys=keys)


def _metric(class_name: str, name: str) -> config_pb2.MetricConfig:
    return config_pb2.MetricConfig(
        class_name=class_name, config=f'{{"name": "{name}"}}'
    )


def read_metrics(
    output_uri: str, model_name: str | None
) -> dict[str, dict[str, float]]:
    """Read one model's metrics by slice (`origin=JFK`; '' is the whole split).

    TFMA's differences from the baseline are left out: the verdict takes its own.
    TFMA forgets the name of a model that was evaluated alone: then it is None.
    """
    result = tfma.load_eval_result(output_uri, model_name=model_name)
    return {
        slice_text(key): {
            name: float(value["doubleValue"])
            for by_class in metrics.values()
            for values in by_class.values()
            for name, value in values.items()
            if "doubleValue" in value and not name.endswith("_diff")
        }
        for key, metrics in result.slicing_metrics
    }


def slice_text(key: Any) -> str:
    """Write a slice key as `origin=JFK, carrier=B6`; '' for the whole split."""
    return ", ".join(f"{name}={_plain(value)}" for name, value in key)


def _plain(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
