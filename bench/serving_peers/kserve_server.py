"""KServe's Python server: its REST protocol v1, and v2 over gRPC."""

import struct
import sys
from pathlib import Path

import kserve
import numpy as np
import tensorflow as tf
from kserve.protocol.grpc import grpc_predict_v2_pb2 as pb
from kserve.protocol.infer_type import InferOutput, InferRequest, InferResponse


class Predictor(kserve.Model):
    """Runs a SavedModel."""

    def __init__(self, folder: str) -> None:
        super().__init__("m")
        self.model = tf.saved_model.load(folder)
        self.signature = self.model.signatures["serving_default"]
        self.ready = True

    def predict(self, payload, headers=None, response_headers=None):  # noqa: ARG002
        """Answer either protocol."""
        if isinstance(payload, InferRequest):
            x = payload.inputs[0].as_numpy()
            y = self.signature(x=tf.constant(x, tf.float32))["y"].numpy()
            output = InferOutput("y", list(y.shape), "FP32")
            output.set_data_from_numpy(y, binary_data=False)
            return InferResponse(payload.id, "m", [output])
        x = np.array(payload["instances"], np.float32)
        return {"predictions": self.signature(x=tf.constant(x))["y"].numpy().tolist()}


def body(file: str, rows: str) -> None:
    """Write a framed gRPC request."""
    x = np.linspace(0, 1, int(rows) * 20, dtype=np.float32)
    request = pb.ModelInferRequest(model_name="m")
    tensor = request.inputs.add(name="x", datatype="FP32", shape=[int(rows), 20])
    tensor.contents.fp32_contents.extend(x.tolist())
    content = request.SerializeToString()
    Path(file).write_bytes(b"\0" + struct.pack(">I", len(content)) + content)


def main(folder: str, port: str, grpc_port: str) -> None:
    """Serve until killed."""
    server = kserve.ModelServer(
        http_port=int(port),
        grpc_port=int(grpc_port),
        workers=1,
        enable_docs_url=False,
        access_log_format=None,
    )
    server.start([Predictor(folder)])


if __name__ == "__main__":
    sys.argv[1] == "--body" and sys.exit(body(*sys.argv[2:]))
    folder, port, grpc_port = sys.argv[1:]
    sys.argv[1:] = []
    main(folder, port, grpc_port)
