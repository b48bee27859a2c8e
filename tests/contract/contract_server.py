r"""Starts the server under contract, whichever it is, and speaks to it.

`TAXIWAY_CONTRACT_COMMAND` is what runs `tensorflow_model_server`, for example

    docker run --rm --network=host --volume=/tmp:/tmp \\
        --entrypoint=tensorflow_model_server tensorflow/serving

Without it the embedded server is run.
"""

import http.client
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from serving import apis
from serving.tensors import to_array, to_proto

COMMAND = os.environ.get("TAXIWAY_CONTRACT_COMMAND", "")
IS_ORIGINAL = bool(COMMAND)
TRANSPORTS = ("original",) if IS_ORIGINAL else ("loop", "grpcio")
"""What speaks gRPC; of ours the first is the default, the other the reference."""
START_TIMEOUT_S = 60.0
TIMEOUT_S = 30.0
MODELS = Path(__file__).parents[1] / "data" / "conformance" / "models"
FLIGHTS = Path(__file__).parents[1] / "data" / "flights"
PREDICTION, MODEL = "PredictionService", "ModelService"


class StatusError(Exception):
    """A gRPC call that failed."""

    def __init__(self, error: Any) -> None:
        self.code: str = error.code().name
        self.text: str = error.details()
        super().__init__(f"{self.code}: {self.text}")


@dataclass
class Contracted:
    """A running server: its addresses, and what can be asked of it."""

    grpc_port: int
    rest_port: int
    process: "subprocess.Popen[bytes]"
    log: Path
    credentials: Any = None
    channel_: Any = field(default=None, repr=False)

    # gRPC.

    @property
    def channel(self) -> Any:
        """A channel to the server, without limits on sizes."""
        if self.channel_ is None:
            options = [
                ("grpc.max_receive_message_length", -1),
                ("grpc.max_send_message_length", -1),
            ]
            address = f"127.0.0.1:{self.grpc_port}"
            if self.credentials is None:
                self.channel_ = grpc.insecure_channel(address, options)
            else:
                self.channel_ = grpc.secure_channel(
                    address,
                    self.credentials,
                    [*options, ("grpc.ssl_target_name_override", "localhost")],
                )
        return self.channel_

    def call(
        self, service: str, method: str, request: Any, timeout_s: float = TIMEOUT_S
    ) -> Any:
        """Call a method and return its response.

        Raises:
            StatusError: It failed.
        """
        payload = request if isinstance(request, bytes) else request.SerializeToString()
        stub = self.channel.unary_unary(f"/tensorflow.serving.{service}/{method}")
        try:
            answer = stub(payload, timeout=timeout_s)
        except grpc.RpcError as error:
            raise StatusError(error) from None
        return _response(method).FromString(answer)

    def predict(
        self,
        model: str,
        inputs: dict[str, Any],
        *,
        filters: Sequence[str] = (),
        timeout_s: float = TIMEOUT_S,
        **spec: Any,
    ) -> dict[str, Any]:
        """Predict and return the outputs as arrays."""
        response = self.call(
            PREDICTION,
            "Predict",
            predict_request(model, inputs, filters=filters, **spec),
            timeout_s,
        )
        return {name: to_array(tensor) for name, tensor in response.outputs.items()}

    def states(self, model: str, version: int | None = None) -> dict[int, str]:
        """Return the state of each version that GetModelStatus lists."""
        return {
            entry.version: apis.ModelVersionStatus.State.Name(entry.state)
            for entry in self.status(model, version).model_version_status
        }

    def status(self, model: str, version: int | None = None) -> Any:
        """Return a GetModelStatusResponse."""
        request = apis.GetModelStatusRequest(
            model_spec=model_spec(model, version=version)
        )
        return self.call(MODEL, "GetModelStatus", request)

    def reload(self, text: str, timeout_s: float = TIMEOUT_S) -> tuple[str, str]:
        """Give the server a ModelServerConfig; return status code and message."""
        from google.protobuf import text_format

        request = apis.ReloadConfigRequest()
        text_format.Parse(text, request.config)
        try:
            self.call(MODEL, "HandleReloadConfigRequest", request, timeout_s)
        except StatusError as error:
            return error.code, error.text
        return "OK", ""

    # REST.

    def rest(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, Any]:
        """Ask over REST; return the status and the parsed JSON."""
        status, _, text = self.http(method, path, body, headers)
        return status, json.loads(text)

    def http(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, dict[str, str], bytes]:
        """Ask over HTTP; return status, headers and body."""
        if body is not None and not isinstance(body, bytes | str):
            body = json.dumps(body)
        if isinstance(body, str):
            body = body.encode()
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.rest_port, timeout=TIMEOUT_S
        )
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return response.status, found, response.read()
        finally:
            connection.close()

    def rest_predict(self, model: str, body: Any) -> tuple[int, Any]:
        """Ask for predictions over REST."""
        return self.rest("POST", f"/v1/models/{model}:predict", body)

    def stop(self) -> int:
        """Stop it as a container's engine does; return its exit status."""
        if self.channel_ is not None:
            self.channel_.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def _response(method: str) -> Any:
    names = {
        "Predict": "PredictResponse",
        "Classify": "ClassificationResponse",
        "Regress": "RegressionResponse",
        "MultiInference": "MultiInferenceResponse",
        "GetModelMetadata": "GetModelMetadataResponse",
        "GetModelStatus": "GetModelStatusResponse",
        "HandleReloadConfigRequest": "ReloadConfigResponse",
    }
    return getattr(apis, names[method])


