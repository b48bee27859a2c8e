"""TensorFlow Serving's command line: its flags, their defaults, and what they mean here.

Names and defaults are those of its main.cc. A flag that is taken but has no effect
here is said at start, so that nobody counts on it.
"""

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from serving import apis
from serving.errors import ServerError
from serving.model_server_config import ModelConfig, read_models, read_text
from serving.server import batching
from serving.server.core import CoreOptions
from serving.server.grpc_options import GrpcOptions, Tls, channel_arguments
from serving.server.http_transport import HttpOptions
from serving.server.loader import SessionOptions
from serving.server.logs import Format
from serving.server.options import ServerOptions
from serving.server.rest import RestOptions
from serving.server.versions import Retries
from serving.server.warmup import WarmUpOptions

MAX_PORT = 65535
CHOICES = {"log_format": get_args(Format), "grpc_transport": ("loop", "grpcio")}
METRICS_PATH = "/monitoring/prometheus/metrics"
NUM_CORES = len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Flag:
    """One flag; its type is that of its default."""

    name: str
    default: bool | int | float | str
    help: str
    no_effect: str = ""
    """Why it changes nothing here; empty: it does."""


_TFLITE = "models are run by TensorFlow, not TensorFlow Lite"
_REMOTE = "files are read where they lie"
FLAGS = (
    Flag("port", 8500, "TCP port of gRPC; 0: none"),
    Flag("grpc_socket_path", "", "Unix socket of gRPC, beside the port"),
    Flag("rest_api_port", 0, "port of REST; 0: none"),
    Flag("rest_api_num_threads", 4 * NUM_CORES, "threads for REST requests"),
    Flag("rest_api_timeout_in_ms", 30000, "REST requests that waited longer end"),
    Flag("rest_api_enable_cors_support", False, "send CORS headers"),
    Flag("enable_batching", False, "run requests together"),
    Flag("batching_parameters_file", "", "text of a BatchingParameters"),
    Flag("model_config_file", "", "text of a ModelServerConfig: several models"),
    Flag("model_config_file_poll_wait_seconds", 0, "read that file again; 0: never"),
    Flag("model_name", "default", "name of a single model"),
    Flag("model_base_path", "", "absolute path of a single model's versions"),
    Flag("num_load_threads", 0, "models that may load at once; 0: one"),
    Flag("num_unload_threads", 0, "", "unloading never waits for another model"),
    Flag("max_num_load_retries", 5, "times that a failed load is tried again"),
    Flag("load_retry_interval_micros", 60_000_000, "time between these"),
    Flag("file_system_poll_wait_seconds", 1.0, "look for versions; 0: only once"),
    Flag("flush_filesystem_caches", True, "", _REMOTE),
    Flag("tensorflow_session_parallelism", 0, "threads of a session, both kinds"),
    Flag("tensorflow_intra_op_parallelism", 0, "threads of one kernel; 0: cores"),
    Flag("tensorflow_inter_op_parallelism", 0, "kernels at once; 0: cores"),
    Flag("per_process_gpu_memory_fraction", 0.0, "share of GPU memory; 0: as needed"),
    Flag("saved_model_tags", "serve", "tags of the meta graph, comma between them"),
    Flag("ssl_config_file", "", "text of an SSLConfig: gRPC with TLS"),
    Flag("monitoring_config_file", "", "text of a MonitoringConfig"),
    Flag("platform_config_file", "", "", "only the platform tensorflow is known"),
    Flag("grpc_channel_arguments", "", "key=value, comma between them"),
    Flag("grpc_max_threads", 4 * NUM_CORES, "gRPC requests that are run at once"),
    Flag("enable_model_warmup", True, "replay assets.extra's warm-up requests"),
    Flag("num_request_iterations_for_warmup", 1, "times that each is replayed"),
    Flag(
        "allow_version_labels_for_unavailable_models",
        False,
        "let a new label name a version that is not AVAILABLE",
    ),
    Flag("enable_grpc_healthcheck_service", False, "answer grpc.health.v1.Health"),
    Flag("prefer_tflite_model", False, "", _TFLITE),
    Flag("use_tflite_model", False, "", _TFLITE),
    Flag("num_tflite_pools", 1, "", _TFLITE),
    Flag("num_tflite_interpreters_per_pool", 1, "", _TFLITE),
    Flag("remove_unused_fields_from_bundle_metagraph", True, "", "they never stay"),
    Flag("enable_signature_method_name_check", False, "", "names are not checked"),
    Flag("enable_profiler", True, "", "there is no profiler service"),
    Flag("xla_cpu_compilation_enabled", False, "", "set XLA in the SavedModel"),
    Flag("xla_gpu_compilation_enabled", False, "", "set XLA in the SavedModel"),
    Flag("mixed_precision", "", "", "set precision in training"),
    Flag("skip_initialize_tpu", False, "", "there is no TPU"),
    Flag("thread_pool_factory_config_file", "", "", "sessions have their own threads"),
    Flag("version", False, "say the version and end"),
)
# Beside the original's.
OWN_FLAGS = (
    Flag("host", "0.0.0.0", "address to listen on"),  # noqa: S104  as the original does
    Flag("free_ports", False, "a port of 0 is any free one, not none"),
    Flag("max_in_flight", 1024, "requests of a port that may wait or run at once"),
    Flag("grpc_transport", "loop", "what speaks gRPC: loop, or grpcio, slower"),
    Flag("log_format", "text", "lines of the log: text or json"),
    Flag("may_be_empty", False, "open the ports before every model serves"),
    Flag("manifest_public_key_file", "", "load only what this key has signed"),
    Flag("default_version_label", "", "what requests without version and label mean"),
)
_BY_NAME = {flag.name: flag for flag in (*FLAGS, *OWN_FLAGS)}


