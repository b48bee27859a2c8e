"""The request path: TensorFlow Serving's services on messages, free of transports."""

import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from serving import apis, model_server_config
from serving.errors import Code, RequestError, invalid_argument
from serving.saved_model import CLASSIFY
from serving.server import inference
from serving.server.call import Call, Clock
from serving.server.core import ServerCore
from serving.server.metrics import Metrics
from serving.server.request_log import RequestLogs
from serving.server.steps import Outputs, Run, Steps
from serving.server.versions import Lease
from serving.tensors import Array, buffers, fill, to_array

DEFAULT_SIGNATURE = "serving_default"
SIGNATURE_DEF = "signature_def"


class ModelServer:
    """Answers requests about the models of a core.

    Every method raises RequestError with the status that TensorFlow Serving gives.
    """

    def __init__(
        self,
        core: ServerCore,
        metrics: Metrics | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._core, self._clock = core, clock
        self.metrics = metrics or Metrics()
        self.logs = RequestLogs(core.configs, self.metrics.logged)

    def predict(self, request: Any, call: Call) -> Steps[Any]:
        """Answer a PredictRequest with a PredictResponse of the class with buffers."""
        spec = _spec(request)
        name = spec.signature_name or DEFAULT_SIGNATURE
        with self.hold(spec, name, call) as lease:
            if name not in lease.model.signatures:
                raise RequestError(
                    Code.FAILED_PRECONDITION,
                    f'Serving signature key "{name}" not found.',
                )
            inputs = {key: to_array(tensor) for key, tensor in request.inputs.items()}
            wanted = request.output_filter
            outputs = yield from self._run(lease, name, inputs, wanted, call)
        response = buffers("PredictResponse")()
        for key, array in outputs.items():
            fill(response.outputs[key], array)
        _name_spec(response.model_spec, spec.name, lease.version, name)
        self._log(call, "predict_log", request, response)
        return response

    def run(
        self,
        spec: Any,
        to_inputs: Callable[[Any], Mapping[str, Array]],
        call: Call,
    ) -> Steps[Outputs]:
        """Run a signature on arrays: what REST needs of `predict`.

        Args:
            spec: The ModelSpec.
            to_inputs: Makes the inputs that a SignatureDef asks for.
            call: The request.
        """
        name = spec.signature_name or DEFAULT_SIGNATURE
        with self.hold(spec, name, call) as lease:
            signature = lease.model.signatures.get(name)
            if signature is None:
                raise invalid_argument(
                    f'Serving signature name: "{name}" not found in signature def'
                )
            inputs = to_inputs(signature)
            outputs = yield from self._run(lease, name, inputs, (), call)

        def write(entry: Any) -> None:
            pair = entry.predict_log
            pair.request.model_spec.CopyFrom(spec)
            _name_spec(pair.response.model_spec, spec.name, lease.version, name)
            for key, array in inputs.items():
                fill(pair.request.inputs[key], array)
            for key, array in outputs.items():
                fill(pair.response.outputs[key], array)

        self.logs.offer(call, write)
        return outputs

    def _log(self, call: Call, kind: str, request: Any, response: Any) -> None:
        def write(entry: Any) -> None:
            pair = getattr(entry, kind)
            pair.request.MergeFromString(request.SerializeToString())
            pair.response.MergeFromString(response.SerializeToString())

        self.logs.offer(call, write)

    def _run(
        self,
        lease: Lease,
        name: str,
        inputs: Mapping[str, Array],
        wanted: Sequence[str],
        call: Call,
    ) -> Steps[Outputs]:
        call.check_deadline(self._clock)
        started = self._clock()
        outputs = yield Run(lease.model, name, inputs, wanted, call.deadline)
        self.metrics.run(call, self._clock() - started)
        return outputs

    def observed(self, call: Call) -> "_Observed":
        """Count a request and the status that it ends with."""
        return _Observed(self.metrics, call, self._clock)

    def classify(self, request: Any, call: Call) -> Any:
        """Answer a ClassificationRequest with a ClassificationResponse."""
        spec = _spec(request)
        name = spec.signature_name or DEFAULT_SIGNATURE
        response = apis.ClassificationResponse()
        with self.hold(spec, name, call) as lease:
            examples = inference.serialized_examples(request.input)
            call.check_deadline(self._clock)
            result = inference.classify(lease.model, name, examples)
        response.result.CopyFrom(result)
        _name_spec(response.model_spec, spec.name, lease.version, name)
        self._log(call, "classify_log", request, response)
        return response

    def regress(self, request: Any, call: Call) -> Any:
        """Answer a RegressionRequest with a RegressionResponse."""
        spec = _spec(request)
        name = spec.signature_name or DEFAULT_SIGNATURE
        response = apis.RegressionResponse()
        with self.hold(spec, name, call) as lease:
            examples = inference.serialized_examples(request.input)
            call.check_deadline(self._clock)
            result = inference.regress(lease.model, name, examples)
        response.result.CopyFrom(result)
        _name_spec(response.model_spec, spec.name, lease.version, name)
        self._log(call, "regress_log", request, response)
        return response

    def multi_inference(self, request: Any, call: Call) -> Any:
        """Answer a MultiInferenceRequest: several signatures on the same examples."""
        inference.check_tasks(request.tasks)
        response = apis.MultiInferenceResponse()
        spec = request.tasks[0].model_spec
        with self.hold(spec, spec.signature_name or DEFAULT_SIGNATURE, call) as lease:
            examples = inference.serialized_examples(request.input)
            call.check_deadline(self._clock)
            for task in request.tasks:
                name = task.model_spec.signature_name or DEFAULT_SIGNATURE
                answered = response.results.add()
                if task.method_name == CLASSIFY:
                    result = inference.classify(lease.model, name, examples)
                    answered.classification_result.CopyFrom(result)
                else:
                    result = inference.regress(lease.model, name, examples)
                    answered.regression_result.CopyFrom(result)
                _name_spec(answered.model_spec, spec.name, lease.version, name)
        self._log(call, "multi_inference_log", request, response)
        return response

    def get_model_metadata(self, request: Any, call: Call) -> Any:
        """Answer a GetModelMetadataRequest: `signature_def` is all that there is."""
        spec = _spec(request)
        if not request.metadata_field:
            raise invalid_argument(
                "GetModelMetadataRequest must specify at least one metadata_field"
            )
        for field in request.metadata_field:
            if field != SIGNATURE_DEF:
                raise invalid_argument(f"Metadata field {field} is not supported")
        signatures = apis.SignatureDefMap()
        with self.hold(spec, "", call) as lease:
            for name, signature in lease.model.signatures.items():
                signatures.signature_def[name].CopyFrom(signature)
        response = apis.GetModelMetadataResponse()
        response.metadata[SIGNATURE_DEF].Pack(signatures)
        _name_spec(response.model_spec, spec.name, lease.version, "")
        return response

    def get_model_status(self, request: Any, call: Call) -> Any:
        """Answer a GetModelStatusRequest; a label is ignored, as in the original."""
        spec = _spec(request)
        if not spec.name:
            raise invalid_argument("ModelSpec has no name specified.")
        call.model = spec.name
        version = spec.version.value if spec.HasField("version") else None
        response = apis.GetModelStatusResponse()
        for servable in self._core.find(spec.name).status(version):
            entry = response.model_version_status.add(
                version=servable.version, state=int(servable.state)
            )
            entry.status.SetInParent()
            if servable.code:
                entry.status.error_code = int(servable.code)
                entry.status.error_message = servable.error
        return response

    def reload_config(self, request: Any, call: Call) -> Any:
        """Answer a ReloadConfigRequest once what it asks for is served."""
        if request.config.WhichOneof("config") != "model_config_list":
            raise invalid_argument(
                "ServerModelConfig type not supported by HandleReloadConfigRequest. "
                "Only ModelConfigList is currently supported"
            )
        models = model_server_config.parse(request.config)
        left_s = call.time_left_s(self._clock)
        self._core.reload(models, left_s, call.is_cancelled)
        response = apis.ReloadConfigResponse()
        response.status.SetInParent()
        return response

    def hold(self, spec: Any, signature_name: str, call: Call) -> Lease:
        """Hold the version that a ModelSpec asks for, and note which one that is.

        Raises:
            RequestError: There is no such model, version or label.
        """
        call.model, call.signature = spec.name, signature_name
        call.label = spec.version_label
        lease = self._core.use(spec)
        call.version = lease.version
        return lease


class _Observed:
    """Counts a request when the block ends."""

    __slots__ = ("_call", "_clock", "_metrics", "_started")

    def __init__(self, metrics: Metrics, call: Call, clock: Clock) -> None:
        self._metrics, self._call, self._clock = metrics, call, clock

    def __enter__(self) -> None:
        self._started = self._clock()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        code = Code.OK if error is None else Code.INTERNAL
        if isinstance(error, RequestError):
            code = error.code
        self._metrics.request(self._call, code, self._clock() - self._started)


def _spec(request: Any) -> Any:
    if not request.HasField("model_spec"):
        raise invalid_argument("Missing ModelSpec")
    return request.model_spec


def _name_spec(target: Any, name: str, version: int, signature_name: str) -> None:
    target.name = name
    target.version.value = version
    target.signature_name = signature_name
