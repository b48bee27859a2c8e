"""A model's versions in memory, with models that only pretend."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from serving.errors import Code, RepositoryError, RequestError
from serving.model_server_config import Specific
from serving.server.plan import State
from serving.server.versions import ModelVersions, Retries
from serving.tensors import Array


@dataclass
class FakeModel:
    """Knows whether it was closed."""

    path: Path
    signatures: Mapping[str, Any] = field(default_factory=dict)
    is_closed: bool = False

    def run(
        self,
        signature_name: str,
        inputs: Mapping[str, Array],
        wanted: Sequence[str],
        deadline: float | None = None,
    ) -> dict[str, Array]:
        return {}

    def close(self) -> None:
        self.is_closed = True


@dataclass
class FakeRepository:
    """Holds versions in a list."""

    folder: Path
    found: list[int] = field(default_factory=list)
    error: Exception | None = None

    def versions(self) -> list[int]:
        if self.error is not None:
            raise self.error
        return self.found

    def path(self, version: int) -> Path:
        return self.folder / str(version)


class Loader:
    """Loads fake models, except versions that are broken."""

    def __init__(self) -> None:
        self.broken: set[int] = set()
        self.loaded: list[FakeModel] = []
        self.tried: list[int] = []

    def __call__(self, path: Path) -> FakeModel:
        self.tried.append(int(path.name))
        if int(path.name) in self.broken:
            raise ValueError("no variables")
        self.loaded.append(FakeModel(path))
        return self.loaded[-1]


@pytest.fixture
def repository(tmp_path: Path) -> FakeRepository:
    return FakeRepository(tmp_path)


@pytest.fixture
def loader() -> Loader:
    return Loader()


@pytest.fixture
def versions(repository: FakeRepository, loader: Loader) -> ModelVersions:
    return ModelVersions("m", repository, loader)


def states(versions: ModelVersions) -> dict[int, State]:
    return {servable.version: servable.state for servable in versions.status()}


def served(versions: ModelVersions) -> int:
    with versions.use() as lease:
        return lease.version


def test_new_version_replaces_the_old_one_and_both_are_listed(
    versions: ModelVersions, repository: FakeRepository, loader: Loader
) -> None:
    repository.found = [1]
    versions.tick()
    assert served(versions) == 1
    repository.found = [1, 2]
    versions.tick()
    assert served(versions) == 2
    assert states(versions) == {2: State.AVAILABLE, 1: State.END}
    assert [model.is_closed for model in loader.loaded] == [True, False]


def test_failed_load_keeps_the_old_version_and_says_why(
    versions: ModelVersions, repository: FakeRepository, loader: Loader
) -> None:
    repository.found = [1]
    versions.tick()
    loader.broken = {2}
    repository.found = [1, 2]
    versions.tick()
    assert served(versions) == 1
    assert states(versions) == {2: State.END, 1: State.AVAILABLE}
    assert versions.status(2)[0].error == "no variables"


def test_failed_version_is_loaded_once_however_often_the_disk_is_looked_at(
    versions: ModelVersions, repository: FakeRepository, loader: Loader
) -> None:
    loader.broken, repository.found = {2}, [2]
    for _ in range(3):
        versions.tick()
    assert loader.tried == [2]


def test_version_after_a_failed_one_replaces_the_old_one(
    versions: ModelVersions, repository: FakeRepository, loader: Loader
) -> None:
    loader.broken = {2}
    for found in ([1], [1, 2], [1, 2, 3]):
        repository.found = found
        versions.tick()
    assert served(versions) == 3
    assert states(versions) == {3: State.AVAILABLE, 2: State.END, 1: State.END}
    assert versions.status(1)[0].error == ""


def test_version_that_goes_away_before_it_is_loaded_keeps_the_old_one(
    repository: FakeRepository,
) -> None:
    def load(path: Path) -> FakeModel:
        if path.name == "2":
            raise RepositoryError("no version 2")
        return FakeModel(path)

    versions = ModelVersions("m", repository, load)
    for found in ([1], [1, 2], [1]):
        repository.found = found
        versions.tick()
        assert served(versions) == 1


def test_failed_version_is_tried_again_after_it_went_away(
    versions: ModelVersions, repository: FakeRepository, loader: Loader
) -> None:
    loader.broken, repository.found = {1}, [1]
    versions.tick()
    loader.broken, repository.found = set(), []
    versions.tick()
    repository.found = [1]
    versions.tick()
    assert states(versions) == {1: State.AVAILABLE}


def test_failed_version_is_tried_again_when_its_files_have_changed(
    versions: ModelVersions, repository: FakeRepository, loader: Loader
) -> None:
    folder = repository.path(1)
    folder.mkdir()
    (folder / "saved_model.pb").write_text("graph")
    loader.broken, repository.found = {1}, [1]
    versions.tick()
    versions.tick()
    assert loader.tried == [1]
    (folder / "variables").write_text("weights")
    loader.broken = set()
    versions.tick()
    assert states(versions) == {1: State.AVAILABLE}
    assert loader.tried == [1, 1]


def test_deleting_the_highest_version_brings_the_one_before_back(
    versions: ModelVersions, repository: FakeRepository
) -> None:
    for found in ([1], [1, 2], [1]):
        repository.found = found
        versions.tick()
    assert served(versions) == 1
    assert states(versions) == {2: State.END, 1: State.AVAILABLE}


def test_empty_folder_unloads_and_a_missing_one_does_not(
    versions: ModelVersions, repository: FakeRepository
) -> None:
    repository.found = [1]
    versions.tick()
    there, repository.folder = repository.folder, repository.folder / "gone"
    repository.found = []
    versions.tick()
    assert served(versions) == 1
    repository.folder = there
    versions.tick()
    assert states(versions) == {1: State.END}


def test_folder_that_looks_empty_is_looked_at_again_before_all_is_unloaded(
    repository: FakeRepository, loader: Loader
) -> None:
    """Listing and looking into versions is not one moment: others swap them between."""

    class Swapped(FakeRepository):
        looks = 0

        def versions(self) -> list[int]:
            self.looks += 1
            return [] if self.looks == 2 else self.found

    swapped = Swapped(repository.folder, [1])
    versions = ModelVersions("m", swapped, loader)
    versions.tick()
    swapped.found = [2]
    versions.tick()
    assert states(versions) == {2: State.AVAILABLE, 1: State.END}
    assert loader.tried == [1, 2]


def test_unreadable_repository_changes_nothing(
    versions: ModelVersions, repository: FakeRepository
) -> None:
    repository.found = [1]
    versions.tick()
    repository.error = RepositoryError("permission denied")
    versions.tick()
    assert served(versions) == 1


def test_version_in_use_is_closed_only_after_its_last_request(
    versions: ModelVersions, repository: FakeRepository, loader: Loader
) -> None:
    repository.found = [1]
    versions.tick()
    repository.found = [1, 2]
    with versions.use() as lease:
        assert lease.version == 1
        for _ in range(3):
            versions.tick()
        assert states(versions)[1] is State.UNLOADING
        assert served(versions) == 2
        assert lease.model is loader.loaded[0]
        assert not loader.loaded[0].is_closed
    versions.tick()
    assert loader.loaded[0].is_closed


def test_request_that_fails_lets_go_of_its_version(
    versions: ModelVersions, repository: FakeRepository, loader: Loader
) -> None:
    repository.found = [1]
    versions.tick()
    with pytest.raises(KeyError), versions.use():
        raise KeyError
    repository.found = [1, 2]
    versions.tick()
    assert loader.loaded[0].is_closed


def test_version_in_use_is_still_found_by_no_new_request(
    versions: ModelVersions, repository: FakeRepository, loader: Loader
) -> None:
    repository.found = [1]
    versions.tick()
    repository.found = []
    with versions.use():
        versions.tick()
        with pytest.raises(RequestError, match=r"Latest\(m\)"), versions.use():
            pass
    versions.tick()
    assert states(versions) == {1: State.END}


@pytest.mark.parametrize(
    ("version", "text"), [(None, r"Latest\(m\)"), (7, r"Specific\(m, 7\)")]
)
def test_version_that_is_not_available_is_not_found(
    versions: ModelVersions, version: int | None, text: str
) -> None:
    with (
        pytest.raises(
            RequestError, match=f"Servable not found for request: {text}"
        ) as e,
        versions.use(version),
    ):
        pass
    assert e.value.code is Code.NOT_FOUND


def test_status_of_unknown_versions_is_not_found(
    versions: ModelVersions, repository: FakeRepository
) -> None:
    with pytest.raises(RequestError, match="Could not find any versions of model m"):
        versions.status()
    repository.found = [1]
    versions.tick()
    with pytest.raises(RequestError, match="Could not find version 7 of model m"):
        versions.status(7)


def test_close_unloads_all(
    versions: ModelVersions, repository: FakeRepository, loader: Loader
) -> None:
    repository.found = [1]
    versions.tick()
    versions.close()
    assert loader.loaded[0].is_closed
    assert states(versions) == {1: State.END}


def test_close_gives_up_on_a_request_that_does_not_end(
    versions: ModelVersions, repository: FakeRepository, loader: Loader
) -> None:
    repository.found = [1]
    versions.tick()
    with versions.use():
        versions.close(timeout_s=0.05)
        assert not loader.loaded[0].is_closed


class Clock:
    """Goes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_failed_load_is_retried_after_its_interval_and_then_given_up(
    repository: FakeRepository, loader: Loader
) -> None:
    clock = Clock()
    versions = ModelVersions(
        "m", repository, loader, retries=Retries(2, 60.0), clock=clock
    )
    loader.broken, repository.found = {1}, [1]
    versions.tick()
    assert states(versions) == {1: State.LOADING}
    assert versions.status(1)[0].error == "no variables"
    clock.now = 59.0
    versions.tick()
    assert loader.tried == [1]
    clock.now = 60.0
    versions.tick()
    clock.now = 120.0
    versions.tick()
    assert loader.tried == [1, 1, 1]
    assert states(versions) == {1: State.END}


