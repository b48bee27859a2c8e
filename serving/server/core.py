"""All models of a server: configured, polled, found by name, version and label."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from serving.errors import Code, RequestError, invalid_argument
from serving.model_repository import ModelRepository
from serving.model_server_config import ModelConfig
from serving.server.plan import State
from serving.server.versions import Lease, Model, ModelVersions, Retries, Servable

log = logging.getLogger(__name__)
IDLE_S = 3600.0


@dataclass(frozen=True)
class CoreOptions:
    """How models are loaded and looked after."""

    poll_interval_s: float = 1.0
    """How often the file system is looked at; 0: once, negative: never."""
    retries: Retries = field(default_factory=Retries)
    num_load_threads: int = 1
    """Loads that may go on at once, of different models."""
    allow_labels_for_unavailable: bool = False
    """Let a new label name a version that is not AVAILABLE."""
    default_label: str = ""
    """What a request without version and label means, where a model has that label;
    else, and by default, the highest version, as in the original."""


class ServerCore:
    """Holds every model; requests find theirs by a ModelSpec."""

    def __init__(
        self,
        load: Callable[[str, Path], Model],
        options: CoreOptions = CoreOptions(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin without a model.

        Args:
            load: Loads a version of a model, by the model's name.
            options: How models are looked after.
            clock: Seconds.
        """
        self._load, self._options, self._clock = load, options, clock
        self._models: dict[str, ModelVersions] = {}
        self._configs: dict[str, ModelConfig] = {}
        self._labels: dict[str, dict[str, int]] = {}
        self._retired: list[ModelVersions] = []
        self._reloading = threading.Lock()
        self._generation = 0
        self._changed = threading.Condition()
        self._stopped = self._is_ending = False
        self._is_due = False
        self._loads = ThreadPoolExecutor(max(1, options.num_load_threads), "load")
        self._poller = threading.Thread(target=self._poll, name="poll", daemon=True)
        self._poller.start()

    def configs(self) -> Mapping[str, ModelConfig]:
        """Return what is configured, by model."""
        return self._configs

    def is_in_force(self, configs: Sequence[ModelConfig]) -> bool:
        """Tell whether these models are configured, and all their labels given."""
        return list(self._configs.values()) == list(configs) and all(
            self._labels.get(config.name, {}) == dict(config.labels)
            for config in configs
        )

    def reload(
        self,
        configs: Sequence[ModelConfig],
        timeout_s: float | None,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        """Serve these models and no others; return when they are served.

        One that comes while another waits replaces it: the newest config holds.

        Args:
            configs: The models.
            timeout_s: How long to wait for their versions; None: without end.
            is_cancelled: Tells whether nobody waits for it any more.

        Raises:
            RequestError: A label names a version that is not AVAILABLE (routing is then
                as before), a model did not become available, not in time, or before
                another config replaced this one.
        """
        with self._reloading:
            self._check_labels_can_be(configs)
            self._apply(configs)
            generation = self._generation

        def check() -> None:
            is_newest = generation == self._generation
            if not is_newest and list(self._configs.values()) != list(configs):
                raise RequestError(
                    Code.ABORTED,
                    "A newer config replaced this one before all of it was served",
                )
            if is_cancelled():
                raise RequestError(Code.CANCELLED, "Nobody waits for the models")

        self._wait_until_served(configs, timeout_s, check)
        with self._reloading:
            check()
            self._assign_labels(configs)

    def begin(self, configs: Sequence[ModelConfig]) -> None:
        """Serve these models as far as that goes; return when no load goes on.

        A load that failed and will be tried again is not waited for.

        Raises:
            RequestError: A label names a version that is not AVAILABLE.
        """
        with self._reloading:
            self._apply(configs)
        pause = threading.Event()
        while any(self._models[config.name].is_busy() for config in configs):
            if self._is_ending:
                return
            pause.wait(0.01)
        with self._reloading:
            self._assign_labels(configs)

    def _apply(self, configs: Sequence[ModelConfig]) -> None:
        wanted = {config.name: config for config in configs}
        models = dict(self._models)
        for name in models.keys() - wanted.keys():
            models[name].retire()
            self._retired.append(models.pop(name))
        for config in configs:
            repository = ModelRepository(config.base_path.parent, config.base_path.name)
            if config.name in models:
                models[config.name].follow(repository, config.policy)
            else:
                models[config.name] = self._new(config, repository)
        self._models, self._configs = models, wanted
        self._generation += 1
        self._labels = {n: v for n, v in self._labels.items() if n in wanted}
        self.wake()

    def _new(self, config: ModelConfig, repository: ModelRepository) -> ModelVersions:
        return ModelVersions(
            config.name,
            repository,
            lambda path: self._load(config.name, path),
            policy=config.policy,
            retries=self._options.retries,
            start=self._loads.submit,
            clock=self._clock,
            wake=self.wake,
        )

    def _check_labels_can_be(self, configs: Sequence[ModelConfig]) -> None:
        """Refuse labels that no load could make right, before anything is changed."""
        for config in configs:
            known = self._models.get(config.name)
            states = known.states() if known else {}
            repository = ModelRepository(config.base_path.parent, config.base_path.name)
            for label, version in config.labels.items():
                may_come = version in repository.versions()
                is_served = states.get(version) is State.AVAILABLE
                if not (may_come or is_served):
                    self._check_label(config, label, version, states)

    def _assign_labels(self, configs: Sequence[ModelConfig]) -> None:
        labels: dict[str, dict[str, int]] = {}
        for config in configs:
            if config.name not in self._models:
                continue  # a later reload left it out
            states = self._models[config.name].states()
            for label, version in config.labels.items():
                self._check_label(config, label, version, states)
            labels[config.name] = dict(config.labels)
        self._labels = labels

    def _check_label(
        self, config: ModelConfig, label: str, version: int, states: Mapping[int, State]
    ) -> None:
        if states.get(version) is State.AVAILABLE:
            return
        assigned = self._labels.get(config.name, {}).get(label)
        if self._options.allow_labels_for_unavailable and assigned in {None, version}:
            return
        raise RequestError(
            Code.FAILED_PRECONDITION,
            f"Request to assign label to version {version} of model {config.name}, "
            "which is not currently available for inference",
        )

    def _wait_until_served(
        self,
        configs: Sequence[ModelConfig],
        timeout_s: float | None,
        check: Callable[[], None],
    ) -> None:
        until = None if timeout_s is None else self._clock() + timeout_s
        waiting = [config.name for config in configs]
        while True:
            failed = [name for name in waiting if self._has_failed(name)]
            waiting = [n for n in waiting if not (self._is_served(n) or n in failed)]
            if failed:
                raise RequestError(
                    Code.UNKNOWN,
                    "Some models did not become available: "
                    f"{{{', '.join(self._reason(name) for name in failed)}}}",
                )
            if not waiting:
                return
            left = None if until is None else until - self._clock()
            if left is not None and left <= 0:
                raise RequestError(
                    Code.DEADLINE_EXCEEDED,
                    f"Models are still being loaded: {', '.join(waiting)}; the new "
                    "config holds",
                )
            with self._changed:
                self._changed.wait(0.05 if left is None else min(left, 0.05))
            if self._is_ending:
                raise RequestError(Code.CANCELLED, "The server is stopping")
            check()

    def _is_served(self, name: str) -> bool:
        """Tell whether a model serves, and has no version left to try."""
        model = self._models.get(name)
        # A later reload may have left it out.
        return model is None or (model.is_serving() and not model.is_pending())

    def _has_failed(self, name: str) -> bool:
        model = self._models.get(name)
        return model is not None and model.has_failed()

    def _reason(self, name: str) -> str:
        last: Servable = self._models[name].status()[0]
        return f"{name} version {last.version}: {last.error}"

    def find(self, name: str) -> ModelVersions:
        """Return a model.

        Raises:
            RequestError: NOT_FOUND.
        """
        model = self._models.get(name)
        if model is None:
            raise RequestError(
                Code.NOT_FOUND, f"Could not find any versions of model {name}"
            )
        return model

    def use(self, spec: Any) -> Lease:
        """Hold the version that a ModelSpec asks for.

        Raises:
            RequestError: There is no such model, version or label.
        """
        name = spec.name
        if not name:
            raise invalid_argument("ModelSpec has no name specified.")
        version: int | None = None
        if spec.HasField("version"):
            version = spec.version.value
        elif spec.version_label:
            version = self._labels.get(name, {}).get(spec.version_label)
            if version is None:
                raise invalid_argument(
                    f"Unrecognized servable version label: {spec.version_label}"
                )
        elif self._options.default_label:
            version = self._labels.get(name, {}).get(self._options.default_label)
        model = self._models.get(name)
        if model is None:
            which = (
                f"Latest({name})" if version is None else f"Specific({name}, {version})"
            )
            raise RequestError(
                Code.NOT_FOUND, f"Servable not found for request: {which}"
            )
        return model.use(version)

    def wake(self) -> None:
        """Look at all models at once."""
        with self._changed:
            self._is_due = True
            self._changed.notify_all()

    def _poll(self) -> None:
        interval = self._options.poll_interval_s
        while True:
            with self._changed:
                if not self._is_due and not self._stopped:
                    self._changed.wait(self._nap(interval))
                if self._stopped:
                    return
                self._is_due = False
            self._tick()

    def _nap(self, interval: float) -> float:
        # Loads that wait to be tried again need the clock even where nobody polls.
        return (
            interval if interval > 0 else min(IDLE_S, self._options.retries.interval_s)
        )

    def _tick(self) -> None:
        for model in [*self._models.values(), *self._retired]:
            try:
                model.tick()
            except Exception:
                # A disk that fails must not take the versions in memory with it.
                log.exception(
                    "repository_unreadable", extra={"values": {"model": model.name}}
                )
        self._retired = [model for model in self._retired if not is_gone(model)]
        with self._changed:
            self._changed.notify_all()

    def end_waits(self) -> None:
        """Let nobody wait for models any longer: the server is about to stop."""
        self._is_ending = True

    def close(self, timeout_s: float = 10.0) -> None:
        """Unload all, each version when its last request has finished.

        A load that goes on is waited for as long as that; then it is left alone.
        """
        self.end_waits()
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._poller.join()
        self._loads.shutdown(wait=False, cancel_futures=True)
        for model in [*self._models.values(), *self._retired]:
            model.close(timeout_s)


def is_gone(model: ModelVersions) -> bool:
    """Tell whether a retired model has no version left in memory."""
    return set(model.states().values()) <= {State.END}
