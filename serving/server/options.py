"""What a model server serves and how, as one frozen value."""

from dataclasses import dataclass, field
from pathlib import Path

from serving.model_server_config import ModelConfig
from serving.server.batching import BatchingOptions
from serving.server.core import CoreOptions
from serving.server.grpc_options import GrpcOptions
from serving.server.http_transport import HttpOptions
from serving.server.loader import SessionOptions
from serving.server.rest import RestOptions
from serving.server.warmup import WarmUpOptions


@dataclass(frozen=True)
class ServerOptions:
    """What to serve, and where."""

    models: tuple[ModelConfig, ...] = ()
    config_file: Path | None = None
    """A ModelServerConfig; instead of `models`."""
    config_poll_interval_s: float = 0.0
    """How often that file is read again; 0: never."""
    must_serve: bool = False
    """Open no port before every model serves, and end if one cannot, as the original."""
    core: CoreOptions = field(default_factory=CoreOptions)
    session: SessionOptions = field(default_factory=SessionOptions)
    public_key: Path | None = None
    """Load only versions that this key has signed."""
    warm_up: WarmUpOptions = field(default_factory=WarmUpOptions)
    batching: BatchingOptions | None = None
    """None: every request is run by itself."""
    grpc: GrpcOptions | None = field(default_factory=GrpcOptions)
    """None: no gRPC."""
    grpc_on_loop: bool = True
    """Speak gRPC by ourselves; by grpcio, the reference, when False."""
    http: HttpOptions | None = field(default_factory=HttpOptions)
    """None: no REST."""
    rest: RestOptions = field(default_factory=RestOptions)
    metrics_path: str | None = None
    """Where REST shows metrics; None: nowhere."""
