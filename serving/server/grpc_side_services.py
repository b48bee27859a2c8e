"""Health and reflection beside TensorFlow Serving's services, as functions of bytes."""

from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from serving import apis
from serving.apis import descriptors
from serving.errors import Code, RequestError

HEALTH = "grpc.health.v1.Health"
WATCH = f"/{HEALTH}/Watch"
REFLECT = f"/{reflection.SERVICE_NAME}/ServerReflectionInfo"
Handler = Callable[[bytes], bytes]


def _parsed(message_class: Any, message: bytes) -> Any:
    try:
        return message_class.FromString(message)
    except DecodeError as error:
        raise RequestError(Code.INTERNAL, "Cannot parse the request message") from error


class SideServices:
    """What else a gRPC server is expected to answer."""

    def __init__(self, has_health_service: bool) -> None:
        names = [apis.PREDICTION_SERVICE, apis.MODEL_SERVICE, reflection.SERVICE_NAME]
        self._handlers: dict[str, Handler] = {REFLECT: self._reflect}
        if has_health_service:
            names.append(HEALTH)
            self._handlers |= {f"/{HEALTH}/Check": self._check, WATCH: self._watch}
        self._reflection = reflection.ReflectionServicer(names, descriptors.pool())
        self._status = health_pb2.HealthCheckResponse.NOT_SERVING
        self._known = {"", apis.PREDICTION_SERVICE, apis.MODEL_SERVICE}

    def handler(self, path: str) -> Handler | None:
        """Return what answers each message to a method; None: there is none."""
        return self._handlers.get(path)

    def stays_open(self, path: str) -> bool:
        """Tell whether a method's answers go on after its last message."""
        return path == WATCH

    def set_serving(self, is_serving: bool) -> None:
        """Answer health checks so from now on."""
        kind = health_pb2.HealthCheckResponse
        self._status = kind.SERVING if is_serving else kind.NOT_SERVING

    def _check(self, message: bytes) -> bytes:
        return self._health(message, is_watch=False)

    def _watch(self, message: bytes) -> bytes:
        return self._health(message, is_watch=True)

    def _health(self, message: bytes, *, is_watch: bool) -> bytes:
        request = _parsed(health_pb2.HealthCheckRequest, message)
        status = self._status
        if request.service not in self._known:
            if not is_watch:
                raise RequestError(
                    Code.NOT_FOUND, f"Unknown service {request.service!r}"
                )
            # health.proto: such a stream stays open, for the service may come.
            status = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        response = health_pb2.HealthCheckResponse(status=status)
        content: bytes = response.SerializeToString()
        return content

    def _reflect(self, message: bytes) -> bytes:
        request = _parsed(reflection_pb2.ServerReflectionRequest, message)
        context: Any = None
        [response] = self._reflection.ServerReflectionInfo(iter([request]), context)
        content: bytes = response.SerializeToString()
        return content
