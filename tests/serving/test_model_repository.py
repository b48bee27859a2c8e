"""Publishing: whole versions or none, numbered by what is there."""

import multiprocessing
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.errors import RepositoryError
from serving.model_repository import MAX_VERSION, ModelRepository, parse_version


@pytest.fixture
def repository(tmp_path: Path) -> ModelRepository:
    return ModelRepository(tmp_path / "models", "m")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return saved_model(tmp_path / "source", "v1")


def saved_model(folder: Path, content: str) -> Path:
    (folder / "variables").mkdir(parents=True)
    (folder / "saved_model.pb").write_text(content)
    (folder / "variables" / "variables.index").write_text(content)
    return folder


def put(repository: ModelRepository, name: str) -> None:
    saved_model(repository.folder / name, name)


def names(repository: ModelRepository) -> list[str]:
    return sorted(path.name for path in repository.folder.iterdir())


def test_repository_without_a_folder_has_no_versions(
    repository: ModelRepository,
) -> None:
    assert repository.versions() == []
    assert repository.latest() is None


def test_first_version_is_1_and_the_next_2(
    repository: ModelRepository, source: Path
) -> None:
    assert [repository.publish(source), repository.publish(source)] == [1, 2]
    assert names(repository) == ["1", "2"]


def test_published_version_holds_all_files_of_its_source(
    repository: ModelRepository, source: Path
) -> None:
    folder = repository.path(repository.publish(source))
    assert (folder / "saved_model.pb").read_text() == "v1"
    assert (folder / "variables" / "variables.index").read_text() == "v1"


def test_published_version_can_be_read_by_other_users(
    repository: ModelRepository, source: Path
) -> None:
    folder = repository.path(repository.publish(source))
    assert folder.stat().st_mode & 0o055 == 0o055


def test_next_version_is_one_more_than_the_highest(
    repository: ModelRepository, source: Path
) -> None:
    put(repository, "00000123")
    assert repository.publish(source) == 124


def test_broken_version_keeps_its_number(
    repository: ModelRepository, source: Path
) -> None:
    (repository.folder / "7" / "half_copied").mkdir(parents=True)
    assert repository.publish(source) == 8
    assert repository.versions() == [8]


def test_number_taken_by_another_publisher_is_skipped(
    repository: ModelRepository, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def late(self: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "rename", rename)
        put(repository, "1")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", late)
    assert repository.publish(source) == 2
    assert names(repository) == ["1", "2"]


def test_source_without_saved_model_is_refused(
    repository: ModelRepository, tmp_path: Path
) -> None:
    with pytest.raises(RepositoryError, match=r"saved_model\.pb is missing"):
        repository.publish(tmp_path)
    assert not repository.folder.exists()


def test_failed_copy_leaves_nothing_behind(
    repository: ModelRepository, source: Path
) -> None:
    (source / "dangling").symlink_to("nowhere")
    with pytest.raises(RepositoryError):
        repository.publish(source)
    assert names(repository) == []


def test_folder_that_cannot_be_made_is_named(tmp_path: Path, source: Path) -> None:
    (tmp_path / "models").write_text("a file, not a folder")
    repository = ModelRepository(tmp_path / "models", "m")
    with pytest.raises(RepositoryError, match=f"{repository.folder} cannot be written"):
        repository.publish(source)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_folder_that_is_not_ours_is_named(
    repository: ModelRepository, source: Path
) -> None:
    repository.folder.mkdir(parents=True, mode=0o500)
    with pytest.raises(RepositoryError, match="cannot be written: Permission denied"):
        repository.publish(source)


def test_versions_are_complete_folders_with_numeric_names(
    repository: ModelRepository,
) -> None:
    for name in ("2", "00000010", "v1", "0.1", "1.tmp", "9999999999999999999", "-3"):
        put(repository, name)
    (repository.folder / "5").mkdir()
    (repository.folder / "6").write_text("a file")
    assert repository.versions() == [2, 10]
    assert repository.latest() == 10
    assert repository.path(10).name == "00000010"


def test_unknown_version_is_answered_with_the_known_ones(
    repository: ModelRepository,
) -> None:
    put(repository, "1")
    put(repository, "3")
    with pytest.raises(RepositoryError, match="no version 2; versions: 1, 3"):
        repository.path(2)


@given(st.text())
def test_only_ascii_digits_that_fit_int64_are_a_version(name: str) -> None:
    is_number = bool(name) and all(letter in "0123456789" for letter in name)
    expected = int(name) if is_number and int(name) <= MAX_VERSION else None
    assert parse_version(name) == expected


@given(st.integers(0, 2**70), st.integers(0, 12))
def test_leading_zeros_do_not_change_a_version(number: int, zeros: int) -> None:
    expected = number if number <= MAX_VERSION else None
    assert parse_version("0" * zeros + str(number)) == expected


def publish_many(base_path: Path, source: Path, times: int) -> list[int]:
    repository = ModelRepository(base_path, "m")
    return [repository.publish(source) for _ in range(times)]


@pytest.mark.integration
def test_two_processes_that_publish_at_once_share_no_version(
    tmp_path: Path, source: Path
) -> None:
    base_path, times = tmp_path / "models", 20
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        jobs = [(base_path, source, times)] * 2
        results = pool.starmap(publish_many, jobs, chunksize=1)
    assert sorted(results[0] + results[1]) == list(range(1, 2 * times + 1))
    assert names(ModelRepository(base_path, "m")) == sorted(
        map(str, range(1, 2 * times + 1))
    )
