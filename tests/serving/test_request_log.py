"""Sampling, rotation and bounds of a request log."""

import random
from pathlib import Path
from typing import Any

import pytest

from serving import apis, tfrecord
from serving.errors import RequestError
from serving.model_server_config import parse
from serving.server.call import Call
from serving.server.request_log import RequestLog


def config(prefix: str, rate: float = 1.0, kind: str = "tfrecord") -> Any:
    built = apis.LoggingConfig()
    built.log_collector_config.type = kind
    built.log_collector_config.filename_prefix = prefix
    built.sampling_config.sampling_rate = rate
    return built


def fill(entry: Any) -> None:
    entry.predict_log.request.model_spec.name = "m" * 1000


def test_full_files_are_followed_and_the_oldest_goes(tmp_path: Path) -> None:
    log = RequestLog(config(f"{tmp_path}/m"), max_file_bytes=3000, max_files=2)
    for _ in range(20):
        log.write(Call("Predict", "grpc", model="m", version=1), fill)
    log.close()
    files = sorted(tmp_path.iterdir())
    assert len(files) == 2
    assert files[-1].name.endswith("-000007.tfrecord")
    with files[0].open("rb") as records:
        entries = [apis.PredictionLog.FromString(r) for r in tfrecord.read(records)]
    assert len(entries) == 3
    assert entries[0].log_metadata.model_spec.version.value == 1


def test_sampling_takes_the_share() -> None:
    log = RequestLog(config("/m", 0.25), random_source=random.Random(7))
    assert 200 < sum(log.takes() for _ in range(1000)) < 300


@pytest.mark.parametrize(
    ("logging", "text"),
    [
        (config("relative"), "filename_prefix must be absolute"),
        (config("/m", 1.5), r"sampling_rate must be in \[0, 1\], got 1.5"),
        (config("/m", kind="kafka"), "Cannot find LogCollector::Factory"),
    ],
)
def test_configs_that_are_refused(logging: Any, text: str) -> None:
    message = apis.ModelServerConfig()
    message.model_config_list.config.add(
        name="m", base_path="/m", model_platform="tensorflow", logging_config=logging
    )
    with pytest.raises(RequestError, match=text):
        parse(message)
