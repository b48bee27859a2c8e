"""The REST API as a function from HTTP request to HTTP response, free of any transport.

Paths, status codes and words are those of TensorFlow Serving's
http_rest_api_handler.cc.
"""

import json
import logging
import re
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from serving import apis
from serving.errors import Code, RequestError, invalid_argument
from serving.model_repository import parse_version
from serving.server import rest_examples, rest_json
from serving.server.call import Call, Clock
from serving.server.service import SIGNATURE_DEF, ModelServer
from serving.server.steps import Steps, finish

log = logging.getLogger(__name__)
MAX_BODY_BYTES = 100 << 20
JSON = "application/json"
TEXT = "text/plain"
HTTP_STATUS: Mapping[Code, int] = {
    Code.CANCELLED: 499,
    Code.INVALID_ARGUMENT: 400,
    Code.DEADLINE_EXCEEDED: 504,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.PERMISSION_DENIED: 403,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.FAILED_PRECONDITION: 400,
    Code.ABORTED: 409,
    Code.OUT_OF_RANGE: 400,
    Code.UNIMPLEMENTED: 501,
    Code.UNAVAILABLE: 503,
    Code.UNAUTHENTICATED: 401,
}
_MODEL = r"/v1/models/(?P<name>[^/:]+)"
_MODEL += r"(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
_INFER = re.compile(rf"{_MODEL}:(?P<api>predict|classify|regress)", re.IGNORECASE)
_STATUS = re.compile(
    r"/v1/models(?:/(?P<name>[^/:]+))?"
    r"(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?(?P<metadata>/metadata)?",
    re.IGNORECASE,
)
_API = re.compile(r"/v1/.*", re.IGNORECASE | re.DOTALL)
CORS_HEADERS = (
    ("Access-Control-Allow-Origin", "*"),
    ("Access-Control-Allow-Methods", "POST, GET"),
    ("Access-Control-Allow-Headers", "Content-Type"),
)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What of an HTTP request decides its answer."""

    method: str
    target: str
    """Path and query."""
    body: bytes = b""
    is_gzip: bool = False

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An answer over HTTP."""

    status: int
    body: bytes
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class RestOptions:
    """What of REST can be chosen."""

    timeout_s: float = 30.0
    """A request that waited longer is not run."""
    enable_cors: bool = False
    pages: Mapping[str, Callable[[], str]] = field(default_factory=dict)
    """Texts beside the API by their path: metrics."""


