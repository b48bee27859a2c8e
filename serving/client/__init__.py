"""Clients of a model server: one protocol over REST or gRPC, without TensorFlow."""

from serving.client.protocol import (
    InputSpec,
    PredictionClient,
    VersionStatus,
    Which,
    connect,
)

__all__ = ["InputSpec", "PredictionClient", "VersionStatus", "Which", "connect"]
