"""Settings of the model server."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from serving.settings import Settings

Address = Annotated[str, Field(pattern=r"^[^:/\s]+:[0-9]{1,5}$")]
Port = Annotated[int, Field(ge=0, le=65535)]


class ServingSettings(Settings):
    """Where the model server listens and how often it looks for versions."""

    host: str = "127.0.0.1"
    """Address to listen on; only this machine by default."""
    rest_port: Port = 8501
    """Port of the REST API; 0 takes any free one."""
    grpc_port: Port = 8500
    """Port of the gRPC API; 0 takes any free one."""
    poll_interval_s: Annotated[float, Field(gt=0)] = 1.0
    """How often the model repository is looked at, in seconds."""
    public_key: Path | None = None
    """File with a public key of Ed25519 in PEM: only versions that it vouches for are
    loaded; none: all are."""
    servers: tuple[Address, ...] = ()
    """gRPC addresses, `host:port`, of the servers that must take every change of
    versions and labels; when left out, the one that `taxiway serve` starts is told if
    it runs."""
    change_timeout_s: Annotated[float, Field(gt=0)] = 120.0
    """How long servers may take to load a version and to confirm it."""
