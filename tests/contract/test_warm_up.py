"""Warm-up requests are replayed before a version serves; a bad file fails the load."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from contract_server import (
    MODELS,
    Contracted,
    examples,
    model_spec,
    predict_request,
    publish,
    running,
    until,
)

from serving import apis, tfrecord
from serving.server.warmup import FILE

HALF = MODELS / "half_plus_two" / "00000123"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    publish(HALF, tmp_path / "m", 1)
    return tmp_path / "m"


@pytest.fixture
def server(base: Path, tmp_path: Path) -> Iterator[Contracted]:
    with running(
        tmp_path / "log",
        "--model_name=m",
        f"--model_base_path={base}",
        "--max_num_load_retries=0",
    ) as started:
        yield started


def publish_with(base: Path, version: int, content: bytes) -> None:
    aside = base.parent / "aside"
    publish(HALF, aside, version)
    file = aside / str(version) / FILE
    file.parent.mkdir()
    file.write_bytes(content)
    (aside / str(version)).rename(base / str(version))


def logs() -> bytes:
    predict = apis.PredictionLog()
    predict.predict_log.request.CopyFrom(
        predict_request("m", {"x": np.ones(3, np.float32)})
    )
    regress = apis.PredictionLog()
    regress.regress_log.request.input.CopyFrom(examples({"x": 1.0}))
    regress.regress_log.request.model_spec.CopyFrom(
        model_spec("m", signature="regress_x_to_y")
    )
    classify = apis.PredictionLog()
    classify.classify_log.request.input.CopyFrom(examples({"x": 1.0}))
    classify.classify_log.request.model_spec.CopyFrom(
        model_spec("m", signature="classify_x_to_y")
    )
    multi = apis.PredictionLog()
    multi.multi_inference_log.request.input.CopyFrom(examples({"x": 1.0}))
    multi.multi_inference_log.request.tasks.add(
        model_spec=model_spec("m", signature="regress_x_to_y"),
        method_name="tensorflow/serving/regress",
    )
    return b"".join(
        tfrecord.encode(log.SerializeToString())
        for log in (predict, regress, classify, multi)
    )


def test_version_with_warm_up_requests_is_served(
    server: Contracted, base: Path
) -> None:
    publish_with(base, 2, logs())
    until(lambda: server.states("m").get(2) == "AVAILABLE")


@pytest.mark.parametrize(
    "content",
    [
        bytes(range(10)),
        logs()[:-3],
        logs()[:20] + b"\xff" + logs()[21:],
        tfrecord.encode(b"\xff\xff\xff"),
    ],
    ids=["ten bytes", "cut off", "a wrong byte", "no PredictionLog"],
)
def test_damaged_file_fails_the_load_and_the_old_version_serves_on(
    server: Contracted, base: Path, content: bytes
) -> None:
    publish_with(base, 2, content)
    until(lambda: server.states("m").get(2) == "END")
    assert server.states("m")[1] == "AVAILABLE"
    [entry] = server.status("m", 2).model_version_status
    assert entry.status.error_code != 0
    assert server.predict("m", {"x": [2.0]})["y"].tolist() == [3.0]


@pytest.mark.improves("load error")
def test_status_says_that_it_is_the_warm_up(server: Contracted, base: Path) -> None:
    publish_with(base, 2, bytes(range(10)))
    until(lambda: server.states("m").get(2) == "END")
    [entry] = server.status("m", 2).model_version_status
    assert "warm-up file" in entry.status.error_message


def test_request_that_fails_in_warm_up_fails_the_load(
    server: Contracted, base: Path
) -> None:
    log = apis.PredictionLog()
    request = predict_request("m", {"nothing": np.ones(1, np.float32)})
    log.predict_log.request.CopyFrom(request)
    publish_with(base, 2, tfrecord.encode(log.SerializeToString()))
    until(lambda: server.states("m").get(2) == "END")
    assert server.states("m")[1] == "AVAILABLE"


def test_more_than_a_thousand_requests_are_refused(
    server: Contracted, base: Path
) -> None:
    log = apis.PredictionLog()
    log.predict_log.request.CopyFrom(
        predict_request("m", {"x": np.ones(1, np.float32)})
    )
    publish_with(base, 2, tfrecord.encode(log.SerializeToString()) * 1001)
    until(lambda: server.states("m").get(2) == "END")
    [entry] = server.status("m", 2).model_version_status
    assert "1000" in entry.status.error_message


def test_warm_up_can_be_left_out(base: Path, tmp_path: Path) -> None:
    publish_with(base, 2, bytes(range(10)))
    with running(
        tmp_path / "log",
        "--model_name=m",
        f"--model_base_path={base}",
        "--enable_model_warmup=false",
    ) as server:
        assert server.states("m") == {2: "AVAILABLE"}
