"""Errors that are messages for a human, or a status for a client.

TaxiwayError
└── ServingError
    ├── RepositoryError   a version cannot be read, published or found
    ├── RoutingError      a label or a version could not be moved
    ├── ServerError       a model server cannot start
    ├── ClientError       a server cannot be reached, or it refused the request
    └── RequestError      the status of one request, with a canonical code
"""

from enum import IntEnum


class TaxiwayError(Exception):
    """Root of all errors of the product; the message is for its user."""

    exit_code = 1


class ServingError(TaxiwayError):
    """Something after the push went wrong."""


class RepositoryError(ServingError):
    """A version cannot be read, published or found."""


class RoutingError(ServingError):
    """A label or a version could not be moved; the routing is as it was."""


class ServerError(ServingError):
    """A model server cannot start."""


class ClientError(ServingError):
    """A server cannot be reached, or it refused the request."""


class Code(IntEnum):
    """The canonical status codes of gRPC (google/rpc/code.proto)."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class RequestError(ServingError):
    """The status of one request that failed."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


def invalid_argument(message: str) -> RequestError:
    """Return the status of a request that can never succeed as it is."""
    return RequestError(Code.INVALID_ARGUMENT, message)
