"""The gRPC door of the model server: grpcio's types end here."""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from serving import apis
from serving.errors import Code, RequestError, ServerError
from serving.server.service import ModelServer

log = logging.getLogger(__name__)
MAX_MESSAGE_CHARACTERS = 1024
UNLIMITED = -1
# Kernels release the GIL: more threads than cores keep the cores busy.
NUM_THREADS = 16
STATUS_CODES = {code.value[0]: code for code in grpc.StatusCode}


class GrpcTransport:
    """Listens on a port and answers PredictionService and ModelService."""

    def __init__(self, server: ModelServer, host: str, port: int) -> None:
        """Take the port.

        Raises:
            ServerError: It is taken.
        """
        self._grpc = grpc.server(
            ThreadPoolExecutor(NUM_THREADS, "grpc"),
            options=[
                ("grpc.max_receive_message_length", UNLIMITED),
                ("grpc.max_send_message_length", UNLIMITED),
                # Without it two servers share a port and clients meet either.
                ("grpc.so_reuseport", 0),
            ],
        )
        self._grpc.add_generic_rpc_handlers(tuple(_handlers(server)))
        try:
            self.port: int = self._grpc.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise ServerError(port_taken("gRPC", host, port)) from error
        if self.port == 0:
            raise ServerError(port_taken("gRPC", host, port))

    def start(self) -> None:
        """Begin to answer."""
        self._grpc.start()

    def stop(self, grace_s: float) -> None:
        """Refuse new requests and let running ones finish."""
        self._grpc.stop(grace_s).wait()


def port_taken(api: str, host: str, port: int) -> str:
    """Say that a port cannot be had."""
    return (
        f"the {api} port {host}:{port} cannot be opened: another program listens there, "
        "or it is not ours to take; choose another, or 0 for any free one"
    )


def _handlers(server: ModelServer) -> list[grpc.GenericRpcHandler]:
    prediction = {
        "Predict": _unary(server.predict, apis.PredictRequest),
        "GetModelMetadata": _unary(
            server.get_model_metadata, apis.GetModelMetadataRequest
        ),
    }
    model = {
        "GetModelStatus": _unary(server.get_model_status, apis.GetModelStatusRequest)
    }
    return [
        grpc.method_handlers_generic_handler(apis.PREDICTION_SERVICE, prediction),
        grpc.method_handlers_generic_handler(apis.MODEL_SERVICE, model),
    ]


def _unary(answer: Callable[[Any], Any], request_class: Any) -> grpc.RpcMethodHandler:
    def handle(request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return answer(request)
        except RequestError as error:
            context.abort(STATUS_CODES[int(error.code)], _cut(str(error)))
        except Exception as error:
            log.exception("a request failed")
            context.abort(STATUS_CODES[int(Code.INTERNAL)], _cut(str(error)))

    return grpc.unary_unary_rpc_method_handler(
        handle,
        request_deserializer=request_class.FromString,
        response_serializer=lambda response: response.SerializeToString(),
    )


def _cut(message: str) -> str:
    """Cut a message to what fits in a header, as TensorFlow Serving does."""
    if len(message) <= MAX_MESSAGE_CHARACTERS:
        return message
    return f"{message[:MAX_MESSAGE_CHARACTERS]}...TRUNCATED"
