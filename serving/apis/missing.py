"""What TensorFlow Serving's wheel lacks: three messages of its flags, and its services.

From its batching, monitoring and ssl `.proto` files, and prediction_service.proto,
model_service.proto and session_service.proto, whose generated modules do not load.
"""

from google.protobuf import descriptor_pb2

Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "bool": Field.TYPE_BOOL,
    "int64": Field.TYPE_INT64,
    "string": Field.TYPE_STRING,
}
_WRAPPERS = "google/protobuf/wrappers.proto"
_PREFIX = "tensorflow_serving/"
# Message: its fields, numbered from 1; a type with a dot is a message.
_MESSAGES: dict[str, dict[str, str]] = {
    "BatchingParameters": {
        "max_batch_size": ".google.protobuf.Int64Value",
        "batch_timeout_micros": ".google.protobuf.Int64Value",
        "max_enqueued_batches": ".google.protobuf.Int64Value",
        "num_batch_threads": ".google.protobuf.Int64Value",
        "thread_pool_name": ".google.protobuf.StringValue",
        "allowed_batch_sizes": "repeated int64",
        "pad_variable_length_inputs": "bool",
        "enable_large_batch_splitting": ".google.protobuf.BoolValue",
        "max_execution_batch_size": ".google.protobuf.Int64Value",
    },
    "PrometheusConfig": {"enable": "bool", "path": "string"},
    "MonitoringConfig": {"prometheus_config": ".tensorflow.serving.PrometheusConfig"},
    "SSLConfig": {
        "server_key": "string",
        "server_cert": "string",
        "custom_ca": "string",
        "client_verify": "bool",
    },
}
# Service: the file that it stands in, and its methods' requests and responses.
_SERVICES: dict[str, tuple[str, dict[str, tuple[str, str]]]] = {
    "PredictionService": (
        "apis/prediction_service.proto",
        {
            "Classify": ("ClassificationRequest", "ClassificationResponse"),
            "Regress": ("RegressionRequest", "RegressionResponse"),
            "Predict": ("PredictRequest", "PredictResponse"),
            "MultiInference": ("MultiInferenceRequest", "MultiInferenceResponse"),
            "GetModelMetadata": ("GetModelMetadataRequest", "GetModelMetadataResponse"),
        },
    ),
    "ModelService": (
        "apis/model_service.proto",
        {
            "GetModelStatus": ("GetModelStatusRequest", "GetModelStatusResponse"),
            "HandleReloadConfigRequest": (
                "ReloadConfigRequest",
                "ReloadConfigResponse",
            ),
        },
    ),
}


def files(
    known: descriptor_pb2.FileDescriptorSet,
) -> list[descriptor_pb2.FileDescriptorProto]:
    """Return the files to add to those that are known."""
    homes = {
        message.name: file.name
        for file in known.file
        if file.package == "tensorflow.serving"
        for message in file.message_type
    }
    return [_configs(), *(_service(name, homes) for name in _SERVICES)]


def _configs() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{_PREFIX}config/model_server_flags.proto",
        package="tensorflow.serving",
        syntax="proto3",
        dependency=[_WRAPPERS],
    )
    for message, fields in _MESSAGES.items():
        declared = file.message_type.add(name=message)
        for number, (name, kind) in enumerate(fields.items(), 1):
            declared.field.append(_field(name, number, kind))
    return file


def _field(name: str, number: int, kind: str) -> descriptor_pb2.FieldDescriptorProto:
    scalar = kind.removeprefix("repeated ")
    label = Field.LABEL_OPTIONAL if scalar == kind else Field.LABEL_REPEATED
    field = Field(name=name, number=number, label=label)
    if scalar in _SCALARS:
        field.type = _SCALARS[scalar]
    else:
        field.type, field.type_name = Field.TYPE_MESSAGE, scalar
    return field


def _service(name: str, homes: dict[str, str]) -> descriptor_pb2.FileDescriptorProto:
    path, methods = _SERVICES[name]
    used = sorted({homes[message] for pair in methods.values() for message in pair})
    file = descriptor_pb2.FileDescriptorProto(
        name=_PREFIX + path,
        package="tensorflow.serving",
        syntax="proto3",
        dependency=used,
    )
    service = file.service.add(name=name)
    for method, (request, response) in methods.items():
        service.method.add(
            name=method,
            input_type=f".tensorflow.serving.{request}",
            output_type=f".tensorflow.serving.{response}",
        )
    return file
