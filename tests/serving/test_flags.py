"""TensorFlow Serving's command line: names, defaults, meanings, refusals."""

from pathlib import Path
from typing import Any

import pytest

from serving.errors import ServerError
from serving.model_server_config import Latest, ModelConfig, read_models
from serving.server import flags
from serving.server.flags import FLAGS, OWN_FLAGS, parse, to_options, without_effect

DOCS = Path(__file__).parents[2] / "docs" / "serving.md"
ISSUE = [
    "port",
    "grpc_socket_path",
    "rest_api_port",
    "rest_api_num_threads",
    "rest_api_timeout_in_ms",
    "rest_api_enable_cors_support",
    "enable_batching",
    "batching_parameters_file",
    "model_config_file",
    "model_config_file_poll_wait_seconds",
    "model_name",
    "model_base_path",
    "num_load_threads",
    "num_unload_threads",
    "max_num_load_retries",
    "load_retry_interval_micros",
    "file_system_poll_wait_seconds",
    "monitoring_config_file",
    "ssl_config_file",
    "grpc_channel_arguments",
    "grpc_max_threads",
    "enable_model_warmup",
    "num_request_iterations_for_warmup",
    "tensorflow_session_parallelism",
    "tensorflow_intra_op_parallelism",
    "tensorflow_inter_op_parallelism",
    "saved_model_tags",
    "allow_version_labels_for_unavailable_models",
    "enable_grpc_healthcheck_service",
    "prefer_tflite_model",
    "version",
]
BASE = "--model_base_path=/models/m"


def options(*given: str) -> Any:
    return to_options(parse([BASE, *given]))


def test_every_flag_that_users_know_is_taken() -> None:
    assert set(ISSUE) <= {flag.name for flag in FLAGS}


def test_flags_of_our_own_are_documented() -> None:
    text = DOCS.read_text()
    assert [flag.name for flag in OWN_FLAGS if f"`--{flag.name}`" not in text] == []


def test_defaults_are_the_originals() -> None:
    got = options()
    assert got.models == (ModelConfig("default", Path("/models/m"), Latest(1)),)
    assert (got.grpc.host, got.grpc.port) == ("0.0.0.0", 8500)
    assert got.http is None
    assert (got.core.retries.max_num, got.core.retries.interval_s) == (5, 60.0)
    assert got.core.poll_interval_s == 1.0
    assert got.rest.timeout_s == 30.0
    assert got.session.tags == ("serve",)
    assert (got.warm_up.is_enabled, got.warm_up.num_iterations) == (True, 1)
    assert got.batching is None
    assert got.metrics_path is None
    assert got.must_serve


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (["--enable_batching"], True),
        (["--enable_batching=true"], True),
        (["--enable_batching=1"], True),
        (["--enable_batching=false"], False),
        ([], False),
    ],
)
def test_booleans_are_written_in_several_ways(given: list[str], value: bool) -> None:
    assert parse([BASE, *given])["enable_batching"] is value


@pytest.mark.parametrize(
    "given", [["--enable_batching=maybe"], ["--port=many"], ["--nonsense"]]
)
def test_what_cannot_be_parsed_ends_with_usage(
    given: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse([BASE, *given])
    assert "usage:" in capsys.readouterr().err


def test_flag_without_effect_is_said_only_when_it_was_given() -> None:
    assert without_effect(parse([BASE])) == []
    [sentence] = without_effect(parse([BASE, "--prefer_tflite_model"]))
    assert sentence.startswith("--prefer_tflite_model has no effect here: ")


def test_parallelism_of_a_session_is_for_both_or_each_has_its_own() -> None:
    both = options("--tensorflow_session_parallelism=3").session
    assert (both.intra_op_parallelism, both.inter_op_parallelism) == (3, 3)
    one = options("--tensorflow_intra_op_parallelism=2").session
    assert (one.intra_op_parallelism, one.inter_op_parallelism) == (2, 0)


def test_channel_arguments_are_numbers_or_text() -> None:
    given = "--grpc_channel_arguments=grpc.max_connection_age_ms=2000,grpc.x=y"
    pairs = options(given).grpc.channel_arguments
    assert pairs == (("grpc.max_connection_age_ms", 2000), ("grpc.x", "y"))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (["--port=0"], "--port must not be 0 without --grpc_socket_path"),
        (["--port=65536"], r"--port must be in \[0, 65535\], got 65536"),
        (["--rest_api_port=8500"], "--rest_api_port cannot be same as --port"),
        (["--grpc_max_threads=0"], "--grpc_max_threads must be at least 1, got 0"),
        (["--max_num_load_retries=-1"], "must not be negative, got -1"),
        (["--batching_parameters_file=/x"], "supplied without --enable_batching"),
        (["--model_config_file=/nowhere/x"], "/nowhere/x cannot be read"),
        (["--grpc_channel_arguments=a"], "got 'a', allowed: key=value"),
        (
            [
                "--tensorflow_session_parallelism=1",
                "--tensorflow_intra_op_parallelism=1",
                "--tensorflow_inter_op_parallelism=1",
            ],
            "got all three",
        ),
    ],
)
def test_values_that_cannot_be(given: list[str], text: str) -> None:
    with pytest.raises(ServerError, match=text):
        options(*given)


def test_base_path_is_needed_and_absolute() -> None:
    with pytest.raises(ServerError, match="is needed"):
        to_options(parse([]))
    with pytest.raises(ServerError, match="must be absolute, got models"):
        to_options(parse(["--model_base_path=models"]))


def test_texts_that_are_no_message_are_named_with_their_line(tmp_path: Path) -> None:
    file = tmp_path / "models.config"
    file.write_text("model_config_list {\n  nonsense: 1\n}\n")
    with pytest.raises(ServerError, match=rf"{file}:2:3 .*nonsense.*ModelServerConfig"):
        read_models(file)


def test_metrics_path_is_the_files_or_the_default(tmp_path: Path) -> None:
    file = tmp_path / "monitoring.config"
    flag = f"--monitoring_config_file={file}"
    for text, path in (
        ("prometheus_config { enable: true }", flags.METRICS_PATH),
        ('prometheus_config { enable: true path: "/m" }', "/m"),
        ("prometheus_config { enable: false }", None),
        ("", None),
    ):
        file.write_text(text)
        assert options(flag).metrics_path == path
    file.write_text('prometheus_config { enable: true path: "m" }')
    with pytest.raises(ServerError, match="allowed: an absolute path"):
        options(flag)
