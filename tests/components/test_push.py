"""A push is what servers say it is."""

import shutil
import socket
from pathlib import Path

import pytest

from components.errors import PushError
from components.pusher.config import PushSettings
from components.pusher.push import push
from serving.client import connect
from serving.model_repository import ModelRepository, Origin
from serving.routing import Routes
from serving.server.process import EmbeddedServer

pytestmark = pytest.mark.integration
MODELS = Path(__file__).parents[1] / "data" / "conformance" / "models"
HALF = MODELS / "half_plus_two" / "00000123"
TIMEOUT_S = 20.0
ORIGIN = Origin("run-1")


@pytest.fixture
def where(tmp_path: Path) -> PushSettings:
    return PushSettings(base_path=tmp_path / "models", model="m")


def another(tmp_path: Path, name: str) -> Path:
    """A copy of the model that is not the same to the repository."""
    copy = tmp_path / name
    shutil.copytree(HALF, copy)
    (copy / "assets.extra").mkdir()
    (copy / "assets.extra" / "name").write_text(name)
    return copy


def routes(where: PushSettings) -> Routes:
    return Routes(where.base_path, where.model, {})


def test_server_that_runs_takes_each_push_and_traffic_stays(
    where: PushSettings, tmp_path: Path
) -> None:
    push(HALF, where, (), TIMEOUT_S, ORIGIN)
    with EmbeddedServer("m", where.base_path / "m", tmp_path / "log") as server:
        address = f"127.0.0.1:{server.grpc_port}"
        pushed = push(another(tmp_path, "b"), where, (address,), TIMEOUT_S, ORIGIN)
        assert (pushed.version, pushed.is_new) == (2, True)
        assert pushed.confirmed == (address,)
        assert pushed.problem == ""
        client = connect("grpc", address, "m")
        states = {entry.version: entry.state for entry in client.status(5.0)}
        client.close()
    assert states == {1: "AVAILABLE", 2: "AVAILABLE"}
    assert routes(where).stable() == 1


def test_the_same_model_again_is_the_version_that_holds_it(
    where: PushSettings,
) -> None:
    first, again = (push(HALF, where, (), TIMEOUT_S, ORIGIN) for _ in range(2))
    assert (first.version, first.is_new) == (1, True)
    assert (again.version, again.is_new) == (1, False)


def test_server_that_is_not_there_leaves_it_published_not_pushed(
    where: PushSettings,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    pushed = push(HALF, where, (address,), TIMEOUT_S, ORIGIN)
    assert pushed.version == 1
    assert pushed.confirmed == ()
    assert "UNAVAILABLE" in pushed.problem
    assert ModelRepository(where.base_path, "m").versions() == [1]
    assert routes(where).stable() is None


def test_model_that_breaks_clients_is_stopped_with_the_difference(
    where: PushSettings,
) -> None:
    push(HALF, where, (), TIMEOUT_S, ORIGIN)
    other = MODELS / "half_plus_three" / "00000123"
    with pytest.raises(PushError, match="clients of the version before would break: "):
        push(other, where, (), TIMEOUT_S, ORIGIN)
    assert ModelRepository(where.base_path, "m").versions() == [1]
    allowed = where.model_copy(update={"allow_breaking": True})
    pushed = push(other, allowed, (), TIMEOUT_S, ORIGIN)
    assert pushed.version == 2
    assert pushed.changes


def test_what_no_server_could_serve_is_not_pushed(
    where: PushSettings, tmp_path: Path
) -> None:
    broken = another(tmp_path, "b")
    shutil.rmtree(broken / "variables")
    with pytest.raises(PushError, match="not whole, missing: variables"):
        push(broken, where, (), TIMEOUT_S, ORIGIN)
    assert not where.base_path.exists()
