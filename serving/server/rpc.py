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
from serving.tensors import buffers

log = logging.getLogger(__name__)
MAX_MESSAGE_CHARACTERS = 1024


@dataclass(frozen=True)
class Method:
    """One remote method."""

    api: str
    """As it is counted."""
    request_class: Any
    answer: Callable[[ModelServer, Any, Call], Any]


@cache
def methods() -> dict[str, Method]:
    """Return the methods by their path, `/package.Service/Method`."""
    prediction, model = apis.PREDICTION_SERVICE, apis.MODEL_SERVICE
    return {
        f"/{prediction}/Predict": Method(
            "Predict", buffers("PredictRequest"), ModelServer.predict
        ),
        f"/{prediction}/Classify": Method(
            "Classify", apis.ClassificationRequest, ModelServer.classify
        ),
        f"/{prediction}/Regress": Method(
            "Regress", apis.RegressionRequest, ModelServer.regress
        ),
        f"/{prediction}/MultiInference": Method(
            "MultiInference", apis.MultiInferenceRequest, ModelServer.multi_inference
        ),
        f"/{prediction}/GetModelMetadata": Method(
            "GetModelMetadata",
            apis.GetModelMetadataRequest,
            ModelServer.get_model_metadata,
        ),
        f"/{model}/GetModelStatus": Method(
            "GetModelStatus", apis.GetModelStatusRequest, ModelServer.get_model_status
        ),
        f"/{model}/HandleReloadConfigRequest": Method(
            "HandleReloadConfigRequest",
            apis.ReloadConfigRequest,
            ModelServer.reload_config,
        ),
    }


def answer(server: ModelServer, method: Method, payload: bytes, call: Call) -> bytes:
    """Answer a serialized request with a serialized response.

    Raises:
        RequestError: The status of the request; its message fits in a header.
    """
    try:
        with server.observed(call):
            request = method.request_class.FromString(payload)
            response: bytes = method.answer(server, request, call).SerializeToString()
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
    """Cut a message to what fits in a header, as TensorFlow Serving does."""
    if len(message) <= MAX_MESSAGE_CHARACTERS:
        return message
    return f"{message[:MAX_MESSAGE_CHARACTERS]}...TRUNCATED"
