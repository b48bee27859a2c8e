"""Which versions of a model serve and which is `stable`: safe moves from one to another.

TensorFlow Serving gives a label only to a version that is AVAILABLE, and serves what its
ModelServerConfig lists. So a move is: list the new versions beside the old, wait until
they are AVAILABLE, move the labels, leave out what is no longer needed. Each step is one
config; where a move stands is read from the config that holds, so that one which was cut
off goes on where it was.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from serving.client.protocol import VersionStatus
from serving.errors import ClientError, RoutingError, ServingError
from serving.locks import LockTimeoutError, exclusive
from serving.model_repository import ModelRepository, write
from serving.model_server_config import (
    All,
    Latest,
    ModelConfig,
    Policy,
    Specific,
    dropped,
    read_models,
    to_text,
)
from serving.signing import Signer

CONFIG_FILE = "models.config"
LOCK_FILE = ".routes.lock"
HISTORY_FILE = ".stable_history"
STABLE, CANARY = "stable", "canary"
AVAILABLE, END = "AVAILABLE", "END"
LOCK_TIMEOUT_S = 60.0
POLL_S = 0.05
RESTORE_TIMEOUT_S = 10.0


class Server(Protocol):
    """A model server that serves the config."""

    def reload(self, models: Sequence[ModelConfig], timeout_s: float) -> None:
        """Serve these models and no others; return when that is so."""

    def status(self, timeout_s: float) -> Sequence[VersionStatus]:
        """Return all versions of the model."""


@dataclass(frozen=True)
class Goal:
    """Where a move is to end."""

    versions: frozenset[int]
    """That serve; all labelled ones are among them."""
    labels: Mapping[str, int]


def next_config(
    now: ModelConfig,
    goal: Goal,
    serving: Collection[int],
    available: Collection[int],
) -> ModelConfig | None:
    """Return the next step of a move; None: there is none, yet or any more.

    Args:
        now: The config that holds.
        goal: Where to go.
        serving: Versions that it lists.
        available: Versions that all servers have ready.
    """
    listed = frozenset(serving)
    if not goal.versions <= listed:
        return _listing(now, listed | goal.versions)
    if dict(now.labels) != dict(goal.labels):
        if not goal.versions <= frozenset(available):
            return None
        return replace(now, labels=dict(goal.labels))
    if listed != goal.versions or not isinstance(now.policy, Specific):
        return _listing(now, goal.versions)
    return None


def _listing(config: ModelConfig, versions: Collection[int]) -> ModelConfig:
    return replace(config, policy=Specific(tuple(sorted(versions))))


def listed(policy: Policy, found: Collection[int]) -> list[int]:
    """Return the versions that a policy chooses of those in the repository."""
    match policy:
        case All():
            return sorted(found)
        case Specific(versions):
            return sorted(versions)
        case Latest(num_versions):
            return sorted(found)[-num_versions:]


class Routes:
    """The config file of a model repository, and the servers that follow it."""

    def __init__(
        self,
        base_path: Path,
        model: str,
        servers: Mapping[str, Server],
        sign: Signer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin where the config file says.

        Args:
            base_path: Folder of all models.
            model: Whose routes.
            servers: By address; what they refuse or do not load stops a move.
            sign: Signs what is published.
            clock: Seconds.
        """
        self._base_path, self._model, self.servers = base_path, model, servers
        self._clock = clock
        self.file = base_path / CONFIG_FILE
        self.repository = ModelRepository(base_path, model, sign=sign)

    @property
    def addresses(self) -> list[str]:
        """Of the servers."""
        return sorted(self.servers)

    # What holds.

    def models(self) -> list[ModelConfig]:
        """Return all models of the config file; none where there is no file.

        Raises:
            ServerError: It cannot be read.
        """
        return read_models(self.file) if self.file.exists() else []

    def current(self) -> ModelConfig:
        """Return the model's config; without one, what a server serves by itself.

        The versions lie where this repository is, whatever the file says: it may have
        been moved with its project.
        """
        folder = self._base_path.absolute() / self._model
        for config in self.models():
            if config.name == self._model:
                return replace(config, base_path=folder)
        return ModelConfig(self._model, folder)

    def serving(self) -> list[int]:
        """Return the versions that the config lists."""
        return listed(self.current().policy, self.repository.versions())

    def stable(self) -> int | None:
        """Return what `stable` means; None: nothing yet."""
        return self.current().labels.get(STABLE)

    def previous(self) -> int | None:
        """Return what was stable before, if that is still in the repository."""
        stable = self.stable()
        known = set(self.repository.versions())
        for entry in reversed(self._history()):
            if entry["stable"] == stable and entry["before"] in known:
                return int(entry["before"])
        return None

    def in_use(self) -> dict[int, str]:
        """Return why versions must stay, by version.

        Raises:
            ClientError: A server cannot be asked.
        """
        reasons = dict.fromkeys(self.serving(), "it is served")
        for address, server in self.servers.items():
            for entry in server.status(10.0):
                if entry.state not in {END, "START"}:
                    reasons[entry.version] = f"{address} serves it"
        for label, version in self.current().labels.items():
            reasons[version] = f"the label {label} is on it"
        return reasons

    # Moves.

    def pin(self) -> None:
        """Make the newest version that can be served stable, where none is yet."""
        if self._is_pinned():
            return  # nothing is to be written, nor may it be where a mount is read-only
        with self._locked():
            if self.stable() is not None:
                self._apply(self.current(), RESTORE_TIMEOUT_S)
            elif good := self._servable():
                self._take(max(good), RESTORE_TIMEOUT_S)

    def _is_pinned(self) -> bool:
        if self.stable() is None:
            return not self._servable()
        return self.current() in self.models()

    def _servable(self) -> list[int]:
        entries = self.repository.entries()
        return [e.version for e in entries if e.version is not None and not e.problem]

    def take(self, version: int, timeout_s: float) -> None:
        """Serve a version beside the others; the first one becomes stable.

        Requests that ask for no version are answered as before.

        Raises:
            RoutingError: A server did not take it; what held before holds.
        """
        with self._locked():
            self._take(version, timeout_s)

    def _take(self, version: int, timeout_s: float) -> None:
        stable = self.stable()
        if stable is None:
            self._move(Goal(frozenset({version}), {STABLE: version}), timeout_s)
            return
        labels = dict(self.current().labels)
        previous = self.previous()
        kept = {version, *labels.values()} | {version if previous is None else previous}
        self._move(Goal(frozenset(kept), labels), timeout_s)

    def promote(self, version: int, timeout_s: float, why: str = "promote") -> None:
        """Make a version stable; the one before stays loaded, to go back to.

        Raises:
            RoutingError: A server did not take it; what held before holds.
            RepositoryError: There is no such version.
        """
        self.repository.path(version)
        with self._locked():
            before = self.stable()
            if before is not None and before != version:
                self._remember(version, before, why)
            labels = {k: v for k, v in self.current().labels.items() if k != CANARY}
            labels[STABLE] = version
            kept = {version, *labels.values()} | (
                {version if before is None else before}
            )
            self._move(Goal(frozenset(kept), labels), timeout_s)

    def _move(self, goal: Goal, timeout_s: float) -> None:
        """Take all steps of a move; the lock is held since the goal was made."""
        before = self.models()
        try:
            self._take_steps(goal, timeout_s)
        except ServingError:
            self._restore(before)
            raise

    def replace(
        self, models: Sequence[ModelConfig], timeout_s: float, *, prune: bool
    ) -> None:
        """Serve these models and no others.

        Args:
            models: All that is to be served.
            timeout_s: How long the servers may take.
            prune: Whether models may go that are served now.

        Raises:
            RoutingError: A model would go, or a server refused it; what held holds.
        """
        with self._locked():
            before = self.models()
            gone = dropped(before, models)
            if gone and not prune:
                raise RoutingError(
                    f"{self.file}: the new config leaves out {', '.join(gone)}, which "
                    "would no longer be served; --prune lets it"
                )
            try:
                self._tell(models, timeout_s)
            except ServingError:
                self._restore(before)
                raise

    def _take_steps(self, goal: Goal, timeout_s: float) -> None:
        deadline = self._clock() + timeout_s
        pause = threading.Event()
        if models := self.models():
            self._remind(models)
        while True:
            now, serving = self.current(), self.serving()
            step = next_config(now, goal, serving, self._available(goal))
            if step is not None:
                self._apply(step, max(0.001, deadline - self._clock()))
            elif dict(now.labels) == dict(goal.labels):
                return
            elif self._clock() >= deadline:
                raise RoutingError(
                    f"versions {sorted(goal.versions)} of {self._model} are not "
                    f"AVAILABLE after {timeout_s:g} s; the routing is as it was"
                )
            else:
                pause.wait(POLL_S)

    def _available(self, goal: Goal) -> frozenset[int]:
        """Return what every server has ready; all of it where there is no server."""
        ready = goal.versions
        for address, server in self.servers.items():
            entries = {entry.version: entry for entry in server.status(10.0)}
            for version in goal.versions & entries.keys():
                entry = entries[version]
                if entry.state == END and entry.error:
                    raise RoutingError(
                        f"{address} could not load version {version} of "
                        f"{self._model}: {entry.error}; the routing is as it was"
                    )
            ready &= {v for v, entry in entries.items() if entry.state == AVAILABLE}
        return ready

    def _apply(self, config: ModelConfig, timeout_s: float) -> None:
        """Keep a config, and give it to all servers.

        In this order: a server that reads the file by itself must not go back.
        """
        others = [c for c in self.models() if c.name != config.name]
        self._tell(sorted([*others, config], key=lambda c: c.name), timeout_s)

    def _tell(self, models: Sequence[ModelConfig], timeout_s: float) -> None:
        write(self.file, to_text(models))
        for address, server in self.servers.items():
            try:
                server.reload(models, timeout_s)
            except ClientError as error:
                raise RoutingError(
                    f"{address} refused the config: {error}; the routing is as it was"
                ) from error

    def _restore(self, models: Sequence[ModelConfig]) -> None:
        """Take back what a move that failed has done so far."""
        if models == self.models() and not self.servers:
            return
        if models:
            write(self.file, to_text(models))
        else:
            self.file.unlink(missing_ok=True)
        for server in self.servers.values():
            # One that cannot be reached reads the file when it is back.
            with suppress(ClientError):
                server.reload(models or [self.current()], RESTORE_TIMEOUT_S)

    def _remind(self, models: Sequence[ModelConfig]) -> None:
        """Tell servers what the file says: a move may have been cut off before that."""
        for server in self.servers.values():
            with suppress(ClientError):
                server.reload(models, RESTORE_TIMEOUT_S)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = self._base_path / LOCK_FILE
        try:
            with exclusive(lock, timeout_s=LOCK_TIMEOUT_S):
                yield
        except LockTimeoutError as error:
            raise RoutingError(
                f"{lock}: process {error} has been moving labels for more than "
                f"{LOCK_TIMEOUT_S:g} s; wait for it, or end it"
            ) from error
        except OSError as error:
            raise RoutingError(
                f"{error.filename or self._base_path} cannot be written: "
                f"{error.strerror}"
            ) from error

    # History.

    def _history(self) -> list[dict[str, int]]:
        file = self.repository.folder / HISTORY_FILE
        entries = []
        for line in file.read_text().splitlines() if file.exists() else ():
            try:
                entry = json.loads(line)
                entries.append(
                    {"stable": int(entry["stable"]), "before": int(entry["before"])}
                )
            except (ValueError, KeyError, TypeError):
                continue  # cut off in the middle
        return entries

    def _remember(self, version: int, before: int, why: str) -> None:
        """Note a move before it is made: what did not happen matches no stable."""
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        entry = {"stable": version, "before": before, "at": at, "why": why}
        with (self.repository.folder / HISTORY_FILE).open("a") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())
