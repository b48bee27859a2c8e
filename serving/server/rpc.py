"""TensorFlow Serving's gRPC methods as functions of bytes, free of any transport."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from google.protobuf.message import DecodeError

from serving import apis
from serving.errors import Code, RequestError, ServingError
from serving.server.call import Call
from serving.server.service import ModelServer
from serving.server.steps import Steps, finish
from serving.tensors import buffers, is_all_buffers

log = logging.getLogger(__name__)
MAX_MESSAGE_BYTES = 1024


@dataclass(frozen=True)
class Method:
    """One remote method."""

    api: str
    """As it is counted."""
    parse: Callable[[bytes], Any]
    steps: Callable[[ModelServer, Any, Call], Steps[Any]]
    """From the request to the response."""
    waits: bool = False
    """For models to load: neither an event loop nor the threads that others need are
    the place for it."""


def parse_predict(payload: bytes) -> Any:
    """Parse a PredictRequest, with buffers if all numbers are packed.

    Raises:
        DecodeError: It is none.
    """
    request = buffers("PredictRequest").FromString(payload)
    if all(map(is_all_buffers, request.inputs.values())):
        return request
    return apis.PredictRequest.FromString(payload)


def _at_once(answer: Callable[[ModelServer, Any, Call], Any]) -> Any:
    """Return the steps of a method that runs what it needs by itself."""

    def steps(server: ModelServer, request: Any, call: Call) -> Steps[Any]:
        yield from ()  # it never waits
        return answer(server, request, call)

    return steps


@cache
def methods() -> dict[str, Method]:
    """Return the methods by their path, `/package.Service/Method`."""
    prediction, model = apis.PREDICTION_SERVICE, apis.MODEL_SERVICE
    return {
        f"/{prediction}/Predict": Method("Predict", parse_predict, ModelServer.predict),
        f"/{prediction}/Classify": Method(
            "Classify",
            apis.ClassificationRequest.FromString,
            _at_once(ModelServer.classify),
        ),
        f"/{prediction}/Regress": Method(
            "Regress", apis.RegressionRequest.FromString, _at_once(ModelServer.regress)
        ),
        f"/{prediction}/MultiInference": Method(
            "MultiInference",
            apis.MultiInferenceRequest.FromString,
            _at_once(ModelServer.multi_inference),
        ),
        f"/{prediction}/GetModelMetadata": Method(
            "GetModelMetadata",
            apis.GetModelMetadataRequest.FromString,
            _at_once(ModelServer.get_model_metadata),
        ),
        f"/{model}/GetModelStatus": Method(
            "GetModelStatus",
            apis.GetModelStatusRequest.FromString,
            _at_once(ModelServer.get_model_status),
        ),
        f"/{model}/HandleReloadConfigRequest": Method(
            "HandleReloadConfigRequest",
            apis.ReloadConfigRequest.FromString,
            _at_once(ModelServer.reload_config),
            waits=True,
        ),
    }


def answer(server: ModelServer, method: Method, payload: bytes, call: Call) -> bytes:
    """Answer a serialized request with a serialized response.

    Raises:
        RequestError: The status of the request; its message fits in a header.
    """
    return finish(steps(server, method, payload, call))


def steps(
    server: ModelServer, method: Method, payload: bytes, call: Call
) -> Steps[bytes]:
    """Answer as `answer` does, but leave to the caller where models run.

    Raises:
        RequestError: The status of the request; its message fits in a header.
    """
    try:
        with server.observed(call):
            request = method.parse(payload)
            answered = yield from method.steps(server, request, call)
            response: bytes = answered.SerializeToString()
    except DecodeError as error:
        raise RequestError(Code.INTERNAL, "Cannot parse the request message") from error
    except RequestError as error:
        raise RequestError(error.code, cut(str(error))) from error
    except ServingError as error:
        raise RequestError(Code.UNKNOWN, cut(str(error))) from error
    except Exception as error:
        log.exception("a request failed")
        raise RequestError(Code.INTERNAL, cut(str(error))) from error
    return response


def cut(message: str) -> str:
    """Cut a message to what fits in a header, as TensorFlow Serving does: in bytes."""
    content = message.encode(errors="replace")
    if len(content) <= MAX_MESSAGE_BYTES:
        return message
    kept = content[:MAX_MESSAGE_BYTES].decode(errors="ignore")
    return f"{kept}...TRUNCATED"
