"""Publishing cannot lie: what is there is whole, once, and as its manifest says."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from saved_models import graph, saved_model

from serving import manifest as manifests
from serving import model_repository
from serving.errors import RepositoryError
from serving.locks import exclusive
from serving.manifest import MANIFEST_FILE
from serving.model_repository import ModelRepository, Origin, Published

CRASHING = Path(__file__).with_name("crashing_publisher.py")


@pytest.fixture
def repository(tmp_path: Path) -> ModelRepository:
    return ModelRepository(tmp_path / "models", "m", lock_timeout_s=0.2)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return saved_model(tmp_path / "source", "v1")


def leftovers(repository: ModelRepository) -> list[str]:
    return [p.name for p in repository.folder.iterdir() if "-" in p.name]


# What may be published.


def test_model_without_signatures_is_refused(
    repository: ModelRepository, tmp_path: Path
) -> None:
    source = saved_model(tmp_path / "bare", "v1", signatures={})
    with pytest.raises(RepositoryError, match="has no signature.*serving_default"):
        repository.publish(source)
    assert not repository.folder.exists()


@pytest.mark.parametrize(
    ("lost", "named"),
    [
        ("variables", "variables/variables.index"),
        ("assets", "assets/words"),
        ("saved_model.pb", "saved_model.pb is missing"),
    ],
)
def test_model_that_is_not_whole_is_refused(
    repository: ModelRepository, tmp_path: Path, lost: str, named: str
) -> None:
    source = saved_model(tmp_path / "part", "v1", assets=("words",))
    (source / "assets").mkdir()
    (source / "assets" / "words").write_text("a")
    path = source / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(RepositoryError, match=named):
        repository.publish(source)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00text", b"\x08\x01"])
def test_damaged_graph_is_refused(
    repository: ModelRepository, source: Path, content: bytes
) -> None:
    (source / "saved_model.pb").write_bytes(content)
    with pytest.raises(RepositoryError, match="saved_model.pb: (damaged|no graph)"):
        repository.publish(source)


# The same model again.


def test_identical_model_is_not_published_twice(
    repository: ModelRepository, source: Path
) -> None:
    assert repository.publish(source) == Published(1, is_new=True)
    repository.publish(saved_model(source.with_name("other"), "v2"))
    assert repository.publish(source) == Published(1, is_new=False)
    assert repository.versions() == [1, 2]
    assert leftovers(repository) == []


def test_copy_of_a_published_version_is_that_version(
    repository: ModelRepository, source: Path
) -> None:
    repository.publish(source)
    assert repository.publish(repository.path(1)) == Published(1, is_new=False)


def test_identical_model_is_published_anew_where_the_old_copy_was_damaged(
    repository: ModelRepository, source: Path
) -> None:
    repository.publish(source)
    (repository.path(1) / "variables" / "variables.index").unlink()
    assert repository.publish(source) == Published(2, is_new=True)


# Numbers.


def test_number_of_a_version_that_is_gone_is_not_given_out_again(
    repository: ModelRepository, source: Path
) -> None:
    repository.publish(source)
    repository.publish(saved_model(source.with_name("b"), "v2"))
    shutil.rmtree(repository.path(2))
    assert repository.publish(saved_model(source.with_name("c"), "v3")).version == 3


def test_clock_has_no_say(
    repository: ModelRepository, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.publish(source)
    monkeypatch.setattr(model_repository.time, "time", lambda: 0.0)
    monkeypatch.setattr(model_repository.time, "gmtime", lambda: (1970,) * 9)
    monkeypatch.setattr(model_repository.time, "strftime", lambda *_: "1970")
    assert repository.publish(saved_model(source.with_name("b"), "v2")).version == 2


# The manifest.


def test_manifest_tells_files_signatures_and_origin(
    repository: ModelRepository, source: Path
) -> None:
    repository.publish(source, Origin("run-1", (("auc", 0.7),), "2026-01-01T00:00:00Z"))
    manifest = repository.manifest(1)
    assert manifest is not None
    assert (manifest.model, manifest.version, manifest.run) == ("m", 1, "run-1")
    assert manifest.facts == {"auc": 0.7}
    assert sorted(manifest.files) == ["saved_model.pb", "variables/variables.index"]
    x = manifest.signatures["serving_default"].inputs["x"]
    assert str(x) == "DT_FLOAT [-1, 2]"
    assert manifest.size == len(graph()) + 2
    assert manifests.parse(manifest.to_json()) == manifest


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda f: (f / "new").write_text("x"), "new: not in the manifest"),
        (lambda f: (f / "saved_model.pb").unlink(), "saved_model.pb: missing"),
        (
            lambda f: (f / "variables/variables.index").write_text("v10"),
            "variables/variables.index: 3 bytes, the manifest says 2",
        ),
        (
            lambda f: (f / "variables/variables.index").write_text("v9"),
            "variables/variables.index: its contents are not those of the manifest",
        ),
        (lambda f: (f / MANIFEST_FILE).unlink(), "it has no manifest"),
    ],
)
def test_version_that_was_edited_by_hand_is_told_apart(
    repository: ModelRepository, source: Path, edit: Any, said: str
) -> None:
    repository.publish(source)
    assert repository.verify(1) == []
    edit(repository.folder / "1")
    assert [text for text in repository.verify(1) if text.startswith(said)]


def test_manifest_of_another_version_is_told_apart(
    repository: ModelRepository, source: Path
) -> None:
    repository.publish(source)
    shutil.copytree(repository.path(1), repository.folder / "5")
    assert repository.verify(5) == [f"{MANIFEST_FILE}: it is that of version 1 of m"]


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", '{"format": 2}', '{"format": 1, "files": 3}']
)
def test_damaged_manifest_is_named(
    repository: ModelRepository, source: Path, text: str
) -> None:
    repository.publish(source)
    (repository.path(1) / MANIFEST_FILE).write_text(text)
    with pytest.raises(RepositoryError, match=f"{MANIFEST_FILE}: damaged"):
        repository.verify(1)
    assert "damaged" in repository.entries()[0].problem


def test_manifest_with_another_digest_is_damaged(
    repository: ModelRepository, source: Path
) -> None:
    repository.publish(source)
    file = repository.path(1) / MANIFEST_FILE
    document = json.loads(file.read_text())
    document["files"]["saved_model.pb"]["sha256"] = "0" * 64
    file.write_text(json.dumps(document))
    with pytest.raises(RepositoryError, match="its digest is not that of the files"):
        repository.manifest(1)


def test_entries_explain_what_servers_ignore(
    repository: ModelRepository, source: Path
) -> None:
    repository.publish(source)
    for name in ("v1", "0.1", "00000123", "1.tmp", "9999999999999999999"):
        shutil.copytree(source, repository.folder / name)
    shutil.rmtree(repository.folder / "00000123" / "variables")
    problems = {e.name: (e.version, e.problem) for e in repository.entries()}
    assert problems["1"] == (1, "")
    assert problems["00000123"][0] == 123
    assert "variables.index" in problems["00000123"][1]
    for name in ("v1", "0.1", "1.tmp", "9999999999999999999"):
        assert problems[name][0] is None
        assert "not a version: allowed are digits" in problems[name][1]


# Retiring.


def test_retired_version_is_gone_for_good(
    repository: ModelRepository, source: Path
) -> None:
    repository.publish(source)
    repository.publish(saved_model(source.with_name("b"), "v2"))
    repository.retire(1, {})
    assert repository.versions() == [2]
    assert leftovers(repository) == []


def test_version_in_use_and_the_last_one_stay(
    repository: ModelRepository, source: Path
) -> None:
    repository.publish(source)
    with pytest.raises(RepositoryError, match="version 1 stays: it is the last of m"):
        repository.retire(1, {})
    repository.publish(saved_model(source.with_name("b"), "v2"))
    with pytest.raises(RepositoryError, match="version 2 stays: label stable"):
        repository.retire(2, {2: "label stable"})
    with pytest.raises(RepositoryError, match="no version 3; versions: 1, 2"):
        repository.retire(3, {})
    assert repository.versions() == [1, 2]


# Others, disks and crashes.


def test_lock_of_another_is_named(repository: ModelRepository, source: Path) -> None:
    with (
        exclusive(repository.folder / model_repository.LOCK_FILE),
        pytest.raises(
            RepositoryError, match=rf"\.lock: process {os.getpid()} has held it"
        ),
    ):
        repository.publish(source)


def test_copy_that_is_in_progress_is_not_garbage(
    repository: ModelRepository, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = model_repository.copy
    seen: list[list[str]] = []

    def slow(source: Path, staging: Path) -> Any:
        seen.append(repository.collect_garbage())
        assert staging.is_dir()
        return copy(source, staging)

    monkeypatch.setattr(model_repository, "copy", slow)
    repository.publish(source)
    assert seen == [[]]
    assert repository.versions() == [1]


@pytest.mark.integration
def test_full_disk_is_said_and_leaves_nothing_behind(
    repository: ModelRepository, source: Path
) -> None:
    """A limit on the size of files is as good as a full disk."""
    (source / "variables" / "variables.data-00000-of-00001").write_bytes(b"x" * 65536)
    code = (
        "import resource, signal, sys; from pathlib import Path;"
        "from serving.model_repository import ModelRepository;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000));"
        "ModelRepository(Path(sys.argv[1]), 'm').publish(Path(sys.argv[2]))"
    )
    command = [sys.executable, "-c", code, str(repository.folder.parent), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "cannot be written: " in last
    assert "File too large" in last
    assert repository.versions() == []
    assert leftovers(repository) == []


@pytest.mark.integration
def test_killed_at_every_file_operation_the_repository_is_at_old_or_new(
    tmp_path: Path,
) -> None:
    old, new = (saved_model(tmp_path / name, name) for name in ("old", "new"))
    outcomes = set()
    for operation in range(1, 200):
        repository = ModelRepository(tmp_path / f"models-{operation}", "m")
        repository.publish(old)
        command = [sys.executable, str(CRASHING), str(operation)]
        command += [str(repository.folder.parent), str(new)]
        done = subprocess.run(command, check=False)
        versions = repository.versions()
        assert versions in ([1], [1, 2])
        outcomes.add(len(versions))
        assert all(repository.verify(version) == [] for version in versions)
        published = repository.publish(new)
        assert published.is_new == (versions == [1])
        assert published.version == repository.latest()
        assert leftovers(repository) == []
        if done.returncode == 0:
            break
    else:
        pytest.fail("it never came to its end")
    assert outcomes == {1, 2}
    assert operation > 20
