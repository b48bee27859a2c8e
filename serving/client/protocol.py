"""What every client of a model server can do."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy.typing as npt

Array = npt.NDArray[Any]
Api = Literal["rest", "grpc"]


@dataclass(frozen=True)
class InputSpec:
    """One input of a signature."""

    name: str
    dtype: str
    """`DT_FLOAT` and so on."""
    shape: tuple[int, ...]
    """-1 where any size is taken."""


@dataclass(frozen=True)
class VersionStatus:
    """One version on a server."""

    version: int
    state: str
    """START, LOADING, AVAILABLE, UNLOADING or END."""
    error: str = ""
    """Why it ended, if it failed."""


@dataclass(frozen=True)
class Which:
    """Which version is asked: by number, by label, or as the server sees fit."""

    version: int | None = None
    label: str = ""
    """Of no use beside a version."""


ANY = Which()


class PredictionClient(Protocol):
    """A connection to one model on one server."""

    def predict(
        self, inputs: Mapping[str, Array], signature: str, timeout_s: float
    ) -> dict[str, Array]:
        """Return the outputs of a signature for whole columns.

        Raises:
            ClientError: The server cannot be reached or refused the request.
        """

    def inputs(self, signature: str, timeout_s: float) -> tuple[InputSpec, ...]:
        """Return the inputs of a signature.

        Raises:
            ClientError: The server cannot be reached, or has no such signature.
        """

    def version(self, timeout_s: float) -> int:
        """Return the version that answers what this client asks.

        Raises:
            ClientError: The server cannot be reached, or has no such version.
        """

    def status(self, timeout_s: float) -> tuple[VersionStatus, ...]:
        """Return all versions that the server knows of, newest first.

        Raises:
            ClientError: The server cannot be reached or does not know the model.
        """

    def close(self) -> None:
        """End the connection."""


def connect(api: Api, address: str, model: str, which: Which = ANY) -> PredictionClient:
    """Return a client; it connects with its first request.

    Args:
        api: `rest` or `grpc`.
        address: `host:port`.
        model: Name of the model.
        which: Its version.
    """
    if api == "grpc":
        from serving.client.grpc_client import GrpcClient

        return GrpcClient(address, model, which)
    from serving.client.rest_client import RestClient

    return RestClient(address, model, which)
