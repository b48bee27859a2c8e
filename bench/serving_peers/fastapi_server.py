"""What a team writes first: FastAPI, uvicorn, a ConcreteFunction."""

import sys

import tensorflow as tf
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel


class Rows(BaseModel):
    """A request."""

    instances: list[list[float]]


def main(folder: str, port: str) -> None:
    """Serve until killed."""
    model = tf.saved_model.load(folder)
    signature = model.signatures["serving_default"]
    app = FastAPI()

    @app.post("/v1/models/m:predict")
    def predict(rows: Rows) -> dict[str, list[list[float]]]:
        outputs = signature(x=tf.constant(rows.instances, tf.float32))
        return {"predictions": outputs["y"].numpy().tolist()}

    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")


if __name__ == "__main__":
    main(*sys.argv[1:])
