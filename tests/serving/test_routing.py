"""Moves of labels and versions, against servers that keep TensorFlow Serving's rules."""

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from saved_models import saved_model

from serving.client.protocol import VersionStatus
from serving.errors import ClientError, RepositoryError, RoutingError
from serving.model_repository import ModelRepository
from serving.model_server_config import Latest, ModelConfig, Specific, read_models
from serving.routing import STABLE, Goal, Routes, listed, next_config

TIMEOUT_S = 0.3


class Killed(BaseException):
    """The process ends here."""


@dataclass
class FakeServer:
    """Loads at once what it can, and gives no label to what is not AVAILABLE."""

    found: Collection[int]
    broken: set[int] = field(default_factory=set)
    is_down: bool = False
    serving: dict[int, str] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    seen: list[ModelConfig] = field(default_factory=list)
    die_before: int = -1

    def reload(self, models: Sequence[ModelConfig], timeout_s: float) -> None:
        if self.die_before == len(self.seen):
            raise Killed
        if self.is_down:
            raise ClientError("UNAVAILABLE")
        (config,) = [model for model in models if model.name == "m"]
        self.seen.append(config)
        wanted = listed(config.policy, self.found)
        self.serving = {v: "END" if v in self.broken else "AVAILABLE" for v in wanted}
        for version in config.labels.values():
            if self.serving.get(version) != "AVAILABLE":
                raise ClientError(f"FAILED_PRECONDITION: label on {version}")
        # Nobody who asks for a label may ever meet none.
        assert set(self.labels) <= set(config.labels) or not config.labels
        self.labels = dict(config.labels)

    def status(self, timeout_s: float) -> list[VersionStatus]:
        if self.is_down:
            raise ClientError("UNAVAILABLE")
        return [
            VersionStatus(v, state, "bad file" if state == "END" else "")
            for v, state in self.serving.items()
        ]


@pytest.fixture
def base_path(tmp_path: Path) -> Path:
    return tmp_path / "models"


def publish(base_path: Path, *names: str) -> None:
    for name in names:
        source = saved_model(base_path.parent / f"source-{name}", name)
        ModelRepository(base_path, "m").publish(source)


def at(base_path: Path) -> tuple[tuple[int, ...], dict[str, int]]:
    """Return what the config file lists and labels."""
    (config,) = read_models(base_path / "models.config")
    assert isinstance(config.policy, Specific)
    return config.policy.versions, dict(config.labels)


def test_first_version_becomes_stable_and_the_next_only_serves(
    base_path: Path,
) -> None:
    publish(base_path, "a", "b")
    server = FakeServer((1, 2))
    routes = Routes(base_path, "m", {"s": server})
    routes.take(1, TIMEOUT_S)
    assert at(base_path) == ((1,), {STABLE: 1})
    routes.take(2, TIMEOUT_S)
    assert at(base_path) == ((1, 2), {STABLE: 1})
    assert server.labels == {STABLE: 1}


def test_promotion_keeps_the_version_before_loaded_and_rollback_finds_it(
    base_path: Path,
) -> None:
    publish(base_path, "a", "b", "c")
    routes = Routes(base_path, "m", {"s": FakeServer((1, 2, 3))})
    routes.take(1, TIMEOUT_S)
    routes.promote(2, TIMEOUT_S)
    assert at(base_path) == ((1, 2), {STABLE: 2})
    assert routes.previous() == 1
    routes.promote(3, TIMEOUT_S)
    assert at(base_path) == ((2, 3), {STABLE: 3})
    assert routes.previous() == 2
    routes.promote(2, TIMEOUT_S, "rollback")
    assert at(base_path) == ((2, 3), {STABLE: 2})
    assert routes.previous() == 3


def test_new_version_keeps_the_way_back_loaded(base_path: Path) -> None:
    publish(base_path, "a", "b", "c")
    routes = Routes(base_path, "m", {"s": FakeServer((1, 2, 3))})
    routes.take(1, TIMEOUT_S)
    routes.promote(2, TIMEOUT_S)
    routes.take(3, TIMEOUT_S)
    assert at(base_path) == ((1, 2, 3), {STABLE: 2})


