"""The model repository: versions on disk, as TensorFlow Serving reads them.

```
{base_path}/{model}/1/saved_model.pb
                      taxiway_manifest.json
                    2/…
                    .lock           held while a number is given out or a version goes
                    .last_version   the highest number that was ever given out
                    .staging-x7f3/  a copy in progress: not a number, so not read
                    .retired-x7f3/  a version on its way out
```
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from serving import manifest as manifests
from serving.errors import RepositoryError
from serving.locks import LockTimeoutError, exclusive
from serving.manifest import MANIFEST_FILE, FileEntry, Manifest, read_manifest
from serving.saved_model import SAVED_MODEL_FILE, check_servable
from serving.signing import Signer

LOCK_FILE = ".lock"
LAST_VERSION_FILE = ".last_version"
STAGING_PREFIX = ".staging-"
RETIRED_PREFIX = ".retired-"
MAX_VERSION = 2**63 - 1
LOCK_TIMEOUT_S = 60.0
FILE_MODE, FOLDER_MODE = 0o644, 0o755


@dataclass(frozen=True)
class Origin:
    """Where a model comes from, as its manifest is to say."""

    run: str = ""
    facts: tuple[tuple[str, Any], ...] = ()
    created: str = ""
    """When; now, if it is left out."""


@dataclass(frozen=True)
class Published:
    """What became of a model that was to be published."""

    version: int
    is_new: bool
    """False where this version held the same files already."""


@dataclass(frozen=True)
class Entry:
    """What lies in a model's folder under one name."""

    name: str
    version: int | None
    """None: the name is no version."""
    problem: str = ""
    """Why it cannot be served; empty: it can."""


UNKNOWN = Origin()


