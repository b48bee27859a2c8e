"""Where the embedded server means to differ from TensorFlow Serving, and why.

Each test of such a difference is marked with its key, and is left out when the suite
runs against the original.
"""

DIFFERENCES = {
    "deadline": "a request whose deadline has passed is not run",
    "whole": "a version folder that lacks files is never served, and says so",
    "mended": "a version that failed is tried again when its files change",
    "error text": "an error says where: the place in the JSON, the index of an instance",
    "large batch": "a request larger than max_batch_size is split, unless that is off",
    "mixed shapes": "requests of unequal shapes are not batched together, not failed",
    "old labels": "a reload with a label that cannot be is refused as a whole",
    "label and load": "a reload may name a label for the version that it loads",
    "metrics": "metrics of our own tell versions, labels and protocols apart",
    "reflection": "the server describes its services to gRPC tools",
    "load error": "GetModelStatus gives the status with which a load failed",
    "request log": "requests are logged to TFRecord files (type: tfrecord)",
    "newest config": "a config replaces one that still waits for its models",
    "stop": "SIGTERM lets running requests finish, and ends with 0",
    "memory": "memory is measured from outside the process, not the container",
    "overload": "REST sheds what it has no room for with 503",
}