def parse(argv: Sequence[str] | None) -> dict[str, Any]:
    """Return the value of every flag.

    Flags are `--name=value` or `--name value`; `--name` alone is true. An unknown one
    ends the process with a usage message, as in the original.
    """
    parser = argparse.ArgumentParser(
        prog="tensorflow_model_server",
        description="Serve TensorFlow models over gRPC and REST.",
        allow_abbrev=False,
    )
    for flag in (*FLAGS, *OWN_FLAGS):
        text = flag.help or f"taken, without effect here: {flag.no_effect}"
        if isinstance(flag.default, bool):
            parser.add_argument(
                f"--{flag.name}",
                type=_boolean,
                nargs="?",
                const=True,
                default=flag.default,
                help=text,
            )
        else:
            parser.add_argument(
                f"--{flag.name}",
                type=_kind(flag.default),
                default=flag.default,
                help=text,
            )
    return vars(parser.parse_args(argv))


def _kind(default: float | str) -> Callable[[str], float | str]:
    return type(default)


def _boolean(text: str) -> bool:
    if text.lower() in {"true", "1"}:
        return True
    if text.lower() in {"false", "0"}:
        return False
    raise argparse.ArgumentTypeError(f"got {text!r}, allowed: true, false")


def without_effect(flags: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each flag that was given and has no effect."""
    return [
        f"--{flag.name} has no effect here: {flag.no_effect}"
        for flag in FLAGS
        if flag.no_effect and flags[flag.name] != flag.default
    ]


def to_options(flags: Mapping[str, Any]) -> ServerOptions:
    """Return what the flags mean.

    Raises:
        ServerError: A value is not allowed, or a file cannot be read.
    """
    _check_numbers(flags)
    for name, allowed in CHOICES.items():
        if flags[name] not in allowed:
            raise ServerError(
                f"--{name}: got {flags[name]!r}, allowed: {', '.join(allowed)}"
            )
    config_file = (
        Path(flags["model_config_file"]) if flags["model_config_file"] else None
    )
    num_threads = flags["grpc_max_threads"]
    return ServerOptions(
        models=_models(flags, config_file),
        config_file=config_file,
        config_poll_interval_s=flags["model_config_file_poll_wait_seconds"],
        must_serve=not flags["may_be_empty"],
        core=_core(flags),
        session=_session(flags),
        public_key=_public_key(flags),
        warm_up=WarmUpOptions(
            flags["enable_model_warmup"], flags["num_request_iterations_for_warmup"]
        ),
        batching=_batching(flags),
        grpc=_grpc(flags, num_threads),
        http=_http(flags),
        rest=RestOptions(
            flags["rest_api_timeout_in_ms"] / 1000,
            flags["rest_api_enable_cors_support"],
        ),
        metrics_path=_metrics_path(flags),
        grpc_on_loop=flags["grpc_transport"] == "loop",
    )


def _check_numbers(flags: Mapping[str, Any]) -> None:
    for name in ("port", "rest_api_port"):
        # gRPC would take 65536 for 0, and so on.
        if not 0 <= flags[name] <= MAX_PORT:
            raise ServerError(f"--{name} must be in [0, {MAX_PORT}], got {flags[name]}")
    if flags["port"] and flags["port"] == flags["rest_api_port"]:
        raise ServerError(
            f"--rest_api_port cannot be same as --port, got {flags['port']} for both"
        )
    if not (flags["port"] or flags["grpc_socket_path"] or flags["free_ports"]):
        raise ServerError("--port must not be 0 without --grpc_socket_path")
    kinds = ("intra_op", "inter_op", "session")
    if all(flags[f"tensorflow_{kind}_parallelism"] for kind in kinds):
        raise ServerError(
            "either --tensorflow_session_parallelism or "
            "--tensorflow_intra_op_parallelism and --tensorflow_inter_op_parallelism "
            "can be given, got all three"
        )
    for name in ("rest_api_num_threads", "grpc_max_threads", "max_in_flight"):
        if flags[name] < 1:
            raise ServerError(f"--{name} must be at least 1, got {flags[name]}")
    for flag in (*FLAGS, *OWN_FLAGS):
        value = flags[flag.name]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        may_be_negative = flag.name == "file_system_poll_wait_seconds"
        if is_number and value < 0 and not may_be_negative:
            raise ServerError(f"--{flag.name} must not be negative, got {value}")


def _models(
    flags: Mapping[str, Any], config_file: Path | None
) -> tuple[ModelConfig, ...]:
    base_path = flags["model_base_path"]
    if config_file is not None:
        return tuple(read_models(config_file))
    if not base_path:
        raise ServerError("--model_base_path or --model_config_file is needed")
    if not base_path.startswith("/"):
        raise ServerError(f"--model_base_path must be absolute, got {base_path}")
    return (ModelConfig(flags["model_name"], Path(base_path)),)


def _core(flags: Mapping[str, Any]) -> CoreOptions:
    interval_s = flags["load_retry_interval_micros"] / 1e6
    return CoreOptions(
        poll_interval_s=flags["file_system_poll_wait_seconds"],
        retries=Retries(flags["max_num_load_retries"], interval_s),
        num_load_threads=max(1, flags["num_load_threads"]),
        allow_labels_for_unavailable=flags[
            "allow_version_labels_for_unavailable_models"
        ],
        default_label=flags["default_version_label"],
    )


def _session(flags: Mapping[str, Any]) -> SessionOptions:
    both = flags["tensorflow_session_parallelism"]
    intra, inter = (flags[f"tensorflow_{k}_op_parallelism"] for k in ("intra", "inter"))
    if not (intra or inter):
        intra = inter = both
    return SessionOptions(
        tags=tuple(flags["saved_model_tags"].split(",")),
        intra_op_parallelism=intra,
        inter_op_parallelism=inter,
        gpu_memory_fraction=flags["per_process_gpu_memory_fraction"],
    )


def _batching(flags: Mapping[str, Any]) -> batching.BatchingOptions | None:
    file = flags["batching_parameters_file"]
    if not flags["enable_batching"]:
        if file:
            raise ServerError(
                "--batching_parameters_file supplied without --enable_batching=true"
            )
        return None
    message = apis.BatchingParameters()
    if file:
        message = read_text(Path(file), apis.BatchingParameters)
    return batching.from_parameters(message, file or "the defaults")


def _grpc(flags: Mapping[str, Any], num_threads: int) -> GrpcOptions:
    tls = None
    if flags["ssl_config_file"]:
        file = Path(flags["ssl_config_file"])
        tls = Tls.read(file, read_text(file, apis.SSLConfig))
    return GrpcOptions(
        host=flags["host"],
        port=flags["port"],
        socket_path=flags["grpc_socket_path"],
        has_port=bool(flags["port"] or flags["free_ports"]),
        num_threads=num_threads,
        max_in_flight=flags["max_in_flight"],
        channel_arguments=tuple(channel_arguments(flags["grpc_channel_arguments"])),
        tls=tls,
        has_health_service=flags["enable_grpc_healthcheck_service"],
    )


def _http(flags: Mapping[str, Any]) -> HttpOptions | None:
    if not (flags["rest_api_port"] or flags["free_ports"]):
        return None
    return HttpOptions(
        host=flags["host"],
        port=flags["rest_api_port"],
        num_threads=flags["rest_api_num_threads"],
        max_in_flight=flags["max_in_flight"],
    )


def _public_key(flags: Mapping[str, Any]) -> Path | None:
    if not flags["manifest_public_key_file"]:
        return None
    return Path(flags["manifest_public_key_file"])


def _metrics_path(flags: Mapping[str, Any]) -> str | None:
    if not flags["monitoring_config_file"]:
        return None
    file = Path(flags["monitoring_config_file"])
    prometheus = read_text(file, apis.MonitoringConfig).prometheus_config
    if not prometheus.enable:
        return None
    path: str = prometheus.path or METRICS_PATH
    if not path.startswith("/"):
        raise ServerError(
            f"{file}: prometheus_config.path: got {path!r}, allowed: an absolute path"
        )
    return path
