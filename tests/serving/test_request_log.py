"""Sampling, rotation and bounds of a request log."""

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from serving import apis, tfrecord
from serving.errors import RequestError
from serving.model_server_config import ModelConfig, parse
from serving.server.call import Call
from serving.server.request_log import RequestLog, RequestLogs


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
        (config("relative"), "filename_prefix must be an absolute path"),
        (config("/m\0"), "filename_prefix must be an absolute path"),
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


def test_log_of_another_model_with_a_longer_prefix_is_left_alone(
    tmp_path: Path,
) -> None:
    call = Call("Predict", "grpc", model="m", version=1)
    other = RequestLog(config(f"{tmp_path}/m-b"), max_file_bytes=1, max_files=5)
    for _ in range(5):
        other.write(call, fill)
    log = RequestLog(config(f"{tmp_path}/m"), max_file_bytes=1, max_files=2)
    for _ in range(4):
        log.write(call, fill)
    kept = [path.name for path in tmp_path.iterdir()]
    assert sum(name.startswith("m-b-") for name in kept) == 5
    assert len(kept) == 7


def test_file_that_was_removed_is_begun_anew(tmp_path: Path) -> None:
    log = RequestLog(config(f"{tmp_path}/logs/m"))
    call = Call("Predict", "grpc", model="m", version=1)
    log.write(call, fill)
    shutil.rmtree(tmp_path / "logs")
    log.write(call, fill)
    assert len(list((tmp_path / "logs").iterdir())) == 1


def test_reload_that_says_the_same_goes_on_in_the_same_file(tmp_path: Path) -> None:
    def configs() -> dict[str, ModelConfig]:
        logging = config(f"{tmp_path}/m")
        return {"m": ModelConfig("m", tmp_path, logging=logging)}

    logs = RequestLogs(configs)
    for _ in range(15):
        logs.offer(Call("Predict", "grpc", model="m", version=1), fill)
    logs.close()
    assert len(list(tmp_path.iterdir())) == 1
