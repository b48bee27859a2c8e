"""The model repository: versions on disk, as TensorFlow Serving reads them.

```
{base_path}/{model}/1/saved_model.pb
                    2/saved_model.pb
                    .staging-x7f3/      a copy in progress: not a number, so not read
```
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from serving.errors import RepositoryError

SAVED_MODEL_FILE = "saved_model.pb"
STAGING_PREFIX = ".staging-"
MAX_VERSION = 2**63 - 1


class ModelRepository:
    """One model's versions under a base path."""

    def __init__(self, base_path: Path, model: str) -> None:
        self._folder = base_path / model

    @property
    def folder(self) -> Path:
        """The folder that holds the versions."""
        return self._folder

    def versions(self) -> list[int]:
        """Return the complete versions, ascending; empty where there is no folder."""
        return sorted({version for version, _ in self._complete()})

    def latest(self) -> int | None:
        """Return the highest version; None when there is none."""
        return max(self.versions(), default=None)

    def path(self, version: int) -> Path:
        """Return the folder of a version.

        Raises:
            RepositoryError: There is no such version.
        """
        for number, folder in self._complete():
            if number == version:
                return folder
        known = ", ".join(map(str, self.versions())) or "none"
        raise RepositoryError(
            f"{self._folder}: no version {version}; versions: {known}"
        )

    def publish(self, source: Path) -> int:
        """Copy a SavedModel into the repository and return its version.

        The version is the highest number in the folder plus one, never the clock: two
        pushes in one second are two versions. Readers see the whole version or none:
        it is staged beside its place, flushed to disk and renamed.

        Raises:
            RepositoryError: The source is no SavedModel, or the folder cannot be
                written; nothing is left behind.
        """
        if not (source / SAVED_MODEL_FILE).is_file():
            raise RepositoryError(
                f"{source}: no SavedModel, {SAVED_MODEL_FILE} is missing"
            )
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            staging = Path(tempfile.mkdtemp(prefix=STAGING_PREFIX, dir=self._folder))
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            _copy(source, staging)
            return self._place(staging)
        except OSError as error:
            raise self._unwritable(error) from error
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def _place(self, staging: Path) -> int:
        while True:
            version = max(self._numbers(), default=0) + 1
            if version > MAX_VERSION:
                raise RepositoryError(
                    f"{self._folder}: no number is left after version {MAX_VERSION}; "
                    "move that folder away"
                )
            try:
                # Fails on a folder that is not empty: another publisher was faster.
                staging.rename(self._folder / str(version))
            except OSError:
                if not (self._folder / str(version)).exists():
                    raise
                continue
            flush(self._folder)
            return version

    def _numbers(self) -> Iterator[int]:
        """Yield every number that is taken, by complete versions or broken ones."""
        for folder in self._entries():
            version = parse_version(folder.name)
            if version is not None:
                yield version

    def _complete(self) -> Iterator[tuple[int, Path]]:
        for folder in self._entries():
            version = parse_version(folder.name)
            if version is not None and (folder / SAVED_MODEL_FILE).is_file():
                yield version, folder

    def _entries(self) -> list[Path]:
        try:
            return sorted(self._folder.iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise RepositoryError(
                f"{self._folder} cannot be read: {error.strerror}"
            ) from error

    def _unwritable(self, error: OSError) -> RepositoryError:
        # shutil.Error lists what it could not copy, and has no strerror.
        reason = f"{error.strerror} ({error.filename})" if error.strerror else error
        return RepositoryError(f"{self._folder} cannot be written: {reason}")


def parse_version(name: str) -> int | None:
    """Return the version that a folder's name means, as TensorFlow Serving reads it.

    Digits only, leading zeros allowed, at most 2^63 - 1; None for any other name.
    """
    if not (name.isascii() and name.isdigit()):
        return None
    if len(name.lstrip("0")) > len(str(MAX_VERSION)):
        return None  # so many digits that Python would not read them
    version = int(name.lstrip("0") or "0")
    return version if version <= MAX_VERSION else None


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, dirs_exist_ok=True)
    target.chmod(0o755)  # mkdtemp's 0700 would keep a server's user out
    for folder, _, files in os.walk(target):
        for name in files:
            flush(Path(folder, name))
        flush(Path(folder))


def flush(path: Path) -> None:
    """Wait until a file, or the entries of a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
