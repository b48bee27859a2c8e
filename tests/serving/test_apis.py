"""The checked-in descriptor set, and what must not be imported with it."""

import subprocess
import sys

import numpy as np
import pytest

from serving import apis
from serving.apis import descriptors


@pytest.mark.integration
def test_descriptor_set_is_that_of_the_installed_package() -> None:
    """Compare messages, not bytes: protobuf may write one message in several ways."""
    installed = {file.name: file for file in descriptors.collect().file}
    checked_in = {file.name: file for file in descriptors.load().file}
    stale = sorted(
        name
        for name in installed.keys() | checked_in.keys()
        if installed.get(name) != checked_in.get(name)
    )
    assert not stale, f"{descriptors.FILE.name} is stale; run: {descriptors.RENEW}"


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("PredictRequest", "tensorflow.serving"),
        ("ModelServerConfig", "tensorflow.serving"),
        ("BatchingParameters", "tensorflow.serving"),
        ("PredictionLog", "tensorflow.serving"),
        ("TensorProto", "tensorflow"),
        ("ConfigProto", "tensorflow"),
    ],
)
def test_message_can_be_had_by_its_name(name: str, package: str) -> None:
    assert getattr(apis, name).DESCRIPTOR.full_name == f"{package}.{name}"


@pytest.mark.parametrize(
    ("service", "methods"),
    [
        (
            apis.PREDICTION_SERVICE,
            {"Classify", "GetModelMetadata", "MultiInference", "Predict", "Regress"},
        ),
        (apis.MODEL_SERVICE, {"GetModelStatus", "HandleReloadConfigRequest"}),
    ],
)
def test_services_have_their_methods(service: str, methods: set[str]) -> None:
    found = descriptors.pool().FindServiceByName(service)
    assert {method.name for method in found.methods} == methods


def test_packed_numbers_are_buffers_on_the_same_wire() -> None:
    usual = apis.TensorProto(dtype=1, float_val=[1.5, -2.0])
    buffer_class = descriptors.message_class("tensorflow.TensorProto", buffers=True)
    buffered = buffer_class.FromString(usual.SerializeToString())
    assert np.frombuffer(buffered.float_val[0], np.float32).tolist() == [1.5, -2.0]
    assert apis.TensorProto.FromString(buffered.SerializeToString()) == usual


def test_unknown_message_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no message 'Nonsense'"):
        _ = apis.Nonsense


@pytest.mark.parametrize(
    "modules",
    [
        "serving.apis, serving.apis.descriptors",
        "serving.client.grpc_client, serving.client.rest_client",
        "serving.config, serving.model_repository, serving.tensors, serving.rows",
        "serving.server.process, serving.server.service, serving.server.rest",
        "pipeline.commands.predict, pipeline.commands.status",
    ],
)
def test_tensorflow_and_tfx_are_not_imported(modules: str) -> None:
    script = (
        f"import sys, {modules}\n"
        "from serving import apis; apis.PredictRequest()\n"
        "print({m.split('.')[0] for m in sys.modules} & {'tensorflow', 'tfx', 'keras'})"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


@pytest.mark.integration
def test_our_messages_and_tensorflows_live_in_one_process() -> None:
    from tensorflow_serving.apis import predict_pb2

    ours = apis.PredictRequest()
    ours.model_spec.name = "m"
    theirs = predict_pb2.PredictRequest.FromString(ours.SerializeToString())
    assert theirs.model_spec.name == "m"
