"""Versions come and go under load, and no request fails."""

import itertools
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from contract_server import publish as publish_by_hand

from serving.model_repository import ModelRepository

pytestmark = pytest.mark.integration
DEADLINE_S = 60.0
NUM_CLIENTS = 2


@pytest.fixture
def model(conformance: Path) -> Path:
    return conformance / "models" / "half_plus_two" / "00000123"


@pytest.fixture
def repository(tmp_path: Path) -> ModelRepository:
    return ModelRepository(tmp_path, "m")


@pytest.fixture
def fresh(model: Path, tmp_path: Path) -> Iterator[Path]:
    """Copies of the model, each another model to the repository."""

    def copies() -> Iterator[Path]:
        for number in itertools.count():
            copy = tmp_path / "copies" / str(number)
            shutil.copytree(model, copy)
            (copy / "assets.extra").mkdir()
            (copy / "assets.extra" / "number").write_text(str(number))
            yield copy

    return copies()


def until(condition: Callable[[], bool]) -> None:
    """Wait for a fact, at most a minute."""
    pause = threading.Event()
    for _ in range(int(DEADLINE_S / 0.05)):
        if condition():
            return
        pause.wait(0.05)
    pytest.fail("it did not come to be in a minute")


def is_available(server: Any, version: int) -> bool:
    return bool(server.states().get(version, ("",))[0] == "AVAILABLE")


def is_unloaded(server: Any, version: int) -> bool:
    return bool(server.states()[version] == ("END", ""))


@contextmanager
def load(ask: Callable[[], Any]) -> Iterator[list[Any]]:
    """Ask from several threads meanwhile; yields the list of answers or errors."""
    answers: list[Any] = []
    stop = threading.Event()

    def client() -> None:
        while not stop.is_set():
            try:
                answers.append(ask())
            except Exception as error:  # noqa: BLE001  any is a failed request
                answers.append(error)

    threads = [threading.Thread(target=client) for _ in range(NUM_CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        stop.set()
        for thread in threads:
            thread.join(DEADLINE_S)


@pytest.mark.parametrize("api", ["rest", "grpc"])
def test_no_request_fails_while_versions_are_swapped(
    start: Callable[..., Any],
    repository: ModelRepository,
    fresh: Iterator[Path],
    api: str,
) -> None:
    repository.publish(next(fresh))
    server = start("m", repository.folder)

    def ask() -> Any:
        if api == "rest":
            return server.rest_predict({"instances": [2.0]})
        return list(server.grpc_predict([2.0]).outputs["y"].float_val)

    with load(ask) as answers:
        for _ in range(5):
            version = repository.publish(next(fresh)).version
            until(partial(is_available, server, version))
            until(partial(is_unloaded, server, version - 1))
    expected = (200, {"predictions": [3.0]}) if api == "rest" else [3.0]
    assert answers
    assert [answer for answer in answers if answer != expected] == []


def test_version_that_cannot_be_loaded_leaves_the_old_one_serving(
    start: Callable[..., Any], repository: ModelRepository, fresh: Iterator[Path]
) -> None:
    repository.publish(next(fresh))
    server = start("m", repository.folder)
    broken = next(fresh)
    (broken / "saved_model.pb").write_bytes(b"\x00 no SavedModel")
    publish_by_hand(broken, repository.folder, 2)
    until(lambda: server.states().get(2, ("",))[0] == "END")
    states = server.states()
    assert states[1] == ("AVAILABLE", "")
    assert "saved_model.pb" in states[2][1]
    assert server.rest_predict({"instances": [2.0]}) == (200, {"predictions": [3.0]})
    repository.publish(next(fresh))
    until(partial(is_available, server, 3))


def test_copy_by_hand_is_served_once_it_is_whole(
    start: Callable[..., Any], repository: ModelRepository, model: Path
) -> None:
    repository.publish(model)
    server = start("m", repository.folder)
    copy = repository.folder / "2"
    copy.mkdir()
    shutil.copy(model / "saved_model.pb", copy)
    until(lambda: server.states().get(2, ("",))[0] == "END")
    assert server.rest_predict({"instances": [2.0]}) == (200, {"predictions": [3.0]})
    shutil.copytree(model, copy, dirs_exist_ok=True)
    until(partial(is_available, server, 2))


def test_server_waits_for_the_first_version_and_answers_not_found(
    start: Callable[..., Any], repository: ModelRepository, model: Path
) -> None:
    server = start("m", repository.folder)
    assert server.rest_predict({"instances": [2.0]}) == (
        404,
        {"error": "Servable not found for request: Latest(m)"},
    )
    repository.publish(model)
    until(lambda: server.rest_predict({"instances": [2.0]})[0] == 200)


def test_deleting_a_version_brings_the_one_before_back(
    start: Callable[..., Any], repository: ModelRepository, fresh: Iterator[Path]
) -> None:
    repository.publish(next(fresh))
    repository.publish(next(fresh))
    server = start("m", repository.folder)
    assert is_available(server, 2)
    shutil.rmtree(repository.path(2))
    until(partial(is_available, server, 1))
    until(partial(is_unloaded, server, 2))
