"""Health and reflection beside TensorFlow Serving's services, as functions of bytes."""

from collections.abc import Callable
from typing import Any

from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from serving import apis
from serving.apis import descriptors
from serving.errors import Code, RequestError

HEALTH = "grpc.health.v1.Health"
WATCH = f"/{HEALTH}/Watch"
REFLECT = f"/{reflection.SERVICE_NAME}/ServerReflectionInfo"
Handler = Callable[[bytes], bytes]


class SideServices:
    """What else a gRPC server is expected to answer."""

    def __init__(self, has_health_service: bool) -> None:
        names = [apis.PREDICTION_SERVICE, apis.MODEL_SERVICE, reflection.SERVICE_NAME]
        self._handlers: dict[str, Handler] = {REFLECT: self._reflect}
        if has_health_service:
            names.append(HEALTH)
            self._handlers |= {f"/{HEALTH}/Check": self._health, WATCH: self._health}
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

    def _health(self, message: bytes) -> bytes:
        request = health_pb2.HealthCheckRequest.FromString(message)
        if request.service not in self._known:
            raise RequestError(Code.NOT_FOUND, f"Unknown service {request.service!r}")
        response = health_pb2.HealthCheckResponse(status=self._status)
        content: bytes = response.SerializeToString()
        return content

    def _reflect(self, message: bytes) -> bytes:
        request = reflection_pb2.ServerReflectionRequest.FromString(message)
        context: Any = None
        [response] = self._reflection.ServerReflectionInfo(iter([request]), context)
        content: bytes = response.SerializeToString()
        return content
