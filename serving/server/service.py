"""The request path: TensorFlow Serving's services on messages, free of transports."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from serving import apis
from serving.errors import Code, RequestError, invalid_argument
from serving.server.versions import Model, ModelVersions
from serving.tensors import Array, to_array, to_proto

DEFAULT_SIGNATURE = "serving_default"
SIGNATURE_DEF = "signature_def"


class ModelServer:
    """Answers requests about models by name."""

    def __init__(self, models: Mapping[str, ModelVersions]) -> None:
        self._models = models

    def predict(self, request: Any) -> Any:
        """Answer a PredictRequest with a PredictResponse.

        Raises:
            RequestError: As TensorFlow Serving would.
        """
        inputs = {name: to_array(tensor) for name, tensor in request.inputs.items()}
        signature_name = request.model_spec.signature_name or DEFAULT_SIGNATURE
        with self.model(request.model_spec) as (version, model):
            if signature_name not in model.signatures:
                raise RequestError(
                    Code.FAILED_PRECONDITION,
                    f'Serving signature key "{signature_name}" not found.',
                )
            outputs = model.run(signature_name, inputs, list(request.output_filter))
        response = apis.PredictResponse()
        for name, array in outputs.items():
            response.outputs[name].CopyFrom(to_proto(array))
        _name_spec(response.model_spec, request.model_spec.name, version)
        response.model_spec.signature_name = signature_name
        return response

    def run(
        self, spec: Any, signature_name: str, inputs: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Run a signature on arrays: what REST needs of `predict`.

        Raises:
            RequestError: As TensorFlow Serving would.
        """
        with self.model(spec) as (_, model):
            return model.run(signature_name, inputs, [])

    def signature(self, spec: Any, name: str) -> Any:
        """Return a SignatureDef.

        Raises:
            RequestError: There is no such model or signature.
        """
        with self.model(spec) as (_, model):
            if name not in model.signatures:
                raise invalid_argument(
                    f'Serving signature name: "{name}" not found in signature def'
                )
            return model.signatures[name]

    def get_model_metadata(self, request: Any) -> Any:
        """Answer a GetModelMetadataRequest: `signature_def` is all that there is.

        Raises:
            RequestError: As TensorFlow Serving would.
        """
        if not request.metadata_field:
            raise invalid_argument(
                "GetModelMetadataRequest must specify at least one metadata_field"
            )
        for field in request.metadata_field:
            if field != SIGNATURE_DEF:
                raise invalid_argument(f"Metadata field {field} is not supported")
        signatures = apis.SignatureDefMap()
        with self.model(request.model_spec) as (version, model):
            for name, signature in model.signatures.items():
                signatures.signature_def[name].CopyFrom(signature)
        response = apis.GetModelMetadataResponse()
        response.metadata[SIGNATURE_DEF].Pack(signatures)
        _name_spec(response.model_spec, request.model_spec.name, version)
        return response

    def get_model_status(self, request: Any) -> Any:
        """Answer a GetModelStatusRequest; a label is ignored, as in TensorFlow Serving.

        Raises:
            RequestError: The model or the version is not known.
        """
        spec = request.model_spec
        known = self._models.get(spec.name)
        if known is None:
            raise RequestError(
                Code.NOT_FOUND, f"Could not find any versions of model {spec.name}"
            )
        version = spec.version.value if spec.HasField("version") else None
        response = apis.GetModelStatusResponse()
        for servable in known.status(version):
            entry = response.model_version_status.add(
                version=servable.version, state=int(servable.state)
            )
            entry.status.SetInParent()
            if servable.error:
                entry.status.error_code = int(Code.UNKNOWN)
                entry.status.error_message = servable.error
        return response

    @contextmanager
    def model(self, spec: Any) -> Iterator[tuple[int, Model]]:
        """Hold the version that a ModelSpec asks for.

        Raises:
            RequestError: There is no such model, version or label.
        """
        if not spec.name:
            raise invalid_argument("Missing ModelSpec")
        known = self._models.get(spec.name)
        if known is None:
            raise RequestError(
                Code.NOT_FOUND, f"Servable not found for request: {_asked(spec)}"
            )
        if spec.version_label:
            raise invalid_argument(
                f"Unrecognized servable version label: {spec.version_label}"
            )
        version = spec.version.value if spec.HasField("version") else None
        with known.use(version) as held:
            yield held


def _asked(spec: Any) -> str:
    if spec.HasField("version"):
        return f"Specific({spec.name}, {spec.version.value})"
    return f"Latest({spec.name})"


def _name_spec(target: Any, name: str, version: int) -> None:
    target.name = name
    target.version.value = version
