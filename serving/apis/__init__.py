"""TensorFlow Serving's messages, without TensorFlow.

`apis.PredictRequest` and the other names below are message classes in a pool of
their own: they can live in one process with TensorFlow's.
"""

from typing import Any

from serving.apis.descriptors import message_class

_SERVING = (
    "GetModelMetadataRequest",
    "GetModelMetadataResponse",
    "GetModelStatusRequest",
    "GetModelStatusResponse",
    "ModelSpec",
    "ModelVersionStatus",
    "PredictRequest",
    "PredictResponse",
    "SignatureDefMap",
)
_TENSORFLOW = ("Example", "SignatureDef", "TensorInfo", "TensorProto")
_FULL_NAMES = {name: f"tensorflow.serving.{name}" for name in _SERVING} | {
    name: f"tensorflow.{name}" for name in _TENSORFLOW
}
PREDICTION_SERVICE = "tensorflow.serving.PredictionService"
MODEL_SERVICE = "tensorflow.serving.ModelService"


def __getattr__(name: str) -> Any:
    if name not in _FULL_NAMES:
        raise AttributeError(f"serving.apis has no message {name!r}")
    return message_class(_FULL_NAMES[name])
