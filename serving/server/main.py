"""Starts the model server and keeps it until it is told to stop."""

import importlib.metadata
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from serving.errors import (
    Code,
    RepositoryError,
    RequestError,
    ServerError,
    TaxiwayError,
)
from serving.model_server_config import ModelConfig, read_models
from serving.server import flags
from serving.server.batching import BatchedModel, BatchScheduler
from serving.server.core import ServerCore
from serving.server.grpc_loop_transport import LoopGrpcTransport
from serving.server.grpc_transport import GrpcTransport
from serving.server.http_transport import HttpTransport
from serving.server.loader import LoadedModel
from serving.server.logs import event, set_up
from serving.server.metrics import Metrics
from serving.server.options import ServerOptions
from serving.server.plan import State
from serving.server.rest import RestApi
from serving.server.service import ModelServer
from serving.server.versions import Model
from serving.server.warmup import warm_up
from serving.signing import check_signed

log = logging.getLogger(__name__)
GRACE_S = 10.0


class Loader:
    """Loads versions as the options say, warm and batched."""

    def __init__(self, options: ServerOptions, metrics: Metrics) -> None:
        self._options, self._metrics = options, metrics
        self._scheduler: BatchScheduler | None = None
        if options.batching is not None:
            self._scheduler = BatchScheduler(options.batching, observe=metrics.batch)

    def __call__(self, name: str, path: Path) -> Model:
        """Load a version of a model.

        Raises:
            RequestError: It cannot be loaded, or its warm-up failed.
        """
        started = time.monotonic()
        code = Code.UNKNOWN
        try:
            model = self._load(path)
            code = Code.OK
        except RequestError as error:
            code = error.code
            raise
        finally:
            seconds = time.monotonic() - started
            self._metrics.load(name, str(path), code, seconds)
        return model

    def hurry(self) -> None:
        """Let no request wait for others to be run with: the server is stopping."""
        if self._scheduler is not None:
            self._scheduler.hurry()

    def _load(self, path: Path) -> Model:
        if self._options.public_key is not None:
            try:
                check_signed(path, self._options.public_key)
            except RepositoryError as error:
                raise RequestError(Code.PERMISSION_DENIED, str(error)) from error
        model = LoadedModel(path, self._options.session)
        started = time.monotonic()
        try:
            number = warm_up(model, path, self._options.warm_up)
        except BaseException:
            model.close()
            raise
        if number:
            seconds = time.monotonic() - started
            event(log, "version_warmed_up", path=path, requests=number, seconds=seconds)
            self._metrics.warm_up(str(path), Code.OK, seconds)
        if self._scheduler is None:
            return model
        return BatchedModel(model, self._scheduler)


def serve(options: ServerOptions, say: Callable[[str], None] = print) -> None:
    """Serve until SIGTERM or SIGINT.

    Ports open after the initial load, as in TensorFlow Serving: who can connect is
    answered.

    Raises:
        ServerError: A port is taken, or a model that must be served cannot be.
    """
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with ExitStack() as stack:
        metrics = Metrics()
        loader = Loader(options, metrics)
        core = ServerCore(loader, options.core)
        stack.callback(core.close, GRACE_S)
        metrics.watch(core)
        server = ModelServer(core, metrics)
        stack.callback(server.logs.close)
        lines = _open(server, options, stack)
        _load(core, options, stop)
        if stop.is_set():
            return
        for start, line in lines:
            start()
            say(line)
        for model in options.models:
            say(_state(core, model.name, model.base_path))
        _watch_config(core, options, stop)
        core.end_waits()
        loader.hurry()
        say("stopping")


def _open(
    server: ModelServer, options: ServerOptions, stack: ExitStack
) -> list[tuple[Callable[[], None], str]]:
    """Take the ports; return how each is started and what is said of it."""
    lines: list[tuple[Callable[[], None], str]] = []
    if options.grpc is not None:
        kind = LoopGrpcTransport if options.grpc_on_loop else GrpcTransport
        grpc = kind(server, options.grpc)
        stack.callback(grpc.stop, GRACE_S)
        lines.append((grpc.start, f"gRPC  {options.grpc.host}:{grpc.port}"))
    if options.http is not None:
        rest = options.rest
        if options.metrics_path is not None:
            rest = replace(rest, pages={options.metrics_path: server.metrics.text})
        http = HttpTransport(RestApi(server, rest).steps, options.http)
        stack.callback(http.stop, GRACE_S)
        address = f"http://{options.http.host}:{http.port}/v1/models"
        first = options.models[0].name if options.models else ""
        lines.append((http.start, f"REST  {address}/{first}"))
    return lines


def _load(core: ServerCore, options: ServerOptions, stop: threading.Event) -> None:
    """Load all models; a signal ends the wait."""
    result: list[Exception] = []

    def load() -> None:
        try:
            if options.must_serve:
                core.reload(options.models, None)
            else:
                core.begin(options.models)
        except Exception as error:  # noqa: BLE001  raised again below
            result.append(error)

    thread = threading.Thread(target=load, name="first load", daemon=True)
    thread.start()
    while thread.is_alive() and not stop.is_set():
        thread.join(0.02)
    if stop.is_set():
        core.end_waits()
    elif result and isinstance(result[0], RequestError):
        raise ServerError(f"Failed to start server. Error: {result[0]}")
    elif result:
        raise result[0]


def _watch_config(
    core: ServerCore, options: ServerOptions, stop: threading.Event
) -> None:
    """Read the config file again and again, until the server is to stop."""
    if options.config_file is None or options.config_poll_interval_s <= 0:
        stop.wait()
        return
    file = options.config_file
    while not stop.wait(options.config_poll_interval_s):
        try:
            if not file.exists():
                continue  # not yet, or not any more: all goes on as it is
            models = read_models(file)
            # As the original: what the file says holds, whoever said otherwise.
            if core.is_in_force(models):
                continue
            core.reload(models, None, partial(_is_over, file, models, stop))
            event(log, "config_reloaded", file=file)
        except (OSError, TaxiwayError) as error:
            # As the original: it is tried again, and all goes on as it was.
            event(
                log,
                "config_refused",
                logging.WARNING,
                file=file,
                error=error,
            )


def _is_over(file: Path, models: list[ModelConfig], stop: threading.Event) -> bool:
    """Tell whether a config is not to be waited for: the file says another by now."""
    try:
        return stop.is_set() or read_models(file) != models
    except TaxiwayError:
        return False  # it is being written


def _state(core: ServerCore, name: str, base_path: Path) -> str:
    states = core.find(name).states()
    available = [v for v, state in states.items() if state is State.AVAILABLE]
    if available:
        return f"version {max(available)} of {name} is AVAILABLE"
    if not states:
        return f"no version yet in {base_path}; waiting for one"
    last = core.find(name).status()[0]
    return f"version {last.version} of {name} cannot be loaded: {last.error}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the server with TensorFlow Serving's flags."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    given = flags.parse(argv)
    if given["version"]:
        print(
            f"TensorFlow ModelServer: Taxiway {importlib.metadata.version('taxiway')}"
        )
        print(f"TensorFlow Library: {importlib.metadata.version('tensorflow')}")
        return 0
    set_up(given["log_format"])
    try:
        for sentence in flags.without_effect(given):
            event(log, "flag_without_effect", logging.WARNING, reason=sentence)
        serve(flags.to_options(given), lambda text: print(text, flush=True))
    except TaxiwayError as error:
        print(f"{error}", file=sys.stderr)
        return error.exit_code
    return 0
