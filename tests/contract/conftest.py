"""Servers under contract, and the marks of what only ours does."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import contract_server
import pytest
from contract_server import FLIGHTS, MODELS, TRANSPORTS, Contracted, config, running
from differences import DIFFERENCES

ECHO = Path(__file__).with_name("echo_model.py")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "improves(key): what only the embedded server does, by differences.py",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folder = Path(__file__).parent
    for item in items:
        if folder not in item.path.parents:
            continue
        item.add_marker(pytest.mark.integration)
        for mark in item.iter_markers("improves"):
            sentence = DIFFERENCES[mark.args[0]]
            if contract_server.IS_ORIGINAL:
                item.add_marker(pytest.mark.skip(reason=f"ours only: {sentence}"))


@pytest.fixture(scope="session")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Base path of a model that gives back what it gets, in every type."""
    base_path = tmp_path_factory.mktemp("models") / "echo"
    version = base_path / "1"
    subprocess.run([sys.executable, str(ECHO), str(version)], check=True)
    return base_path


@pytest.fixture(scope="session", params=TRANSPORTS)
def server(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    echo: Path,
) -> Iterator[Contracted]:
    """A server of all conformance models, with labels and metrics."""
    folder = tmp_path_factory.mktemp("server")
    models = folder / "models.config"
    versions = (
        "model_version_policy { all {} } "
        'version_labels { key: "stable" value: 123 } '
        'version_labels { key: "canary" value: 124 }'
    )
    models.write_text(
        config(
            ("half_plus_two", MODELS / "half_plus_two", versions),
            ("half_plus_three", MODELS / "half_plus_three", ""),
            ("matrix", MODELS / "matrix_half_plus_two", ""),
            ("echo", echo, ""),
            ("flights", FLIGHTS / "model", ""),
        )
    )
    monitoring = folder / "monitoring.config"
    monitoring.write_text("prometheus_config { enable: true }")
    with running(
        folder / "log",
        f"--model_config_file={models}",
        "--allow_version_labels_for_unavailable_models=true",
        f"--monitoring_config_file={monitoring}",
        "--rest_api_enable_cors_support=true",
        "--enable_grpc_healthcheck_service=true",
        transport=request.param,
    ) as started:
        yield started
