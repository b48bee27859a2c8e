"""Warm-up: a version's recorded requests, replayed before it serves.

As TensorFlow Serving does with `assets.extra/tf_serving_warmup_requests`, a TFRecord
file of PredictionLogs; the first request of a version is then not the slow one.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from serving import apis, tfrecord
from serving.errors import Code, RequestError
from serving.saved_model import CLASSIFY, REGRESS
from serving.server import inference
from serving.server.versions import Model
from serving.tensors import to_array
from serving.warm_up_requests import FILE, MAX_RECORDS

DEFAULT_SIGNATURE = "serving_default"


@dataclass(frozen=True)
class WarmUpOptions:
    """Whether, and how often."""

    is_enabled: bool = True
    num_iterations: int = 1
    """Times that each request is replayed."""


def warm_up(model: Model, path: Path, options: WarmUpOptions) -> int:
    """Replay a version's requests, if it has any; return how many it has.

    Raises:
        RequestError: The file is damaged, or a request fails; the version must not
            serve then.
    """
    file = path / FILE
    if not options.is_enabled or not file.is_file():
        return 0
    number = 0
    try:
        with file.open("rb") as records:
            for number, record in enumerate(tfrecord.read(records), 1):
                if number > MAX_RECORDS:
                    raise RequestError(
                        Code.INVALID_ARGUMENT,
                        "Number of warmup records exceeds the maximum "
                        f"({MAX_RECORDS}) at {file}",
                    )
                log = apis.PredictionLog.FromString(record)
                for _ in range(options.num_iterations):
                    _replay(model, log)
    except (tfrecord.RecordError, DecodeError) as error:
        raise RequestError(
            Code.DATA_LOSS, f"Failed to read warm-up file {file}: {error}"
        ) from error
    except OSError as error:
        raise RequestError(
            Code.UNKNOWN, f"Failed to read warm-up file {file}: {error.strerror}"
        ) from error
    except RequestError as error:
        raise RequestError(
            error.code, f"Warm-up request {number} of {file}: {error}"
        ) from error
    return number


def _replay(model: Model, log: Any) -> None:
    match log.WhichOneof("log_type"):
        case "predict_log":
            request = log.predict_log.request
            inputs = {name: to_array(t) for name, t in request.inputs.items()}
            name = _signature(request.model_spec)
            if name not in model.signatures:
                raise RequestError(
                    Code.FAILED_PRECONDITION,
                    f'Serving signature key "{name}" not found.',
                )
            model.run(name, inputs, request.output_filter)
        case "classify_log":
            _infer(model, CLASSIFY, log.classify_log.request)
        case "regress_log":
            _infer(model, REGRESS, log.regress_log.request)
        case "multi_inference_log":
            request = log.multi_inference_log.request
            inference.check_tasks(request.tasks)
            for task in request.tasks:
                examples = inference.serialized_examples(request.input)
                _run(model, task.method_name, _signature(task.model_spec), examples)
        case kind:
            raise RequestError(
                Code.UNIMPLEMENTED, f"Unsupported log_type for warmup: {kind}"
            )


def _infer(model: Model, method: str, request: Any) -> None:
    examples = inference.serialized_examples(request.input)
    _run(model, method, _signature(request.model_spec), examples)


def _run(model: Model, method: str, name: str, examples: Any) -> None:
    if method == CLASSIFY:
        inference.classify(model, name, examples)
    else:
        inference.regress(model, name, examples)


def _signature(spec: Any) -> str:
    return spec.signature_name or DEFAULT_SIGNATURE
