"""`taxiway serve`: serve the published model over REST and gRPC."""

import argparse
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.config import load_settings
from pipeline.extras import require_serving
from serving.config import ServingSettings
from serving.model_server_config import ModelConfig, read_models
from serving.routing import CONFIG_FILE, STABLE, Routes
from serving.server.quiet import quiet

if TYPE_CHECKING:
    from serving.server.options import ServerOptions

LOG_FILE = "serve.log"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "--base-path", type=Path, help="model repository, with --model: no settings"
    )
    parser.add_argument("--model", help="name of the model in the repository")
    parser.add_argument("--host", help="address to listen on")
    parser.add_argument("--rest-port", type=int, help="port of REST; 0: any free one")
    parser.add_argument("--grpc-port", type=int, help="port of gRPC; 0: any free one")


def run(args: argparse.Namespace) -> int:
    """Serve until interrupted."""
    require_serving()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from serving.server.logs import set_up
    from serving.server.main import serve

    options, log = _options(args)
    quiet(log)
    set_up("text")
    serve(options, lambda text: print(text, flush=True))
    return 0


def _options(args: argparse.Namespace) -> "tuple[ServerOptions, Path]":
    """Return what to serve, and the file that takes what libraries write."""
    if args.base_path is not None and args.model is not None:
        model, base_path, serving = args.model, args.base_path, ServingSettings()
        log = Path(tempfile.gettempdir(), f"taxiway-serve-{os.getpid()}.log")
    else:
        settings = load_settings(args.config, args.overrides)
        model = args.model or settings.push.model
        base_path = args.base_path or settings.push.base_path
        serving = settings.serving
        log = settings.state_dir / LOG_FILE
        Routes(base_path, model, {}).pin()
    given = {
        name: getattr(args, name)
        for name in ("host", "rest_port", "grpc_port")
        if getattr(args, name) is not None
    }
    return to_options(model, base_path, serving.model_copy(update=given)), log


def to_options(
    model: str, base_path: Path, serving: ServingSettings
) -> "ServerOptions":
    """Return what the settings mean to a server."""
    from serving.server.core import CoreOptions
    from serving.server.flags import METRICS_PATH
    from serving.server.grpc_options import GrpcOptions
    from serving.server.http_transport import HttpOptions
    from serving.server.options import ServerOptions

    file = base_path.absolute() / CONFIG_FILE
    models = read_models(file) if file.exists() else []
    return ServerOptions(
        models=tuple(models) or (ModelConfig(model, base_path.absolute() / model),),
        config_file=file,
        config_poll_interval_s=serving.poll_interval_s,
        public_key=serving.public_key,
        core=CoreOptions(poll_interval_s=serving.poll_interval_s, default_label=STABLE),
        grpc=GrpcOptions(host=serving.host, port=serving.grpc_port),
        http=HttpOptions(host=serving.host, port=serving.rest_port),
        metrics_path=METRICS_PATH,
    )
