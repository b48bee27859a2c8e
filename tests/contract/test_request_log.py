"""A sample of requests is logged as PredictionLogs, which can warm a version up."""

from pathlib import Path
from typing import Any

import pytest
from contract_server import MODELS, Contracted, config, examples, running

from serving import apis, tfrecord

pytestmark = pytest.mark.improves("request log")


def logging(prefix: Path, rate: float = 1.0) -> str:
    return (
        f'logging_config {{ log_collector_config {{ type: "tfrecord" '
        f'filename_prefix: "{prefix}" }} '
        f"sampling_config {{ sampling_rate: {rate} }} }}"
    )


def logged(prefix: Path) -> list[Any]:
    entries = []
    for file in sorted(prefix.parent.glob(f"{prefix.name}-*")):
        with file.open("rb") as records:
            entries += map(apis.PredictionLog.FromString, tfrecord.read(records))
    return entries


def start(tmp_path: Path, more: str) -> Any:
    file = tmp_path / "models.config"
    file.write_text(config(("half", MODELS / "half_plus_two", more)))
    return running(tmp_path / "log", f"--model_config_file={file}")


def ask_all(server: Contracted) -> None:
    server.predict("half", {"x": [2.0]})
    server.rest_predict("half", {"inputs": [4.0]})
    request = apis.RegressionRequest(input=examples({"x": 80.0}))
    request.model_spec.name = "half"
    request.model_spec.signature_name = "regress_x_to_y"
    server.call("PredictionService", "Regress", request)


def test_requests_and_answers_of_both_apis_are_logged(tmp_path: Path) -> None:
    prefix = tmp_path / "logs" / "half"
    with start(tmp_path, logging(prefix)) as server:
        ask_all(server)
        first, second, third = logged(prefix)
    assert first.predict_log.request.inputs["x"].float_val[:] == [2.0]
    assert first.predict_log.response.outputs["y"].float_val[:] == [3.0]
    assert second.predict_log.request.inputs["x"].float_val[:] == [4.0]
    assert third.regress_log.response.result.regressions[0].value == 42.0
    spec = first.log_metadata.model_spec
    assert (spec.name, spec.version.value) == ("half", 124)
    assert first.log_metadata.sampling_config.sampling_rate == 1.0


def test_rate_of_0_logs_nothing(tmp_path: Path) -> None:
    prefix = tmp_path / "logs" / "half"
    with start(tmp_path, logging(prefix, 0.0)) as server:
        ask_all(server)
    assert not prefix.parent.exists()


def test_log_that_cannot_be_written_fails_no_request(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with start(tmp_path, logging(tmp_path / "file" / "half")) as server:
        ask_all(server)