class RestApi:
    """Answers HTTP requests about models."""

    def __init__(
        self,
        server: ModelServer,
        options: RestOptions = RestOptions(),
        clock: Clock = time.monotonic,
    ) -> None:
        self._server, self._options, self._clock = server, options, clock

    def answer(self, request: HttpRequest) -> HttpResponse:
        """Answer a request; errors are answers, too."""
        return finish(self.steps(request))

    def steps(self, request: HttpRequest) -> Steps[HttpResponse]:
        """Answer a request, but leave to the caller where models run."""
        page = self._options.pages.get(request.path)
        if page is not None and request.method == "GET":
            return HttpResponse(200, page().encode(), TEXT)
        headers = CORS_HEADERS if self._options.enable_cors else ()
        if request.method == "OPTIONS" and self._options.enable_cors:
            return HttpResponse(200, b"", headers=headers)
        status, text = yield from self._answer(request)
        return HttpResponse(status, text.encode(errors="replace"), headers=headers)

    def _answer(self, request: HttpRequest) -> Steps[tuple[int, str]]:
        try:
            return 200, (yield from self._route(request))
        except RequestError as error:
            status = HTTP_STATUS.get(error.code, 500)
            return status, rest_json.error_json(str(error))
        except Exception as error:
            log.exception("a request failed")
            return 500, rest_json.error_json(str(error))

    def _route(self, request: HttpRequest) -> Steps[str]:
        path, is_get = request.path, request.method == "GET"
        match = _INFER.fullmatch(path) if request.method == "POST" else None
        if match:
            return (yield from self._infer(match, request))
        match = _STATUS.fullmatch(path) if is_get else None
        if match:
            if not match["name"]:
                raise invalid_argument("Missing model name in request.")
            respond = self._metadata if match["metadata"] else self._status
            return respond(match)
        if not _API.fullmatch(path):
            raise RequestError(Code.NOT_FOUND, f"Not found: {path[:200]}")
        raise invalid_argument(f"Malformed request: {request.method} {request.target}")

    def _infer(self, match: re.Match[str], request: HttpRequest) -> Steps[str]:
        api = match["api"].lower()
        call = self._call(api.capitalize())
        with self._server.observed(call):
            return (yield from self._infer_as(api, match, request, call))

    def _infer_as(
        self, api: str, match: re.Match[str], request: HttpRequest, call: Call
    ) -> Steps[str]:
        body = inflate(request.body) if request.is_gzip else request.body
        spec = _spec(match)
        if api == "predict":
            return (yield from self._predict(spec, rest_json.parse_body(body), call))
        document = rest_json.parse_object(body)
        spec.signature_name = rest_json.signature_name(document)
        source = rest_examples.to_input(document)
        if api == "classify":
            asked = apis.ClassificationRequest(model_spec=spec, input=source)
            result = self._server.classify(asked, call).result
            return rest_examples.classifications_json(result)
        asked = apis.RegressionRequest(model_spec=spec, input=source)
        return rest_examples.regressions_json(self._server.regress(asked, call).result)

    def _predict(
        self, spec: Any, body: rest_json.PredictJson, call: Call
    ) -> Steps[str]:
        spec.signature_name = body.signature_name
        outputs = yield from self._server.run(
            spec, lambda signature: rest_json.to_inputs(body, signature), call
        )
        write = rest_json.predictions if body.is_row_format else rest_json.outputs_json
        return write(outputs)

    def _metadata(self, match: re.Match[str]) -> str:
        asked = apis.GetModelMetadataRequest(
            model_spec=_spec(match), metadata_field=[SIGNATURE_DEF]
        )
        call = self._call("GetModelMetadata")
        response = self._server.get_model_metadata(asked, call)
        signatures = apis.SignatureDefMap()
        response.metadata[SIGNATURE_DEF].Unpack(signatures)
        document = {
            "model_spec": json.loads(rest_json.message_json(response.model_spec)),
            "metadata": {SIGNATURE_DEF: json.loads(rest_json.message_json(signatures))},
        }
        return json.dumps(document, indent=1)

    def _status(self, match: re.Match[str]) -> str:
        asked = apis.GetModelStatusRequest(model_spec=_spec(match))
        call = self._call("GetModelStatus")
        return rest_json.message_json(self._server.get_model_status(asked, call))

    def _call(self, api: str) -> Call:
        return Call(api, "rest", self._clock() + self._options.timeout_s)


def _spec(match: re.Match[str]) -> Any:
    spec = apis.ModelSpec(name=_decoded(match["name"]))
    if match["version"] is not None:
        version = parse_version(match["version"])
        if version is None:
            raise invalid_argument(
                f"Failed to convert version: {match['version'][:100]} to numeric."
            )
        spec.version.value = version
    if match["label"] is not None:
        spec.version_label = _decoded(match["label"])
    return spec


def _decoded(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError as error:
        raise invalid_argument(f"Failed to decode {text[:100]}: not UTF-8") from error


def inflate(body: bytes) -> bytes:
    """Inflate a gzip body.

    Raises:
        RequestError: It is not whole, or it grows over the limit.
    """
    inflater = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        inflated = inflater.decompress(body, MAX_BODY_BYTES)
    except zlib.error as error:
        raise invalid_argument(f"Cannot inflate the gzip body: {error}") from error
    if not inflater.eof:
        raise invalid_argument(
            "Cannot inflate the gzip body: it is cut off, or holds more than "
            f"{MAX_BODY_BYTES} bytes"
        )
    return inflated
