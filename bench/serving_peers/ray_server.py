"""Ray Serve's server: one replica behind its HTTP proxy."""

import sys
import time

import numpy as np
import ray
from ray import serve
from starlette.requests import Request


@serve.deployment(num_replicas=1, max_ongoing_requests=64)
class Predictor:
    """Runs a SavedModel."""

    def __init__(self, folder: str) -> None:
        import tensorflow as tf

        self.tf = tf
        self.model = tf.saved_model.load(folder)
        self.signature = self.model.signatures["serving_default"]

    async def __call__(self, request: Request) -> dict[str, list[list[float]]]:
        """Answer."""
        x = np.array((await request.json())["instances"], np.float32)
        y = self.signature(x=self.tf.constant(x))["y"]
        return {"predictions": y.numpy().tolist()}


def main(folder: str, port: str) -> None:
    """Serve until killed."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": int(port)})
    serve.run(Predictor.bind(folder), route_prefix="/v1/models/m:predict")
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main(*sys.argv[1:])
