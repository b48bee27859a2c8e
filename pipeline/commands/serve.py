"""`taxiway serve`: serve the published model over REST and gRPC."""

import argparse
import logging
import os
import tempfile
from dataclasses import replace
from pathlib import Path

from pipeline.config import load_settings
from pipeline.extras import require_serving
from serving.server.main import ServerOptions, serve
from serving.server.quiet import quiet

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
    options, log = _options(args)
    quiet(log)
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    serve(options, lambda text: print(text, flush=True))
    return 0


def _options(args: argparse.Namespace) -> tuple[ServerOptions, Path]:
    """Return what to serve, and the file that takes what libraries write."""
    if args.base_path is not None and args.model is not None:
        folder = args.base_path.absolute() / args.model
        options = ServerOptions(args.model, folder)
        log = Path(tempfile.gettempdir(), f"taxiway-serve-{os.getpid()}.log")
    else:
        settings = load_settings(args.config, args.overrides)
        model = args.model or settings.push.model
        base_path = (args.base_path or settings.push.base_path).absolute()
        serving = settings.serving
        log = settings.state_dir / LOG_FILE
        options = ServerOptions(
            model,
            base_path / model,
            serving.host,
            serving.grpc_port,
            serving.rest_port,
            serving.poll_interval_s,
        )
    given = {
        name: getattr(args, name)
        for name in ("host", "rest_port", "grpc_port")
        if getattr(args, name) is not None
    }
    return replace(options, **given), log
