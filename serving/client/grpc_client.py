"""A client over gRPC."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import grpc
from google.protobuf import json_format, text_format

from serving import apis
from serving.client.protocol import ANY, Array, InputSpec, VersionStatus, Which
from serving.client.signatures import input_specs
from serving.errors import ClientError
from serving.model_server_config import ModelConfig, to_text
from serving.tensors import to_array, to_proto

UNLIMITED = -1


class GrpcClient:
    """Asks one model over gRPC."""

    def __init__(self, address: str, model: str, which: Which = ANY) -> None:
        self._address = address
        self._model = model
        self._which = which
        self._channel = grpc.insecure_channel(
            address,
            options=[
                ("grpc.max_receive_message_length", UNLIMITED),
                ("grpc.max_send_message_length", UNLIMITED),
            ],
        )

    def predict(
        self, inputs: Mapping[str, Array], signature: str, timeout_s: float
    ) -> dict[str, Array]:
        """Return the outputs of a signature; see `PredictionClient`."""
        request = apis.PredictRequest()
        self._choose(request.model_spec)
        request.model_spec.signature_name = signature
        for name, array in inputs.items():
            request.inputs[name].CopyFrom(to_proto(array, raw=True))
        response = self._call(
            apis.PREDICTION_SERVICE, "Predict", request, apis.PredictResponse, timeout_s
        )
        return {name: to_array(tensor) for name, tensor in response.outputs.items()}

    def inputs(self, signature: str, timeout_s: float) -> tuple[InputSpec, ...]:
        """Return the inputs of a signature; see `PredictionClient`."""
        response = self._metadata(timeout_s)
        signatures = apis.SignatureDefMap()
        response.metadata["signature_def"].Unpack(signatures)
        content = json.loads(
            json_format.MessageToJson(signatures, preserving_proto_field_name=True)
        )
        return input_specs(content["signature_def"], signature, self._where())

    def version(self, timeout_s: float) -> int:
        """Return the version that answers; see `PredictionClient`."""
        return int(self._metadata(timeout_s).model_spec.version.value)

    def _metadata(self, timeout_s: float) -> Any:
        request = apis.GetModelMetadataRequest(metadata_field=["signature_def"])
        self._choose(request.model_spec)
        return self._call(
            apis.PREDICTION_SERVICE,
            "GetModelMetadata",
            request,
            apis.GetModelMetadataResponse,
            timeout_s,
        )

    def status(self, timeout_s: float) -> tuple[VersionStatus, ...]:
        """Return all versions; see `PredictionClient`."""
        request = apis.GetModelStatusRequest()
        request.model_spec.name = self._model
        response = self._call(
            apis.MODEL_SERVICE,
            "GetModelStatus",
            request,
            apis.GetModelStatusResponse,
            timeout_s,
        )
        names = apis.ModelVersionStatus.State
        return tuple(
            VersionStatus(s.version, names.Name(s.state), s.status.error_message)
            for s in response.model_version_status
        )

    def reload(self, models: Sequence[ModelConfig], timeout_s: float) -> None:
        """Let the server serve these models and no others; return when it does.

        Raises:
            ClientError: The server cannot be reached, or refused it.
        """
        request = apis.ReloadConfigRequest()
        text_format.Parse(to_text(models), request.config)
        self._call(
            apis.MODEL_SERVICE,
            "HandleReloadConfigRequest",
            request,
            apis.ReloadConfigResponse,
            timeout_s,
        )

    def close(self) -> None:
        """End the connection."""
        self._channel.close()

    def _choose(self, spec: Any) -> None:
        spec.name = self._model
        if self._which.version is not None:
            spec.version.value = self._which.version
        elif self._which.label:
            spec.version_label = self._which.label

    def _where(self) -> str:
        return f"model {self._model!r} at {self._address}"

    def _call(
        self,
        service: str,
        method: str,
        request: Any,
        response_class: Any,
        timeout_s: float,
    ) -> Any:
        call = self._channel.unary_unary(
            f"/{service}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=response_class.FromString,
        )
        try:
            return call(request, timeout=timeout_s)
        except grpc.RpcError as error:
            raise ClientError(
                f"gRPC {self._address}: {error.code().name}: {error.details()}"
            ) from error
