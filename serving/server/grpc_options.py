"""How gRPC is spoken, whatever speaks it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving.errors import ServerError


@dataclass(frozen=True)
class Tls:
    """Certificates of an encrypted channel, in PEM."""

    key: bytes
    certificate: bytes
    client_ca: bytes | None = None
    """Whose certificates clients may show; None: the system's."""
    requires_client: bool = False

    @classmethod
    def read(cls, file: Path, message: Any) -> "Tls":
        """Take an SSLConfig's contents.

        Raises:
            ServerError: A certificate is missing.
        """
        for name in ("server_key", "server_cert"):
            if not getattr(message, name):
                raise ServerError(f"{file}: {name} is missing; allowed: PEM text")
        if message.client_verify and not message.custom_ca:
            raise ServerError(
                f"{file}: client_verify needs custom_ca: PEM text of the authority "
                "that signs clients' certificates"
            )
        return cls(
            message.server_key.encode(),
            message.server_cert.encode(),
            message.custom_ca.encode() or None,
            message.client_verify,
        )


@dataclass(frozen=True)
class GrpcOptions:
    """How gRPC is spoken."""

    host: str = "127.0.0.1"
    port: int = 8500
    """0 takes any free one."""
    socket_path: str = ""
    """A Unix socket to listen on, too."""
    num_threads: int = 16
    """Requests that are run at once."""
    max_in_flight: int = 1024
    """Requests that may wait or run; more are refused with RESOURCE_EXHAUSTED."""
    channel_arguments: tuple[tuple[str, str | int], ...] = ()
    tls: Tls | None = None
    has_port: bool = True
    """False: the socket only."""
    has_health_service: bool = False


def channel_arguments(text: str) -> Sequence[tuple[str, str | int]]:
    """Parse `--grpc_channel_arguments`: `key=value,key=value`, numbers as numbers.

    Raises:
        ServerError: A part is no pair.
    """
    pairs: list[tuple[str, str | int]] = []
    for part in filter(None, text.split(",")):
        key, sign, value = part.partition("=")
        if not sign or not key:
            raise ServerError(
                f"--grpc_channel_arguments: got {part!r}, allowed: key=value, and a "
                "comma between pairs"
            )
        is_number = value.removeprefix("-").isdigit()
        pairs.append((key, int(value) if is_number else value))
    return pairs
