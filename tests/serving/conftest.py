"""A model server of our own on free ports, and ways to speak to it."""

import http.client
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from serving import apis
from serving.server.process import EmbeddedServer
from serving.tensors import to_proto

CONFORMANCE = Path(__file__).parents[1] / "data" / "conformance"
TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Server:
    """Addresses of a running model server."""

    model: str
    rest_port: int
    grpc_port: int

    def rest(
        self, method: str, path: str, body: str | bytes | None = None
    ) -> tuple[int, str]:
        """Ask over REST and return status and body."""
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.rest_port, timeout=TIMEOUT_S
        )
        try:
            connection.request(method, path, body)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def grpc(self, method: str, request: Any, response_class: Any) -> Any:
        """Ask over gRPC; a failure is a grpc.RpcError."""
        with grpc.insecure_channel(f"127.0.0.1:{self.grpc_port}") as channel:
            call = channel.unary_unary(
                f"/tensorflow.serving.{method}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=response_class.FromString,
            )
            return call(request, timeout=TIMEOUT_S)

    def rest_predict(self, body: Any) -> tuple[int, Any]:
        """Ask for predictions and return status and parsed body."""
        path = f"/v1/models/{self.model}:predict"
        status, text = self.rest("POST", path, json.dumps(body))
        return status, json.loads(text)

    def grpc_predict(
        self, x: list[float], version: int | None = None, **spec: Any
    ) -> Any:
        """Ask PredictionService.Predict about one float input, x."""
        request = apis.PredictRequest()
        request.model_spec.MergeFrom(apis.ModelSpec(**({"name": self.model} | spec)))
        if version is not None:
            request.model_spec.version.value = version
        request.inputs["x"].CopyFrom(to_proto(np.array(x, np.float32)))
        return self.grpc("PredictionService/Predict", request, apis.PredictResponse)

    def states(self) -> dict[int, tuple[str, str]]:
        """Return `{version: (state, error)}`."""
        request = apis.GetModelStatusRequest()
        request.model_spec.name = self.model
        response = self.grpc(
            "ModelService/GetModelStatus", request, apis.GetModelStatusResponse
        )
        states = apis.ModelVersionStatus.State
        return {
            entry.version: (states.Name(entry.state), entry.status.error_message)
            for entry in response.model_version_status
        }


@pytest.fixture(scope="session")
def start(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., Server]]:
    """Return a function that starts a server; all of them end with the session."""
    with ExitStack() as stack:

        def start_one(model: str, base_path: Path) -> Server:
            log = tmp_path_factory.mktemp("server") / "log"
            server = stack.enter_context(
                EmbeddedServer(model, base_path, log, poll_interval_s=0.05)
            )
            return Server(model, server.rest_port, server.grpc_port)

        yield start_one


@pytest.fixture(scope="session")
def conformance() -> Path:
    """TensorFlow Serving's own test models."""
    return CONFORMANCE


@pytest.fixture(scope="session")
def half_plus_two(start: Callable[..., Server]) -> Server:
    """A server of versions 123 and 124, of which it takes the latest."""
    return start("half_plus_two", CONFORMANCE / "models" / "half_plus_two")


@pytest.fixture(scope="session")
def version_123(
    start: Callable[..., Server], tmp_path_factory: pytest.TempPathFactory
) -> Server:
    """A server of version 123 alone, under the name that its metadata file has."""
    base_path = tmp_path_factory.mktemp("models") / "m"
    shutil.copytree(
        CONFORMANCE / "models/half_plus_two/00000123", base_path / "00000123"
    )
    return start("saved_model_half_plus_two_2_versions", base_path)
