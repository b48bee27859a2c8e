"""Settings of the model server."""

from typing import Annotated

from pydantic import Field

from serving.settings import Settings

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
