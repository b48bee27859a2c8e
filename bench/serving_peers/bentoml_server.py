"""BentoML's server: `bentoml serve bentoml_server:Predictor`."""

import os

import bentoml
import numpy as np
import tensorflow as tf


@bentoml.service(workers=1, traffic={"timeout": 60})
class Predictor:
    """Runs a SavedModel."""

    def __init__(self) -> None:
        self.model = tf.saved_model.load(os.environ["MODEL_FOLDER"])
        self.signature = self.model.signatures["serving_default"]

    @bentoml.api
    def predict(self, instances: list[list[float]]) -> dict[str, list[list[float]]]:
        """Answer."""
        x = tf.constant(np.array(instances, np.float32))
        return {"predictions": self.signature(x=x)["y"].numpy().tolist()}