class ModelRepository:
    """One model's versions under a base path."""

    def __init__(
        self,
        base_path: Path,
        model: str,
        *,
        sign: Signer | None = None,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
    ) -> None:
        """Look at a folder, which need not be there yet.

        Args:
            base_path: Folder of all models.
            model: Name of this one.
            sign: Signs the manifests of what is published; None: they are not signed.
            lock_timeout_s: How long to wait for others that change it.
        """
        self._folder, self._model = base_path / model, model
        self._sign, self._lock_timeout_s = sign, lock_timeout_s

    @property
    def folder(self) -> Path:
        """The folder that holds the versions."""
        return self._folder

    # Reading.

    def versions(self) -> list[int]:
        """Return the versions that a server would look at, ascending.

        As TensorFlow Serving: those with a graph. Whether they can be loaded is seen
        then, and `entries` tells; one that is served must not go because it changed.
        """
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

    def manifest(self, version: int) -> Manifest | None:
        """Return a version's manifest; None where it was copied here by hand.

        Raises:
            RepositoryError: There is no such version, or its manifest is damaged.
        """
        return read_manifest(self.path(version))

    def entries(self) -> list[Entry]:
        """Return all that lies here, and why what cannot be served cannot."""
        return [
            Entry(folder.name, parse_version(folder.name), _problem(folder))
            for folder in self._entries()
            if not folder.name.startswith(".")
        ]

    def verify(self, version: int) -> list[str]:
        """Return what of a version is not as it was published; every file is read.

        Raises:
            RepositoryError: There is no such version, or it cannot be read.
        """
        folder = next(
            (f for f in self._entries() if parse_version(f.name) == version), None
        )
        if folder is None:
            folder = self.path(version)  # says which there are
        manifest = read_manifest(folder)
        if manifest is None:
            return ["it has no manifest: it was not published by Taxiway"]
        found = manifests.differences(folder, manifest)
        if manifest.version != version or manifest.model != self._model:
            found.append(
                f"{MANIFEST_FILE}: it is that of version {manifest.version} of "
                f"{manifest.model}"
            )
        return found

    # Writing.

    def publish(
        self,
        source: Path,
        origin: Origin = UNKNOWN,
        complete: Callable[[Path], None] = lambda _: None,
    ) -> Published:
        """Copy a SavedModel into the repository, unless a version holds the same.

        Numbers only grow and never come from the clock. Readers see the whole version
        or none: it is staged beside its place, flushed to disk and renamed. Whoever is
        killed meanwhile leaves a folder that is no version, and the next one that
        publishes removes it.

        Args:
            source: The SavedModel.
            origin: Where it comes from.
            complete: Adds files to a copy of it, before that is looked at.

        Raises:
            RepositoryError: No server could serve the source, or the folder cannot be
                written; nothing is left behind.
        """
        signatures = check_servable(source)
        created = origin.created or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with self._staging() as staging:
            copy(source, staging)
            complete(staging)
            files = settle(staging)
            with self._locked():
                same = self._holder_of(manifests.digest_of(files))
                if same is not None:
                    return Published(same, is_new=False)
                draft = Manifest(
                    self._model,
                    0,
                    files,
                    signatures,
                    created,
                    origin.run,
                    dict(origin.facts),
                )
                return Published(self._place(staging, draft), is_new=True)

    @contextlib.contextmanager
    def _staging(self) -> Iterator[Path]:
        """Make a folder that others know to be in use for as long as we live."""
        with self._writing(), self._locked():
            self._remove_leftovers()
            staging = Path(tempfile.mkdtemp(prefix=STAGING_PREFIX, dir=self._folder))
            descriptor = os.open(staging, os.O_RDONLY)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            with self._writing():
                yield staging
        finally:
            shutil.rmtree(staging, ignore_errors=True)
            os.close(descriptor)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        lock = self._folder / LOCK_FILE
        try:
            with exclusive(lock, timeout_s=self._lock_timeout_s):
                yield
        except LockTimeoutError as error:
            raise RepositoryError(
                f"{lock}: process {error} has held it for more than "
                f"{self._lock_timeout_s:g} s; wait for it, or end it"
            ) from error

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RepositoryError(
                f"{self._folder} cannot be written: {_reason(error)}"
            ) from error

    def _holder_of(self, digest: str) -> int | None:
        """Return the newest version that holds the same files."""
        for version, folder in sorted(self._complete(), reverse=True):
            with contextlib.suppress(RepositoryError):
                manifest = read_manifest(folder)
                is_same = manifest is not None and manifest.digest == digest
                if is_same and not _problem(folder):
                    return version
        return None

    def _place(self, staging: Path, draft: Manifest) -> int:
        while True:
            version = self._next_number()
            write(self._folder / LAST_VERSION_FILE, f"{version}\n")
            text = replace(draft, version=version).to_json()
            write(staging / MANIFEST_FILE, text)
            if self._sign is not None:
                signature = self._sign(text.encode())
                write(staging / manifests.SIGNATURE_FILE, signature)
            try:
                # Fails on a folder that is not empty: somebody copied one by hand.
                staging.rename(self._folder / str(version))
            except OSError:
                if not (self._folder / str(version)).exists():
                    raise
                continue
            flush(self._folder)
            return version

    def _next_number(self) -> int:
        taken = [parse_version(folder.name) for folder in self._entries()]
        version = max([self._last_number(), *filter(None, taken)]) + 1
        if version > MAX_VERSION:
            raise RepositoryError(
                f"{self._folder}: no number is left after version {MAX_VERSION}; "
                "move that folder away"
            )
        return version

    def _last_number(self) -> int:
        file = self._folder / LAST_VERSION_FILE
        try:
            return parse_version(file.read_text().strip()) or 0
        except FileNotFoundError:
            return 0

    def retire(self, version: int, in_use: Mapping[int, str]) -> None:
        """Remove a version for good; its number is not given out again.

        Args:
            version: The version.
            in_use: Why a version must stay, by version: it is labelled, or served.

        Raises:
            RepositoryError: It must stay, it is the last, or it cannot be removed.
        """
        with self._writing(), self._locked():
            folder = self.path(version)
            if version in in_use:
                raise RepositoryError(f"version {version} stays: {in_use[version]}")
            if self.versions() == [version]:
                raise RepositoryError(
                    f"version {version} stays: it is the last of {self._model}"
                )
            gone = Path(tempfile.mkdtemp(prefix=RETIRED_PREFIX, dir=self._folder))
            folder.rename(gone / folder.name)
            flush(self._folder)
            shutil.rmtree(gone)

    def collect_garbage(self) -> list[str]:
        """Remove what killed processes left; return its names.

        Raises:
            RepositoryError: The folder cannot be written.
        """
        if not self._folder.is_dir():
            return []
        with self._writing(), self._locked():
            return self._remove_leftovers()

    def _remove_leftovers(self) -> list[str]:
        removed = []
        for folder in self._entries():
            is_ours = folder.name.startswith((STAGING_PREFIX, RETIRED_PREFIX))
            if is_ours and folder.is_dir() and not _is_held(folder):
                shutil.rmtree(folder)
                removed.append(folder.name)
        return removed

    # Entries.

    def _complete(self) -> Iterator[tuple[int, Path]]:
        for folder in self._entries():
            version = parse_version(folder.name)
            if version is not None and _has_graph(folder):
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