def model_spec(
    name: str, *, version: int | None = None, label: str = "", signature: str = ""
) -> Any:
    """Return a ModelSpec."""
    spec = apis.ModelSpec(name=name, signature_name=signature)
    if version is not None:
        spec.version.value = version
    if label:
        spec.version_label = label
    return spec


def predict_request(
    model: str, inputs: dict[str, Any], *, filters: Sequence[str] = (), **spec: Any
) -> Any:
    """Return a PredictRequest."""
    request = apis.PredictRequest(model_spec=model_spec(model, **spec))
    for name, values in inputs.items():
        array = (
            values if isinstance(values, np.ndarray) else np.array(values, np.float32)
        )
        request.inputs[name].CopyFrom(to_proto(array))
    request.output_filter.extend(filters)
    return request


def examples(*rows: dict[str, Any]) -> Any:
    """Return an Input of tf.Examples with float features."""
    source = apis.Input()
    for row in rows:
        features = source.example_list.examples.add().features.feature
        for name, value in row.items():
            features[name].float_list.value.append(value)
    return source


def config(*models: tuple[str, Path, str]) -> str:
    """Return the text of a ModelServerConfig: names, base paths, more fields."""
    entries = [
        f'config {{ name: "{name}" base_path: "{path}" '
        f'model_platform: "tensorflow" {more} }}'
        for name, path, more in models
    ]
    return f"model_config_list {{ {' '.join(entries)} }}"


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def command(transport: str) -> list[str]:
    """Return what runs `tensorflow_model_server`."""
    if IS_ORIGINAL:
        return shlex.split(COMMAND)
    ours = [sys.executable, "-P", "-m", "serving.server", "--host=127.0.0.1"]
    return [*ours, f"--grpc_transport={transport}"]


@contextmanager
def running(
    log: Path,
    *flags: str,
    waits: bool = True,
    credentials: Any = None,
    transport: str = TRANSPORTS[0],
) -> Iterator[Contracted]:
    """Run a server for as long as the block lasts."""
    ports = free_port(), free_port()
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    root = str(Path(__file__).parents[2])
    environment["PYTHONPATH"] = os.pathsep.join(
        filter(None, [root, environment.get("PYTHONPATH")])
    )
    with log.open("ab") as output:
        process = subprocess.Popen(
            [
                *command(transport),
                f"--port={ports[0]}",
                f"--rest_api_port={ports[1]}",
                *flags,
            ],
            stdout=output,
            stderr=output,
            env=environment,
        )
    server = Contracted(*ports, process, log, credentials)
    try:
        if waits:
            until(lambda: listens(server), f"no port is open; see {log}", process)
        yield server
    finally:
        server.stop()


def listens(server: Contracted) -> bool:
    """Tell whether both ports are open."""
    try:
        for port in (server.grpc_port, server.rest_port):
            socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def until(
    condition: Any, text: str = "", process: "subprocess.Popen[bytes] | None" = None
) -> None:
    """Wait for a fact, at most a minute."""
    pause = threading.Event()
    deadline = time.monotonic() + START_TIMEOUT_S
    while not condition():
        if process is not None and process.poll() is not None:
            raise AssertionError(f"the server ended with {process.returncode}; {text}")
        if time.monotonic() > deadline:
            raise AssertionError(text or "it did not come to be in a minute")
        pause.wait(0.02)


def publish(source: Path, base_path: Path, version: int) -> None:
    """Copy a version as a publisher does: aside, then by rename."""
    base_path.mkdir(parents=True, exist_ok=True)
    staging = base_path / f".staging-{version}"
    shutil.copytree(source, staging)
    staging.rename(base_path / str(version))
