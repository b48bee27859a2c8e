"""TensorFlow Serving's messages, without TensorFlow.

`apis.PredictRequest`, `apis.TensorProto` and so on are message classes in a pool of
their own: they can live in one process with TensorFlow's.
"""

from typing import Any

from serving.apis.descriptors import message_class

PACKAGES = ("tensorflow.serving", "tensorflow")
PREDICTION_SERVICE = "tensorflow.serving.PredictionService"
MODEL_SERVICE = "tensorflow.serving.ModelService"


def __getattr__(name: str) -> Any:
    for package in PACKAGES:
        try:
            return message_class(f"{package}.{name}")
        except KeyError:
            continue
    raise AttributeError(f"serving.apis has no message {name!r}")
