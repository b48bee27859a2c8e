"""One model's versions in memory: loads, serves and unloads them as the plan says."""

import logging
import threading
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from serving.errors import Code, RequestError, ServingError
from serving.model_server_config import Latest, Policy
from serving.server.logs import event
from serving.server.plan import Load, State, Unload, aspired, next_action
from serving.tensors import Array

log = logging.getLogger(__name__)
Snapshot = frozenset[tuple[str, int, int]]
Start = Callable[[Callable[[], None]], object]


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
        self,
        signature_name: str,
        inputs: Mapping[str, Array],
        wanted: Sequence[str],
        deadline: float | None = None,
    ) -> dict[str, Array]:
        """Run a signature."""

    def close(self) -> None:
        """Give the memory back."""


@dataclass(frozen=True)
class Retries:
    """How often a load that failed is tried again, and how long after."""

    max_num: int = 0
    interval_s: float = 60.0


LATEST = Latest()
NO_RETRIES = Retries()


@dataclass(slots=True)
class Servable:
    """One version and what is known of it."""

    version: int
    state: State = State.START
    error: str = ""
    """Why it ended, if it failed."""
    code: Code = Code.OK
    """The status that goes with the error."""
    model: Model | None = None
    in_flight: int = 0
    num_failures: int = 0
    retry_at: float | None = None
    """When a load that failed is tried again, by the clock."""


class Lease:
    """Holds a version while a request runs: it is not unloaded meanwhile."""

    __slots__ = ("_servable", "_versions", "model", "version")

    def __init__(self, versions: "ModelVersions", servable: Servable) -> None:
        self._versions, self._servable = versions, servable
        if servable.model is None:
            raise RequestError(Code.INTERNAL, f"{versions.name}: no model is loaded")
        self.version: int = servable.version
        self.model: Model = servable.model

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._versions.release(self._servable)


