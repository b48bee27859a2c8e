"""The TFX component: compares statistics with the schema and holds the gate."""

import json
from collections.abc import Iterator

import tensorflow_data_validation as tfdv
from tensorflow_metadata.proto.v0 import anomalies_pb2
from tfx import v1 as tfx
from tfx.types import artifact_utils
from tfx.utils import io_utils

from components.example_validator.config import SchemaSettings
from components.example_validator.gate import Anomaly, judge

WARNINGS_PROPERTY = "taxiway_warnings"
ANOMALIES_FILE = "SchemaDiff.pb"


@tfx.dsl.components.component
def ExampleValidator(
    statistics: tfx.dsl.components.InputArtifact[
        tfx.types.standard_artifacts.ExampleStatistics
    ],
    schema: tfx.dsl.components.InputArtifact[tfx.types.standard_artifacts.Schema],
    anomalies: tfx.dsl.components.OutputArtifact[
        tfx.types.standard_artifacts.ExampleAnomalies
    ],
    settings: tfx.dsl.components.Parameter[str],
) -> None:
    """Find anomalies in every split and stop the run where the settings say so.

    Writes the same files as TFX's ExampleValidator: `Split-<name>/SchemaDiff.pb`.
    TFX's own finds them too, but always lets the run go on.
    """
    policy = SchemaSettings.model_validate_json(settings)
    expected = io_utils.SchemaReader().read(io_utils.get_only_uri_in_dir(schema.uri))
    found: list[Anomaly] = []
    anomalies.split_names = statistics.split_names
    anomalies.span = statistics.span
    for split in artifact_utils.decode_split_names(statistics.split_names):
        stats = tfdv.load_stats_binary(
            io_utils.get_only_uri_in_dir(
                artifact_utils.get_split_uri([statistics], split)
            )
        )
        result = tfdv.validate_statistics(stats, expected)
        uri = artifact_utils.get_split_uri([anomalies], split)
        io_utils.write_bytes_file(
            f"{uri}/{ANOMALIES_FILE}", result.SerializeToString(deterministic=True)
        )
        found += read_anomalies(split, result)
    warnings = [str(anomaly) for anomaly in judge(found, policy)]
    anomalies.set_string_custom_property(WARNINGS_PROPERTY, json.dumps(warnings))


def read_anomalies(split: str, result: anomalies_pb2.Anomalies) -> Iterator[Anomaly]:
    """Yield one Anomaly for each reason that TFDV gives."""
    kind_name = anomalies_pb2.AnomalyInfo.Type.Name
    for column, info in sorted(result.anomaly_info.items()):
        for reason in info.reason:
            yield Anomaly(split, column, kind_name(reason.type), reason.description)
    for reason in result.dataset_anomaly_info.reason:
        yield Anomaly(split, "", kind_name(reason.type), reason.description)
