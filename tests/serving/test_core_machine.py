"""Any sequence of publishing, deleting, breaking, relabelling and reloading.

The server's core, on a real folder and with loads on threads, is compared after every
step with a few lines that say what should be served.
"""

import shutil
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from serving import apis
from serving.errors import Code, RequestError
from serving.model_server_config import All, Latest, ModelConfig, Policy, Specific
from serving.server.core import CoreOptions, ServerCore
from serving.server.plan import State, aspired

pytestmark = pytest.mark.integration
TIMEOUT_S = 10.0
VERSIONS = st.integers(1, 4)
POLICIES: st.SearchStrategy[Policy] = (
    st.builds(Latest, st.integers(1, 2))
    | st.builds(All)
    | st.builds(Specific, st.lists(VERSIONS, min_size=1, max_size=2).map(tuple))
)
LABELS = st.dictionaries(st.sampled_from(["stable", "canary"]), VERSIONS)


@dataclass
class Version:
    """Loads if its graph is not bad."""

    path: Path
    signatures: dict[str, Any] = field(default_factory=dict)

    def run(self, *_: Any) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        pass


def load(_: str, path: Path) -> Version:
    if (path / "saved_model.pb").read_text() == "bad":
        raise RequestError(Code.DATA_LOSS, "bad")
    return Version(path)


@dataclass
class Expected:
    """What should be served: the whole of the rules, in a few lines."""

    disk: dict[int, str] = field(default_factory=dict)
    policy: Policy = field(default_factory=Latest)
    labels: dict[str, int] = field(default_factory=dict)
    serving: set[int] = field(default_factory=set)
    failed: dict[int, str] = field(default_factory=dict)

    def settle(self) -> None:
        """Do all that the rules ask for."""
        self.failed = {v: t for v, t in self.failed.items() if self.disk.get(v) == t}
        wanted = set(aspired(self.disk, self.policy))
        for version in wanted - self.serving - self.failed.keys():
            if self.disk[version].startswith("bad"):
                self.failed[version] = self.disk[version]
            else:
                self.serving.add(version)
        if not wanted or wanted & self.serving:
            self.serving &= wanted


class Core(RuleBasedStateMachine):
    """Drives a core and what is expected of it."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.base = self.folder / "m"
        self.base.mkdir()
        self.core = ServerCore(load, CoreOptions(poll_interval_s=-1.0))
        self.core.begin([ModelConfig("m", self.base)])
        self.expected = Expected()
        self.steps: list[Any] = []

    def teardown(self) -> None:
        self.core.close()
        shutil.rmtree(self.folder)

    def write(self, version: int, text: str) -> None:
        """Publish a version, in the place of one that was there."""
        staging = self.base / f".staging-{version}"
        staging.mkdir()
        (staging / "saved_model.pb").write_text(text)
        self.remove(version)
        staging.rename(self.base / str(version))

    def remove(self, version: int) -> None:
        shutil.rmtree(self.base / str(version), ignore_errors=True)

    def settle(self) -> None:
        self.expected.settle()
        wanted = self.expected.serving
        pause = threading.Event()
        for _ in range(int(TIMEOUT_S / 0.002)):
            self.core.wake()
            states = self.core.find("m").states()
            serving = {v for v, s in states.items() if s is State.AVAILABLE}
            is_still = set(states.values()) <= {State.AVAILABLE, State.END}
            if serving == wanted and is_still:
                return
            pause.wait(0.002)
        pytest.fail(f"serves {states}, expected {self.expected}, after {self.steps}")

    @rule(version=VERSIONS)
    def publish(self, version: int) -> None:
        self.steps.append(("publish", version))
        if version not in self.expected.disk:
            self.write(version, "good")
            self.expected.disk[version] = "good"
        self.settle()

    @rule(version=VERSIONS)
    def publish_a_bad_one(self, version: int) -> None:
        self.steps.append(("bad", version))
        if version not in self.expected.disk:
            self.write(version, "bad")
            self.expected.disk[version] = "bad"
        self.settle()

    @rule(version=VERSIONS)
    def mend(self, version: int) -> None:
        """A version that is served does not look at its files any more."""
        self.steps.append(("mend", version))
        if version in self.expected.disk:
            (self.base / str(version) / "saved_model.pb").write_text("good again")
            self.expected.disk[version] = "good again"
        self.settle()

    @rule(version=VERSIONS)
    def delete(self, version: int) -> None:
        self.steps.append(("delete", version))
        self.remove(version)
        self.expected.disk.pop(version, None)
        self.settle()

    @rule(policy=POLICIES, labels=LABELS)
    def reload(self, policy: Policy, labels: dict[str, int]) -> None:
        expected = self.expected
        self.steps.append(("reload", policy, labels))
        if not aspired(expected.disk, policy):
            return  # as the original, it waits without end for a version to come
        known = expected.serving | expected.disk.keys()
        if set(labels.values()) <= known:
            expected.policy = policy
            expected.settle()
        is_served = bool(expected.serving)
        can_be = set(labels.values()) <= known
        are_served = set(labels.values()) <= expected.serving
        config = ModelConfig("m", self.base, policy, labels)
        if not can_be or (is_served and not are_served):
            self.refused(config, Code.FAILED_PRECONDITION)
        elif not is_served:
            self.refused(config, Code.UNKNOWN, Code.DEADLINE_EXCEEDED)
        else:
            self.core.reload([config], TIMEOUT_S)
            expected.labels = labels
        self.settle()

    def refused(self, config: ModelConfig, *codes: Code) -> None:
        with pytest.raises(RequestError) as refused:
            self.core.reload([config], TIMEOUT_S)
        assert refused.value.code in codes

    @invariant()
    def requests_find_what_is_served(self) -> None:
        serving = self.expected.serving
        assert self.found() == max(serving, default=None)
        for version in range(1, 5):
            expected = version if version in serving else None
            assert self.found(version=version) == expected
        for label in ("stable", "canary"):
            version = self.expected.labels.get(label, 0)
            expected = version if version in serving else None
            assert self.found(label=label) == expected

    def found(self, version: int | None = None, label: str = "") -> int | None:
        spec = apis.ModelSpec(name="m", version_label=label)
        if version is not None:
            spec.version.value = version
        try:
            with self.core.use(spec) as lease:
                return lease.version
        except RequestError as error:
            is_unknown = bool(label) and label not in self.expected.labels
            if error.code is not (
                Code.INVALID_ARGUMENT if is_unknown else Code.NOT_FOUND
            ):
                raise
            return None


Core.TestCase.settings = settings(max_examples=40, stateful_step_count=25)
TestCore = Core.TestCase
