"""What a team writes first: grpcio, TensorFlow's protos, a ConcreteFunction."""

import sys
from concurrent.futures import ThreadPoolExecutor

import grpc
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2


def main(folder: str, port: str) -> None:
    """Serve until killed."""
    model = tf.saved_model.load(folder)
    signature = model.signatures["serving_default"]

    def predict(request, context):
        inputs = {
            name: tf.constant(tf.make_ndarray(tensor))
            for name, tensor in request.inputs.items()
        }
        response = predict_pb2.PredictResponse()
        for name, value in signature(**inputs).items():
            response.outputs[name].CopyFrom(tf.make_tensor_proto(value.numpy()))
        return response

    handler = grpc.unary_unary_rpc_method_handler(
        predict,
        request_deserializer=predict_pb2.PredictRequest.FromString,
        response_serializer=predict_pb2.PredictResponse.SerializeToString,
    )
    server = grpc.server(ThreadPoolExecutor(16))
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(
                "tensorflow.serving.PredictionService", {"Predict": handler}
            ),
        )
    )
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