def test_version_that_cannot_be_loaded_changes_nothing(base_path: Path) -> None:
    publish(base_path, "a", "b")
    server = FakeServer((1, 2), broken={2})
    routes = Routes(base_path, "m", {"s": server})
    routes.take(1, TIMEOUT_S)
    for move in (routes.take, routes.promote):
        with pytest.raises(RoutingError, match="s could not load version 2.*bad file"):
            move(2, TIMEOUT_S)
        assert at(base_path) == ((1,), {STABLE: 1})
        assert server.serving == {1: "AVAILABLE"}
    assert routes.previous() is None


def test_one_of_two_servers_that_refuses_stops_the_move_on_both(
    base_path: Path,
) -> None:
    publish(base_path, "a", "b")
    good, bad = FakeServer((1, 2)), FakeServer((1, 2))
    routes = Routes(base_path, "m", {"good": good, "worse": bad})
    routes.take(1, TIMEOUT_S)
    bad.broken = {2}
    with pytest.raises(RoutingError, match="worse could not load version 2"):
        routes.promote(2, TIMEOUT_S)
    assert good.labels == bad.labels == {STABLE: 1}
    assert at(base_path) == ((1,), {STABLE: 1})


def test_server_that_is_down_stops_a_move(base_path: Path) -> None:
    publish(base_path, "a")
    routes = Routes(base_path, "m", {"s": FakeServer((1,), is_down=True)})
    with pytest.raises(ClientError):
        routes.take(1, TIMEOUT_S)
    assert not (base_path / "models.config").exists()


def test_without_a_server_the_file_is_all(base_path: Path) -> None:
    publish(base_path, "a", "b")
    routes = Routes(base_path, "m", {})
    routes.pin()
    assert at(base_path) == ((2,), {STABLE: 2})
    routes.pin()
    routes.promote(1, TIMEOUT_S)
    assert at(base_path) == ((1, 2), {STABLE: 1})


def test_unknown_version_is_not_promoted(base_path: Path) -> None:
    publish(base_path, "a")
    with pytest.raises(RepositoryError, match="no version 7; versions: 1"):
        Routes(base_path, "m", {}).promote(7, TIMEOUT_S)


def test_other_models_and_labels_of_the_file_stay(base_path: Path) -> None:
    publish(base_path, "a", "b")
    (base_path / "models.config").write_text(
        'model_config_list {\n config { name: "z" base_path: "/z" '
        'model_platform: "tensorflow" }\n config { name: "m" '
        f'base_path: "{base_path / "m"}" model_platform: "tensorflow" '
        "model_version_policy { specific { versions: 1 } } "
        'version_labels { key: "stable" value: 1 } '
        'version_labels { key: "mine" value: 1 } } }'
    )
    Routes(base_path, "m", {}).promote(2, TIMEOUT_S)
    models = {
        config.name: config for config in read_models(base_path / "models.config")
    }
    assert models["z"].policy == Latest()
    assert models["m"].labels == {STABLE: 2, "mine": 1}
    assert models["m"].policy == Specific((1, 2))


def test_versions_in_use_say_why(base_path: Path) -> None:
    publish(base_path, "a", "b", "c", "d")
    server = FakeServer((1, 2, 3, 4))
    routes = Routes(base_path, "m", {"s": server})
    routes.take(1, TIMEOUT_S)
    routes.promote(2, TIMEOUT_S)
    server.serving[4] = "AVAILABLE"
    assert routes.in_use() == {
        1: "s serves it",
        2: "the label stable is on it",
        4: "s serves it",
    }


def test_history_that_was_cut_off_is_read_as_far_as_it_goes(base_path: Path) -> None:
    publish(base_path, "a", "b")
    routes = Routes(base_path, "m", {})
    routes.take(1, TIMEOUT_S)
    routes.promote(2, TIMEOUT_S)
    with (base_path / "m" / ".stable_history").open("a") as file:
        file.write('{"stable": 2, "bef')
    assert routes.previous() == 1


VERSIONS = st.frozensets(st.integers(1, 5), min_size=1)