def test_retry_that_succeeds_forgets_the_error(
    repository: FakeRepository, loader: Loader
) -> None:
    clock = Clock()
    versions = ModelVersions(
        "m", repository, loader, retries=Retries(2, 60.0), clock=clock
    )
    loader.broken, repository.found = {1}, [1]
    versions.tick()
    loader.broken, clock.now = set(), 60.0
    versions.tick()
    assert served(versions) == 1
    assert versions.status(1)[0].error == ""


def test_version_that_is_not_wanted_any_more_is_not_retried(
    repository: FakeRepository, loader: Loader
) -> None:
    clock = Clock()
    versions = ModelVersions(
        "m", repository, loader, retries=Retries(9, 60.0), clock=clock
    )
    loader.broken, repository.found = {1}, [1]
    versions.tick()
    repository.found, clock.now = [2], 60.0
    versions.tick()
    assert loader.tried == [1, 2]
    assert states(versions) == {1: State.END, 2: State.AVAILABLE}


def test_policy_can_be_changed_and_a_model_be_retired(
    versions: ModelVersions, repository: FakeRepository
) -> None:
    repository.found = [1, 2, 3]
    versions.tick()
    versions.follow(repository, Specific((1, 2)))
    versions.tick()
    assert states(versions) == {
        1: State.AVAILABLE,
        2: State.AVAILABLE,
        3: State.END,
    }
    versions.retire()
    versions.tick()
    assert set(states(versions).values()) == {State.END}