def _reason(error: OSError) -> str:
    if isinstance(error, shutil.Error):
        # All that could not be copied: source, target and why.
        source, _, why = error.args[0][0]
        return f"{source}: {why}"
    return f"{error.strerror} ({error.filename})" if error.filename else str(error)


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


def _has_graph(folder: Path) -> bool:
    """Tell whether a folder is worth loading; one that cannot be read fails there."""
    try:
        return (folder / SAVED_MODEL_FILE).is_file()
    except OSError:
        return True


def _problem(folder: Path) -> str:
    """Return why a folder cannot be served; empty: it can."""
    if parse_version(folder.name) is None:
        return (
            f"not a version: allowed are digits, at most {MAX_VERSION}; servers "
            "ignore it"
        )
    try:
        manifest = read_manifest(folder)
        faults = [] if manifest is None else manifests.lacks(folder, manifest)
        if not faults:
            check_servable(folder)
    except RepositoryError as error:
        return str(error)
    return "; ".join(faults)


def _is_held(folder: Path) -> bool:
    """Tell whether the process that made a folder still lives."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def copy(source: Path, target: Path) -> None:
    """Copy a version's files, without the manifest of another version.

    Links are followed.

    Raises:
        OSError: A file cannot be read or written.
    """
    shutil.copytree(source, target, dirs_exist_ok=True, copy_function=shutil.copyfile)
    for name in (MANIFEST_FILE, manifests.SIGNATURE_FILE):
        (target / name).unlink(missing_ok=True)


def settle(target: Path) -> dict[str, FileEntry]:
    """Bring a version's files to the disk, for good; return them with their digests.

    Every user may read them, whatever the source allowed.

    Raises:
        OSError: A file cannot be read or written.
    """
    files: dict[str, FileEntry] = {}
    for name in manifests.paths(target):
        file = target / name
        file.chmod(FILE_MODE)
        flush(file)
        files[name] = manifests.measure(file)
    for folder, _, _ in os.walk(target):
        Path(folder).chmod(FOLDER_MODE)
        flush(Path(folder))
    return files


def write(file: Path, text: str) -> None:
    """Write a small file whole or not at all, and to the disk."""
    fresh = file.with_name(f"{file.name}.new")
    with fresh.open("w") as content:
        content.write(text)
        content.flush()
        os.fchmod(content.fileno(), FILE_MODE)
        os.fsync(content.fileno())
    fresh.replace(file)
    flush(file.parent)


def flush(path: Path) -> None:
    """Wait until a file, or the entries of a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