@settings(max_examples=200)
@given(VERSIONS, VERSIONS, st.data())
def test_every_move_arrives_and_no_label_is_ever_on_what_does_not_serve(
    start: frozenset[int], wanted: frozenset[int], data: st.DataObject
) -> None:
    def label(versions: frozenset[int]) -> int:
        return data.draw(st.sampled_from(sorted(versions)))

    now = ModelConfig(
        "m", Path("/m"), Specific(tuple(sorted(start))), {STABLE: label(start)}
    )
    goal = Goal(wanted, {STABLE: label(wanted)})
    available = set(start)
    for _ in range(20):
        assert isinstance(now.policy, Specific)
        serving = now.policy.versions
        assert set(now.labels.values()) <= available & set(serving)
        step = next_config(now, goal, serving, available)
        if step is not None:
            now = step
        elif frozenset(serving) == wanted and dict(now.labels) == dict(goal.labels):
            break
        if data.draw(st.booleans()) and isinstance(now.policy, Specific):
            available = set(now.policy.versions)
    else:
        # It only ever waits for versions to load.
        assert not wanted <= available


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 4)), max_size=6))
def test_killed_at_any_step_the_next_move_goes_on(
    tmp_path_factory: pytest.TempPathFactory, moves: list[tuple[int, int]]
) -> None:
    base_path = tmp_path_factory.mktemp("killed") / "models"
    publish(base_path, "a", "b", "c")
    server = FakeServer((1, 2, 3))
    routes = Routes(base_path, "m", {"s": server})
    routes.take(1, TIMEOUT_S)
    stable = 1
    for version, steps in moves:
        server.die_before = len(server.seen) + steps
        may_be = {stable, version, server.labels[STABLE]}
        try:
            routes.promote(version, TIMEOUT_S)
            stable = version
        except Killed:
            # The label is at old or new, on the server and in the file.
            assert server.labels[STABLE] in may_be
            assert at(base_path)[1][STABLE] in may_be
            stable = at(base_path)[1][STABLE]
        server.die_before = -1
        assert server.serving[server.labels[STABLE]] == "AVAILABLE"
    routes.promote(3, TIMEOUT_S)
    assert server.labels == at(base_path)[1] == {STABLE: 3}


def test_repository_that_was_moved_is_served_where_it_is(base_path: Path) -> None:
    publish(base_path, "a", "b")
    routes = Routes(base_path, "m", {})
    routes.take(1, TIMEOUT_S)
    moved = base_path.with_name("moved")
    base_path.rename(moved)
    Routes(moved, "m", {}).pin()
    (config,) = read_models(moved / "models.config")
    assert config.base_path == moved / "m"
    assert config.labels == {STABLE: 1}


def test_push_that_comes_amid_a_promotion_does_not_undo_it(base_path: Path) -> None:
    publish(base_path, "a", "b", "c")
    server = FakeServer((1, 2, 3))
    routes = Routes(base_path, "m", {"s": server})
    routes.take(1, TIMEOUT_S)
    pushing = threading.Thread(target=routes.take, args=(3, TIMEOUT_S))
    status, begun = server.status, threading.Event()

    def late(timeout_s: float) -> list[VersionStatus]:
        if not begun.is_set():
            begun.set()
            pushing.start()
            pushing.join(0.1)
            assert pushing.is_alive()  # it waits for its turn
        return status(timeout_s)

    server.status = late  # type: ignore[method-assign]
    routes.promote(2, TIMEOUT_S)
    pushing.join(30.0)
    assert at(base_path) == ((1, 2, 3), {STABLE: 2})


def test_what_is_pinned_already_needs_no_lock(base_path: Path) -> None:
    Routes(base_path, "m", {}).pin()
    assert not base_path.exists()
    publish(base_path, "a")
    routes = Routes(base_path, "m", {})
    routes.pin()
    (base_path / ".routes.lock").unlink()
    routes.pin()
    assert not (base_path / ".routes.lock").exists()


def test_folder_that_cannot_be_written_is_named(base_path: Path) -> None:
    publish(base_path, "a")
    (base_path / ".routes.lock").mkdir()
    with pytest.raises(RoutingError, match=r"\.routes\.lock cannot be written: Is a"):
        Routes(base_path, "m", {}).take(1, TIMEOUT_S)
