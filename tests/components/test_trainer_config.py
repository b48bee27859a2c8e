"""Settings of the Trainer that contradict each other, or cannot be."""

from typing import Any

import pytest
from pydantic import ValidationError

from components.trainer.config import TrainerSettings


def refusal(**settings: Any) -> str:
    with pytest.raises(ValidationError) as error:
        TrainerSettings.model_validate(settings)
    return str(error.value)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"workers": ["a:1"], "num_local_workers": 2},
            "workers and num_local_workers exclude each other",
        ),
        (
            {"workers": ["a:1"], "strategy": "mirrored"},
            "workers are for strategy multi_worker, got strategy mirrored",
        ),
        (
            {"num_local_workers": 2, "strategy": "one_device"},
            "workers are for strategy multi_worker, got strategy one_device",
        ),
        (
            {"deterministic": True, "input": {"service": "grpc://data:5000"}},
            (
                "deterministic does not go with input.service: its workers hand out "
                "examples in an order that changes from run to run"
            ),
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    settings: dict[str, Any], sentence: str
) -> None:
    assert sentence in refusal(**settings)


@pytest.mark.parametrize(
    "name",
    [
        {"deterministic": True},
        {"precision": "mixed_float16"},
        {"ema_momentum": 0.9},
        {"input": {"service": "grpc://data:5000"}},
        {"steps_per_execution": 4},
        {"all_reduce": "ring"},
    ],
    ids=str,
)
def test_what_parameter_servers_cannot_do_is_refused(name: dict[str, Any]) -> None:
    words = refusal(strategy="parameter_server", **name)
    assert next(iter(name)) in words
    assert "does not go with strategy parameter_server: " in words


@pytest.mark.parametrize("name", ["num_local_workers", "num_local_servers"])
def test_local_workers_and_servers_are_set_together(name: str) -> None:
    assert (
        "strategy parameter_server takes num_local_workers and num_local_servers "
        "together: set both, or none and TF_CONFIG"
    ) in refusal(strategy="parameter_server", **{name: 2})


@pytest.mark.parametrize("strategy", ["auto", "multi_worker", "one_device"])
def test_servers_are_for_the_strategy_that_has_them(strategy: str) -> None:
    words = (
        f"num_local_servers is for strategy parameter_server, got strategy {strategy}"
    )
    assert words in refusal(strategy=strategy, num_local_servers=2)


@pytest.mark.parametrize(
    "settings",
    [
        {"strategy": "parameter_server"},
        {
            "strategy": "parameter_server",
            "num_local_workers": 2,
            "num_local_servers": 1,
        },
        {"workers": ["a:1", "b:1"]},
        {"workers": ["a:1"], "strategy": "multi_worker"},
        {"num_local_workers": 2, "strategy": "multi_worker"},
        {"deterministic": True, "input": {"cache": "disk"}},
        {"input": {"service": "grpc://data:5000"}},
    ],
)
def test_settings_that_go_together_are_taken(settings: dict[str, Any]) -> None:
    TrainerSettings.model_validate(settings)


@pytest.mark.parametrize(
    "address", ["host:2222", "10.0.0.1:1", "job-0.svc.ns:80", "[::1]:2222"]
)
def test_a_worker_is_a_host_and_a_port(address: str) -> None:
    assert TrainerSettings(workers=(address,)).workers == (address,)


@pytest.mark.parametrize("address", ["host", "host:", ":1", "http://h:1", "h:123456"])
def test_another_worker_is_quoted(address: str) -> None:
    words = f"got workers entry {address!r}, allowed: HOST:PORT"
    assert words in refusal(workers=[address])


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"accumulation_steps": 0}, "accumulation_steps"),
        ({"dropout": 1.0}, "dropout"),
        ({"learning_rate": 0}, "learning_rate"),
        ({"ema_momentum": 1.0}, "ema_momentum"),
        ({"memory_retries": -1}, "memory_retries"),
        ({"checkpoints": {"every_s": 0}}, "checkpoints.every_s"),
        ({"checkpoints": {"keep": 0}}, "checkpoints.keep"),
        ({"tensorboard": {"profile_steps": [0, 5]}}, "tensorboard.profile_steps.0"),
        ({"input": {"cashe": "disk"}}, "input.cashe"),
        ({"precision": "float8"}, "precision"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_path(
    settings: dict[str, Any], place: str
) -> None:
    assert place in refusal(**settings).splitlines()


@pytest.mark.parametrize(
    ("settings", "wants_best"),
    [
        ({}, False),
        ({"early_stopping_patience": 1}, True),
        ({"checkpoints": {"export": "best"}}, True),
    ],
)
def test_early_stopping_always_exports_the_best(
    settings: dict[str, Any], *, wants_best: bool
) -> None:
    assert TrainerSettings.model_validate(settings).wants_best == wants_best