class ModelVersions:
    """The versions of one model; `tick` moves them, `use` serves requests."""

    def __init__(  # noqa: PLR0913  what a model is, and what it is moved by
        self,
        name: str,
        repository: Repository,
        load: Callable[[Path], Model],
        *,
        policy: Policy = LATEST,
        retries: Retries = NO_RETRIES,
        start: Start = lambda load: load(),
        clock: Callable[[], float] = time.monotonic,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin without any version.

        Args:
            name: Of the model.
            repository: Where its versions come from.
            load: Loads a version; may raise what it likes.
            policy: Which versions to serve; None of them once it is retired.
            retries: What becomes of a load that failed.
            start: Runs a load, now or on another thread.
            clock: Seconds.
            wake: Called when `tick` has something to do before its time.
        """
        self.name = name
        self._repository = repository
        self._load = load
        self._policy: Policy | None = policy
        self._retries = retries
        self._start, self._clock, self._wake = start, clock, wake
        self._servables: dict[int, Servable] = {}
        self._failed: dict[int, Snapshot] = {}
        self._latest: Servable | None = None
        self._lock = threading.Lock()
        self._moving = threading.Lock()

    def follow(self, repository: Repository, policy: Policy) -> None:
        """Take another folder or policy from the next tick on."""
        with self._moving:
            self._repository, self._policy = repository, policy

    def retire(self) -> None:
        """Serve no version from the next tick on."""
        with self._moving:
            self._policy = None

    def tick(self) -> None:
        """Look at the repository once and do all that it asks for.

        A base path that is not there changes nothing: a mount that went away must not
        take the model with it.
        """
        with self._moving:
            wanted = self._wanted()
            self._finish_unloads()
            if wanted is None:
                return
            self._retry_or_give_up(wanted)
            while True:
                match next_action(wanted, self.states(), self._failed):
                    case Load(version):
                        self._begin(version)
                    case Unload(version):
                        self._move(version, State.UNLOADING)
                        self._finish_unloads()
                    case None:
                        return

    def _wanted(self) -> list[int] | None:
        """Return the versions to serve; None where that cannot be known now."""
        if self._policy is None:
            return []
        if not self._repository.folder.is_dir():
            return None
        try:
            found = self._repository.versions()
            if not found and self.is_serving():
                # Look again before all is unloaded: a new version may have been
                # published, and the old one deleted, in the midst of the first look.
                found = self._repository.versions()
        except ServingError as error:
            event(
                log,
                "repository_unreadable",
                logging.WARNING,
                model=self.name,
                error=error,
            )
            return None
        self._forget_mended(found)
        return aspired(found, self._policy)

    def is_settled(self) -> bool:
        """Tell whether a tick would have nothing left to wait for."""
        moving = {State.LOADING, State.UNLOADING}
        return not moving & set(self.states().values())

    def is_pending(self) -> bool:
        """Tell whether a load goes on, or something is still to be done."""
        with self._moving:
            wanted, states = self._wanted(), self.states()
            if State.LOADING in states.values():
                return True
            if wanted is None:
                return False
            return next_action(wanted, states, self._failed) is not None

    def is_busy(self) -> bool:
        """Tell whether a load goes on or is to begin.

        One that failed and waits to be tried again does not count.
        """
        with self._lock:
            waiting = {v for v, s in self._servables.items() if s.retry_at is not None}
            loading = {
                v for v, s in self._servables.items() if s.state is State.LOADING
            }
        return bool(loading - waiting) or (not loading and self.is_pending())

    def is_serving(self) -> bool:
        """Tell whether any version is AVAILABLE."""
        return self._latest is not None

    def has_failed(self) -> bool:
        """Tell whether no version serves, and each that should has failed."""
        # In this order: what is not pending any more may just have come to serve.
        return not self.is_pending() and not self.is_serving() and bool(self._failed)

    def status(self, version: int | None = None) -> list[Servable]:
        """Return all versions that were ever seen, newest first, or one.

        Raises:
            RequestError: There is none.
        """
        with self._lock:
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

    def use(self, version: int | None = None) -> Lease:
        """Hold a version while a request runs.

        Args:
            version: The version; None for the highest that is AVAILABLE.

        Raises:
            RequestError: It is not AVAILABLE.
        """
        with self._lock:
            servable = self._latest if version is None else self._servables.get(version)
            if servable is None or servable.state is not State.AVAILABLE:
                which = (
                    f"({self.name}" if version is None else f"({self.name}, {version}"
                )
                kind = "Latest" if version is None else "Specific"
                raise RequestError(
                    Code.NOT_FOUND, f"Servable not found for request: {kind}{which})"
                )
            servable.in_flight += 1
        return Lease(self, servable)

    def release(self, servable: Servable) -> None:
        """Take back what `use` gave."""
        with self._lock:
            servable.in_flight -= 1
            is_last = not servable.in_flight and servable.state is State.UNLOADING
        if is_last:
            self._wake()

    def close(self, timeout_s: float = 10.0) -> None:
        """Unload every version, each when its last request has finished.

        Args:
            timeout_s: How long to wait for requests; a version that is still used
                after it stays in memory.
        """
        self.retire()
        pause = threading.Event()
        deadline = self._clock() + timeout_s
        self.tick()
        while not self.is_settled() and self._clock() < deadline:
            pause.wait(0.01)
            self.tick()

    def servables(self) -> list[Servable]:
        """Return every version that was ever seen."""
        with self._lock:
            return list(self._servables.values())

    def states(self) -> dict[int, State]:
        """Return the state of every version that was ever seen."""
        with self._lock:
            return {v: servable.state for v, servable in self._servables.items()}

    def _forget_mended(self, found: Container[int]) -> None:
        """Try a failed version again once it went away, or its files have changed.

        A copy by hand may be met half way: its graph first, its variables later.
        """
        for version, before in list(self._failed.items()):
            if version not in found or snapshot(self._repository, version) != before:
                del self._failed[version]

    def _retry_or_give_up(self, wanted: Container[int]) -> None:
        for servable in list(self._servables.values()):
            if servable.retry_at is None:
                continue
            if servable.version not in wanted:
                servable.retry_at = None
                self._move(servable.version, State.END)
            elif self._clock() >= servable.retry_at:
                servable.retry_at = None
                self._start(lambda servable=servable: self._load_version(servable))  # type: ignore[misc]

    def _begin(self, version: int) -> None:
        servable = Servable(version, State.LOADING)
        with self._lock:
            self._servables[version] = servable
        self._start(lambda: self._load_version(servable))

    def _load_version(self, servable: Servable) -> None:
        version = servable.version
        event(log, "version_loading", model=self.name, version=version)
        started = self._clock()
        before = snapshot(self._repository, version)
        try:
            model = self._load(self._repository.path(version))
        except Exception as error:  # noqa: BLE001  TensorFlow raises what it likes
            self._note_failure(servable, error, before)
        else:
            with self._lock:
                servable.model, servable.error, servable.code = model, "", Code.OK
            self._move(version, State.AVAILABLE)
            seconds = self._clock() - started
            event(
                log,
                "version_available",
                model=self.name,
                version=version,
                seconds=seconds,
            )
        self._wake()

    def _note_failure(
        self, servable: Servable, error: Exception, before: Snapshot
    ) -> None:
        code = error.code if isinstance(error, RequestError) else Code.UNKNOWN
        with self._lock:
            servable.num_failures += 1
            servable.error = str(error) or type(error).__name__
            servable.code = code
        is_last = servable.num_failures > self._retries.max_num
        again = {} if is_last else {"again_in_s": self._retries.interval_s}
        event(
            log,
            "version_failed",
            logging.WARNING,
            model=self.name,
            version=servable.version,
            code=code.name,
            error=error,
            **again,
        )
        if is_last:
            self._failed[servable.version] = before
            self._move(servable.version, State.END)
        else:
            servable.retry_at = self._clock() + self._retries.interval_s

    def _finish_unloads(self) -> None:
        with self._lock:
            idle = [
                servable
                for servable in self._servables.values()
                if servable.state is State.UNLOADING and not servable.in_flight
            ]
        for servable in idle:
            model, servable.model = servable.model, None
            if model is not None:
                model.close()
            self._move(servable.version, State.END)
            event(log, "version_unloaded", model=self.name, version=servable.version)

    def _move(self, version: int, state: State) -> None:
        with self._lock:
            self._servables[version].state = state
            self._latest = max(
                (s for s in self._servables.values() if s.state is State.AVAILABLE),
                key=lambda servable: servable.version,
                default=None,
            )


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
