"""The gRPC door of the model server by grpcio, whose types end here."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from serving import apis
from serving.apis import descriptors
from serving.errors import RequestError, ServerError
from serving.server import rpc
from serving.server.call import Call
from serving.server.grpc_options import GrpcOptions, Tls
from serving.server.ports import port_taken
from serving.server.service import ModelServer

UNLIMITED = -1
STATUS_CODES = {code.value[0]: code for code in grpc.StatusCode}


class GrpcTransport:
    """Listens on a port and answers TensorFlow Serving's services."""

    def __init__(self, server: ModelServer, options: GrpcOptions) -> None:
        """Take the port.

        Raises:
            ServerError: It is taken.
        """
        self._grpc = grpc.server(
            ThreadPoolExecutor(options.num_threads, "grpc"),
            options=[
                ("grpc.max_receive_message_length", UNLIMITED),
                ("grpc.max_send_message_length", UNLIMITED),
                # Without it two servers share a port and clients meet either.
                ("grpc.so_reuseport", 0),
                *options.channel_arguments,
            ],
            maximum_concurrent_rpcs=options.max_in_flight,
        )
        self._grpc.add_generic_rpc_handlers((_Handlers(server),))
        self._health = health.HealthServicer() if options.has_health_service else None
        self._add_services()
        self.port = 0
        if options.has_port:
            self.port = self._open(f"{options.host}:{options.port}", options)
        if options.socket_path:
            self._open(f"unix:{options.socket_path}", options)

    def _add_services(self) -> None:
        names = [apis.PREDICTION_SERVICE, apis.MODEL_SERVICE, reflection.SERVICE_NAME]
        pool = descriptors.pool()
        if self._health is not None:
            health_pb2_grpc.add_HealthServicer_to_server(self._health, self._grpc)
            names.append(health.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._grpc, pool)

    def _open(self, address: str, options: GrpcOptions) -> int:
        try:
            if options.tls is None:
                port = self._grpc.add_insecure_port(address)
            else:
                port = self._grpc.add_secure_port(address, _credentials(options.tls))
        except RuntimeError as error:
            raise ServerError(_refused(address, options)) from error
        if port == 0:
            raise ServerError(_refused(address, options))
        return int(port)

    def start(self) -> None:
        """Begin to answer."""
        self._grpc.start()
        self._set_health(health_pb2.HealthCheckResponse.SERVING)

    def stop(self, grace_s: float) -> None:
        """Refuse new requests and let running ones finish."""
        self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        self._grpc.stop(grace_s).wait()

    def _set_health(self, status: Any) -> None:
        if self._health is None:
            return
        for name in ("", apis.PREDICTION_SERVICE, apis.MODEL_SERVICE):
            self._health.set(name, status)


def _refused(address: str, options: GrpcOptions) -> str:
    if address.startswith("unix:"):
        return f"--grpc_socket_path: {options.socket_path} cannot be listened on"
    return port_taken("gRPC", options.host, options.port)


def _credentials(tls: Tls) -> Any:
    return grpc.ssl_server_credentials(
        [(tls.key, tls.certificate)],
        root_certificates=tls.client_ca,
        require_client_auth=tls.requires_client,
    )


class _Handlers(grpc.GenericRpcHandler):
    """Finds a method's handler by its path."""

    def __init__(self, server: ModelServer) -> None:
        self._handlers = {
            path: grpc.unary_unary_rpc_method_handler(_unary(server, method))
            for path, method in rpc.methods().items()
        }

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler; None: there is no such method."""
        return self._handlers.get(handler_call_details.method)


def _unary(server: ModelServer, method: rpc.Method) -> Callable[[bytes, Any], bytes]:
    def handle(payload: bytes, context: Any) -> bytes:
        left = context.time_remaining()
        deadline = None if left is None else time.monotonic() + left
        call = Call(method.api, "grpc", deadline)
        try:
            return rpc.answer(server, method, payload, call)
        except RequestError as error:
            context.abort(STATUS_CODES[int(error.code)], str(error))
            raise  # abort has raised

    return handle
