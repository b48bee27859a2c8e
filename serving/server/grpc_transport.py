"""The gRPC door of the model server by grpcio, whose types end here."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from serving import apis
from serving.apis import descriptors
from serving.errors import RequestError, ServerError
from serving.server import rpc
from serving.server.call import Call
from serving.server.ports import port_taken
from serving.server.service import ModelServer

UNLIMITED = -1
STATUS_CODES = {code.value[0]: code for code in grpc.StatusCode}


@dataclass(frozen=True)
class Tls:
    """Certificates of an encrypted channel, in PEM."""

    key: bytes
    certificate: bytes
    client_ca: bytes | None = None
    """Whose certificates clients may show; None: the system's."""
    requires_client: bool = False

    @classmethod
    def read(cls, file: Path, message: Any) -> "Tls":
        """Take an SSLConfig's contents.

        Raises:
            ServerError: A certificate is missing.
        """
        for name in ("server_key", "server_cert"):
            if not getattr(message, name):
                raise ServerError(f"{file}: {name} is missing; allowed: PEM text")
        if message.client_verify and not message.custom_ca:
            raise ServerError(
                f"{file}: client_verify needs custom_ca: PEM text of the authority "
                "that signs clients' certificates"
            )
        return cls(
            message.server_key.encode(),
            message.server_cert.encode(),
            message.custom_ca.encode() or None,
            message.client_verify,
        )


@dataclass(frozen=True)
class GrpcOptions:
    """How gRPC is spoken."""

    host: str = "127.0.0.1"
    port: int = 8500
    """0 takes any free one."""
    socket_path: str = ""
    """A Unix socket to listen on, too."""
    num_threads: int = 16
    """Requests that are run at once."""
    max_in_flight: int = 1024
    """Requests that may wait or run; more are refused with RESOURCE_EXHAUSTED."""
    channel_arguments: tuple[tuple[str, str | int], ...] = ()
    tls: Tls | None = None
    may_run_inline: bool = True
    """False where answering waits for others, as in batching."""
    has_port: bool = True
    """False: the socket only."""
    has_health_service: bool = False


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


def channel_arguments(text: str) -> Sequence[tuple[str, str | int]]:
    """Parse `--grpc_channel_arguments`: `key=value,key=value`, numbers as numbers.

    Raises:
        ServerError: A part is no pair.
    """
    pairs: list[tuple[str, str | int]] = []
    for part in filter(None, text.split(",")):
        key, sign, value = part.partition("=")
        if not sign or not key:
            raise ServerError(
                f"--grpc_channel_arguments: got {part!r}, allowed: key=value, and a "
                "comma between pairs"
            )
        is_number = value.removeprefix("-").isdigit()
        pairs.append((key, int(value) if is_number else value))
    return pairs
