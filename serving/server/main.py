"""Starts the model server and keeps it until it is told to stop."""

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from serving.errors import ServerError, TaxiwayError
from serving.model_repository import ModelRepository
from serving.server.grpc_transport import GrpcTransport
from serving.server.plan import State
from serving.server.rest_transport import RestTransport
from serving.server.service import ModelServer
from serving.server.versions import ModelVersions, poll

GRACE_S = 10.0
MAX_PORT = 65535


@dataclass(frozen=True)
class ServerOptions:
    """What to serve, and where."""

    model: str
    """Name of the model."""
    base_path: Path
    """Folder with the model's versions."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    grpc_port: int = 8500
    """Port of the gRPC API; 0 takes any free one."""
    rest_port: int = 8501
    """Port of the REST API; 0 takes any free one."""
    poll_interval_s: float = 1.0
    """How often the folder is looked at, in seconds."""


def serve(options: ServerOptions, say: Callable[[str], None] = print) -> None:
    """Serve until SIGTERM or SIGINT.

    Ports open after the initial load, as in TensorFlow Serving: who can connect is
    answered.

    Raises:
        ServerError: A port is taken.
    """
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    from serving.server.loader import LoadedModel

    repository = ModelRepository(options.base_path.parent, options.base_path.name)
    versions = ModelVersions(options.model, repository, LoadedModel)
    server = ModelServer({options.model: versions})
    grpc = GrpcTransport(server, options.host, options.grpc_port)
    rest = RestTransport(server, options.host, options.rest_port)
    versions.tick()
    grpc.start()
    rest.start()
    say(f"gRPC  {options.host}:{grpc.port}")
    say(f"REST  http://{options.host}:{rest.port}/v1/models/{options.model}")
    say(_state(versions, options))
    poll([versions], options.poll_interval_s, stop)
    say("stopping")
    rest.stop(GRACE_S)
    grpc.stop(GRACE_S)
    versions.close()


def _state(versions: ModelVersions, options: ServerOptions) -> str:
    try:
        seen = versions.status()
    except TaxiwayError:
        return f"no version yet in {options.base_path}; waiting for one"
    available = [s.version for s in seen if s.state is State.AVAILABLE]
    if available:
        return f"version {available[0]} of {options.model} is AVAILABLE"
    return f"version {seen[0].version} of {options.model} cannot be loaded: {seen[0].error}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the server with TensorFlow Serving's flags."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    args = _parser().parse_args(argv)
    try:
        if not args.model_base_path.is_absolute():
            raise ServerError(
                f"--model_base_path must be absolute, got {args.model_base_path}"
            )
        _check_port("--port", args.port)
        _check_port("--rest_api_port", args.rest_api_port)
        serve(
            ServerOptions(
                model=args.model_name,
                base_path=args.model_base_path,
                host=args.host,
                grpc_port=args.port,
                rest_port=args.rest_api_port,
                poll_interval_s=args.file_system_poll_wait_seconds,
            ),
            lambda text: print(text, flush=True),
        )
    except TaxiwayError as error:
        print(f"{error}", file=sys.stderr)
        return error.exit_code
    return 0


def _check_port(flag: str, port: int) -> None:
    # gRPC would take 65536 for 0, and so on.
    if not 0 <= port <= MAX_PORT:
        raise ServerError(f"{flag} must be in [0, {MAX_PORT}], got {port}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m serving.server")
    parser.add_argument("--model_name", default="default")
    parser.add_argument("--model_base_path", type=Path, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8500)
    parser.add_argument("--rest_api_port", type=int, default=8501)
    parser.add_argument("--file_system_poll_wait_seconds", type=float, default=1.0)
    return parser
