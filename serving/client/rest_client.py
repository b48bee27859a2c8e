"""A client over REST."""

import base64
import http.client
import json
from collections.abc import Mapping
from contextlib import closing
from typing import Any
from urllib.parse import quote

import numpy as np

from serving.client.protocol import ANY, Array, InputSpec, VersionStatus, Which
from serving.client.signatures import input_specs
from serving.errors import ClientError


class RestClient:
    """Asks one model over REST."""

    def __init__(self, address: str, model: str, which: Which = ANY) -> None:
        self._address = address
        self._model = model
        self._path = self._model_path = f"/v1/models/{model}"
        if which.version is not None:
            self._path += f"/versions/{which.version}"
        elif which.label:
            self._path += f"/labels/{quote(which.label, safe='')}"
        self._output_names: dict[str, str] = {}

    def predict(
        self, inputs: Mapping[str, Array], signature: str, timeout_s: float
    ) -> dict[str, Array]:
        """Return the outputs of a signature; see `PredictionClient`."""
        body = {
            "signature_name": signature,
            "inputs": {name: to_json(array) for name, array in inputs.items()},
        }
        response = self._ask("POST", f"{self._path}:predict", timeout_s, body)
        outputs = response["outputs"]
        if not isinstance(outputs, dict):
            outputs = {self._only_output(signature, timeout_s): outputs}
        return {name: from_json(value) for name, value in outputs.items()}

    def inputs(self, signature: str, timeout_s: float) -> tuple[InputSpec, ...]:
        """Return the inputs of a signature; see `PredictionClient`."""
        signatures = self._signatures(timeout_s)
        where = f"model {self._model!r} at {self._address}"
        return input_specs(signatures, signature, where)

    def version(self, timeout_s: float) -> int:
        """Return the version that answers; see `PredictionClient`."""
        return int(self._metadata(timeout_s)["model_spec"]["version"])

    def status(self, timeout_s: float) -> tuple[VersionStatus, ...]:
        """Return all versions; see `PredictionClient`."""
        response = self._ask("GET", self._model_path, timeout_s)
        return tuple(
            VersionStatus(
                int(entry["version"]), entry["state"], entry["status"]["error_message"]
            )
            for entry in response["model_version_status"]
        )

    def close(self) -> None:
        """End the connection; each request has one of its own."""

    def _metadata(self, timeout_s: float) -> Mapping[str, Any]:
        response: Mapping[str, Any] = self._ask(
            "GET", f"{self._path}/metadata", timeout_s
        )
        return response

    def _signatures(self, timeout_s: float) -> Mapping[str, Any]:
        response = self._metadata(timeout_s)
        content: Mapping[str, Any] = response["metadata"]["signature_def"]
        found: Mapping[str, Any] = content["signature_def"]
        return found

    def _only_output(self, signature: str, timeout_s: float) -> str:
        """Ask what a signature's only output is called: the answer does not say."""
        if signature not in self._output_names:
            outputs = self._signatures(timeout_s)[signature]["outputs"]
            self._output_names[signature] = next(iter(outputs))
        return self._output_names[signature]

    def _ask(self, method: str, path: str, timeout_s: float, body: Any = None) -> Any:
        content = None if body is None else json.dumps(body)
        try:
            with closing(
                http.client.HTTPConnection(self._address, timeout=timeout_s)
            ) as connection:
                connection.request(method, path, content)
                response = connection.getresponse()
                text = response.read().decode(errors="replace")
        except http.client.HTTPException as error:
            raise ClientError(
                f"REST http://{self._address}: its answer is not HTTP; is it the port "
                f"of gRPC? ({type(error).__name__})"
            ) from error
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ClientError(f"REST http://{self._address}: {reason}") from error
        return self._content(response.status, text)

    def _content(self, status: int, text: str) -> Any:
        try:
            content = json.loads(text)
        except json.JSONDecodeError as error:
            raise ClientError(
                f"REST http://{self._address}: {status}, not JSON: {text[:200]!r}"
            ) from error
        if not isinstance(content, dict):
            raise ClientError(
                f"REST http://{self._address}: {status}, no JSON object: {text[:200]!r}"
            )
        if status != http.client.OK:
            message = content.get("error", text)
            raise ClientError(f"REST http://{self._address}: {status}: {message}")
        return content


def to_json(array: Array) -> Any:
    """Return nested lists; bytes that are not UTF-8 text as `{"b64": …}`."""
    if array.dtype == object:
        return _map(array.tolist(), _text)
    return array.tolist()


def from_json(value: Any) -> Array:
    """Return an array: text and bytes in an object array, numbers as they are."""
    values = _map(value, _bytes)
    array = np.asarray(values)
    if array.dtype.kind in "SU":  # numpy's own bytes type loses NULs at the end
        return np.array(values, object)
    if array.dtype.kind == "f" and (array >= 2**63).any():
        # numpy takes integers on both sides of 2^63 for floats.
        exact = np.array(values, object)
        if all(isinstance(item, int) for item in exact.flat):
            return exact.astype(np.uint64)
    return array


def _map(value: Any, change: Any) -> Any:
    if isinstance(value, list):
        return [_map(item, change) for item in value]
    return change(value)


def _text(value: Any) -> Any:
    raw = value if isinstance(value, bytes) else str(value).encode()
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(raw).decode()}


def _bytes(value: Any) -> Any:
    if isinstance(value, dict) and set(value) == {"b64"}:
        return base64.b64decode(value["b64"])
    return value.encode() if isinstance(value, str) else value
