"""One model's versions in memory: loads, serves and unloads them as the plan says."""

import logging
import threading
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from serving.errors import Code, RequestError, ServingError
from serving.server.plan import Load, State, Unload, next_action
from serving.tensors import Array

log = logging.getLogger(__name__)
Snapshot = frozenset[tuple[str, int, int]]


class Repository(Protocol):
    """Where versions come from."""

    @property
    def folder(self) -> Path:
        """The folder that holds the versions."""

    def versions(self) -> list[int]:
        """Return the complete versions."""

    def path(self, version: int) -> Path:
        """Return the folder of a version."""


class Model(Protocol):
    """A loaded version."""

    @property
    def signatures(self) -> Mapping[str, Any]:
        """SignatureDef by name."""

    def run(
        self, signature_name: str, inputs: Mapping[str, Array], wanted: Sequence[str]
    ) -> dict[str, Array]:
        """Run a signature."""

    def close(self) -> None:
        """Give the memory back."""


@dataclass
class Servable:
    """One version and what is known of it."""

    version: int
    state: State = State.START
    error: str = ""
    """Why it ended, if it failed."""
    model: Model | None = None
    in_flight: int = 0


class ModelVersions:
    """The versions of one model; `tick` moves them, `use` serves requests."""

    def __init__(
        self, name: str, repository: Repository, load: Callable[[Path], Model]
    ) -> None:
        self.name = name
        self._repository = repository
        self._load = load
        self._servables: dict[int, Servable] = {}
        self._failed: dict[int, Snapshot] = {}
        self._changed = threading.Condition()

    def tick(self) -> None:
        """Look at the repository once and do all that it asks for.

        A base path that is not there changes nothing: a mount that went away must not
        take the model with it.
        """
        if not self._repository.folder.is_dir():
            return
        try:
            found = self._repository.versions()
        except ServingError as error:
            log.warning("%s: %s", self.name, error)
            return
        self._forget_mended(found)
        while True:
            match next_action(found, self._states(), self._failed):
                case Load(version):
                    self._load_version(version)
                case Unload(version):
                    self._unload_version(version)
                case None:
                    return

    def status(self, version: int | None = None) -> list[Servable]:
        """Return all versions that were ever seen, newest first, or one.

        Raises:
            RequestError: There is none.
        """
        with self._changed:
            seen = sorted(self._servables.values(), key=lambda s: -s.version)
        if version is not None:
            seen = [servable for servable in seen if servable.version == version]
            if not seen:
                raise RequestError(
                    Code.NOT_FOUND,
                    f"Could not find version {version} of model {self.name}",
                )
        if not seen:
            raise RequestError(
                Code.NOT_FOUND, f"Could not find any versions of model {self.name}"
            )
        return seen

    @contextmanager
    def use(self, version: int | None = None) -> Iterator[tuple[int, Model]]:
        """Hold a version while a request runs: it is not unloaded meanwhile.

        Args:
            version: The version; None for the highest that is AVAILABLE.

        Raises:
            RequestError: It is not AVAILABLE.
        """
        with self._changed:
            servable = self._find(version)
            servable.in_flight += 1
        try:
            if servable.model is None:
                raise RequestError(Code.INTERNAL, f"{self.name}: no model is loaded")
            yield servable.version, servable.model
        finally:
            with self._changed:
                servable.in_flight -= 1
                self._changed.notify_all()

    def close(self) -> None:
        """Unload every version, each when its last request has finished."""
        for version, state in self._states().items():
            if state is State.AVAILABLE:
                self._unload_version(version)

    def _find(self, version: int | None) -> Servable:
        available = [
            servable
            for servable in self._servables.values()
            if servable.state is State.AVAILABLE and version in {None, servable.version}
        ]
        if not available:
            which = (
                f"Latest({self.name})"
                if version is None
                else f"Specific({self.name}, {version})"
            )
            raise RequestError(
                Code.NOT_FOUND, f"Servable not found for request: {which}"
            )
        return max(available, key=lambda servable: servable.version)

    def _forget_mended(self, found: Container[int]) -> None:
        """Try a failed version again once it went away, or its files have changed.

        A copy by hand may be met half way: its graph first, its variables later.
        """
        self._failed = {
            version: before
            for version, before in self._failed.items()
            if version in found and snapshot(self._repository, version) == before
        }

    def _states(self) -> dict[int, State]:
        with self._changed:
            return {v: servable.state for v, servable in self._servables.items()}

    def _load_version(self, version: int) -> None:
        servable = Servable(version, State.LOADING)
        with self._changed:
            self._servables[version] = servable
        log.info("%s: loading version %d", self.name, version)
        before = snapshot(self._repository, version)
        try:
            model = self._load(self._repository.path(version))
        except Exception as error:  # noqa: BLE001  TensorFlow raises what it likes
            log.warning(
                "%s: version %d cannot be loaded: %s", self.name, version, error
            )
            with self._changed:
                servable.state, servable.error = State.END, str(error)
            self._failed[version] = before
            return
        with self._changed:
            servable.model, servable.state = model, State.AVAILABLE
        log.info("%s: version %d is AVAILABLE", self.name, version)

    def _unload_version(self, version: int) -> None:
        with self._changed:
            servable = self._servables[version]
            servable.state = State.UNLOADING
            self._changed.wait_for(lambda: servable.in_flight == 0)
            model, servable.model = servable.model, None
        if model is not None:
            model.close()
        with self._changed:
            servable.state = State.END
        log.info("%s: version %d is unloaded", self.name, version)


def snapshot(repository: Repository, version: int) -> Snapshot:
    """Return the files of a version with their sizes and times of change."""
    files = set()
    try:
        for file in repository.path(version).rglob("*"):
            status = file.stat()
            files.add((str(file), status.st_size, status.st_mtime_ns))
    except (OSError, ServingError):
        return frozenset()  # it is being changed, or went away
    return frozenset(files)


def poll(
    models: Sequence[ModelVersions], interval_s: float, stop: threading.Event
) -> None:
    """Tick all models every `interval_s` seconds until `stop` is set; never for 0."""
    if interval_s <= 0:
        stop.wait()
        return
    while not stop.wait(interval_s):
        for model in models:
            try:
                model.tick()
            except Exception:
                # A disk that fails must not take the versions in memory with it.
                log.exception("%s: the model repository cannot be read", model.name)
