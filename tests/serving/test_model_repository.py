"""Publishing: whole versions or none, numbered by what is there."""

import multiprocessing
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from saved_models import graph, saved_model

from serving.errors import RepositoryError
from serving.model_repository import (
    LAST_VERSION_FILE,
    LOCK_FILE,
    MAX_VERSION,
    STAGING_PREFIX,
    ModelRepository,
    parse_version,
)


@pytest.fixture
def repository(tmp_path: Path) -> ModelRepository:
    return ModelRepository(tmp_path / "models", "m")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return saved_model(tmp_path / "source", "v1")


def change(source: Path, content: str) -> Path:
    (source / "variables" / "variables.index").write_text(content)
    return source


def publish(repository: ModelRepository, source: Path) -> int:
    """Publish what no version holds yet."""
    published = repository.publish(source)
    assert published.is_new
    return published.version


def put(repository: ModelRepository, name: str) -> None:
    saved_model(repository.folder / name, name)


def names(repository: ModelRepository) -> list[str]:
    """Names of all but what the repository needs for itself."""
    own = {LOCK_FILE, LAST_VERSION_FILE}
    return sorted({path.name for path in repository.folder.iterdir()} - own)


def test_repository_without_a_folder_has_no_versions(
    repository: ModelRepository,
) -> None:
    assert repository.versions() == []
    assert repository.latest() is None


def test_first_version_is_1_and_the_next_2(
    repository: ModelRepository, source: Path
) -> None:
    assert publish(repository, source) == 1
    assert publish(repository, change(source, "v2")) == 2
    assert names(repository) == ["1", "2"]


def test_published_version_holds_all_files_of_its_source(
    repository: ModelRepository, source: Path
) -> None:
    folder = repository.path(publish(repository, source))
    assert (folder / "saved_model.pb").read_bytes() == graph()
    assert (folder / "variables" / "variables.index").read_text() == "v1"


def test_published_version_can_be_read_by_other_users(
    repository: ModelRepository, source: Path
) -> None:
    (source / "saved_model.pb").chmod(0o600)
    folder = repository.path(publish(repository, source))
    assert folder.stat().st_mode & 0o055 == 0o055
    assert (folder / "saved_model.pb").stat().st_mode & 0o044 == 0o044


def test_next_version_is_one_more_than_the_highest(
    repository: ModelRepository, source: Path
) -> None:
    put(repository, "00000123")
    assert publish(repository, source) == 124


def test_broken_version_keeps_its_number(
    repository: ModelRepository, source: Path
) -> None:
    (repository.folder / "7" / "half_copied").mkdir(parents=True)
    assert publish(repository, source) == 8
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
    assert publish(repository, source) == 2
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
    assert publish(repository, saved_model(source.with_name("whole"), "v1")) == 1


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
    return [
        publish(repository, change(source, f"{source.name} {number}"))
        for number in range(times)
    ]


@pytest.mark.integration
def test_two_processes_that_publish_at_once_share_no_version(
    tmp_path: Path,
) -> None:
    base_path, times = tmp_path / "models", 20
    sources = [saved_model(tmp_path / name, name) for name in ("one", "two")]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        jobs = [(base_path, source, times) for source in sources]
        results = pool.starmap(publish_many, jobs, chunksize=1)
    assert sorted(results[0] + results[1]) == list(range(1, 2 * times + 1))
    assert names(ModelRepository(base_path, "m")) == sorted(
        map(str, range(1, 2 * times + 1))
    )


def test_number_with_thousands_of_digits_is_no_version() -> None:
    """Python reads no integer of more than 4300 digits, but zeros do not count."""
    assert parse_version("1" * 5000) is None
    assert parse_version("0" * 5000 + "7") == 7
    assert parse_version("0" * 5000) == 0


def test_names_that_are_no_version_do_not_move_the_next_number(
    repository: ModelRepository, source: Path
) -> None:
    for name in ("9" * 19, "9" * 200, "v8", "8.tmp", ".staging-9", "٩", "²"):
        put(repository, name)
    put(repository, "0004")
    assert publish(repository, source) == 5


def test_gap_in_the_numbers_is_not_filled(
    repository: ModelRepository, source: Path
) -> None:
    for name in ("1", "2", "9"):
        put(repository, name)
    assert publish(repository, source) == 10


def test_file_with_a_numeric_name_keeps_its_number(
    repository: ModelRepository, source: Path
) -> None:
    repository.folder.mkdir(parents=True)
    (repository.folder / "3").write_text("a file, not a folder")
    assert publish(repository, source) == 4
    assert repository.versions() == [4]


def test_no_version_is_published_where_no_number_is_left(
    repository: ModelRepository, source: Path
) -> None:
    put(repository, str(MAX_VERSION))
    with pytest.raises(RepositoryError, match=f"no number is left.*{MAX_VERSION}"):
        repository.publish(source)
    assert names(repository) == [str(MAX_VERSION)]


def test_version_that_stands_twice_is_listed_once(repository: ModelRepository) -> None:
    for name in ("7", "007", "8"):
        put(repository, name)
    assert repository.versions() == [7, 8]


def test_time_of_a_folder_does_not_order_versions(
    repository: ModelRepository, source: Path
) -> None:
    """A clock that was set back must not make a push older than the one before."""
    for version, modified_s in ((1, 3_000_000_000), (2, 0)):
        assert publish(repository, change(source, str(version))) == version
        os.utime(repository.path(version), (modified_s, modified_s))
    assert publish(repository, change(source, "v3")) == 3
    assert repository.latest() == 3


def test_failed_rename_leaves_nothing_behind_and_is_one_sentence(
    repository: ModelRepository, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device", str(self))

    monkeypatch.setattr(Path, "rename", no_space)
    with pytest.raises(RepositoryError, match="written: No space left") as caught:
        repository.publish(source)
    assert "\n" not in str(caught.value)
    assert names(repository) == []


def test_file_in_place_of_the_model_folder_is_named(
    repository: ModelRepository, source: Path
) -> None:
    repository.folder.parent.mkdir()
    repository.folder.write_text("a file, not a folder")
    with pytest.raises(RepositoryError, match=f"{repository.folder} cannot be read"):
        repository.versions()
    with pytest.raises(RepositoryError, match=f"{repository.folder} cannot be written"):
        repository.publish(source)


@given(st.lists(st.from_regex(r"[0-9v.]{1,6}", fullmatch=True), unique=True))
def test_published_version_is_higher_than_any_that_was_there(
    folders: list[str],
) -> None:
    with tempfile.TemporaryDirectory() as base:
        repository = ModelRepository(Path(base), "m")
        repository.folder.mkdir()
        for name in set(folders) - {".", ".."}:
            put(repository, name)
        before = repository.versions()
        source = saved_model(Path(base, "source"), "new")
        version = publish(repository, source)
        assert version == max(before, default=0) + 1
        assert repository.versions() == [*before, version]
        assert not any(name.startswith(STAGING_PREFIX) for name in names(repository))


def test_version_that_cannot_be_looked_at_hides_no_other(
    repository: ModelRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails when it is loaded, where that can be told."""
    put(repository, "1")
    put(repository, "2")
    is_file = Path.is_file

    def refuse(self: Path) -> bool:
        if self.parent.name == "2":
            raise PermissionError(13, "Permission denied", str(self))
        return is_file(self)

    monkeypatch.setattr(Path, "is_file", refuse)
    assert repository.versions() == [1, 2]
