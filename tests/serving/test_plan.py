"""Which version to load or unload next."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from serving.model_server_config import All, Latest, Policy, Specific
from serving.server.plan import Load, State, Unload, aspired, next_action

AVAILABLE, END = State.AVAILABLE, State.END
LOADING, UNLOADING = State.LOADING, State.UNLOADING


@pytest.mark.parametrize(
    ("found", "states", "failed", "expected"),
    [
        pytest.param([], {}, (), None, id="nothing is found, nothing is done"),
        pytest.param([1, 3, 2], {}, (), Load(3), id="the highest version is loaded"),
        pytest.param([1], {1: AVAILABLE}, (), None, id="what should serve serves"),
        pytest.param([1, 2], {1: AVAILABLE}, (), Load(2), id="load before unload"),
        pytest.param(
            [1, 2], {1: AVAILABLE, 2: LOADING}, (), None, id="wait for the new version"
        ),
        pytest.param(
            [1, 2],
            {1: AVAILABLE, 2: AVAILABLE},
            (),
            Unload(1),
            id="the old version goes when the new one is there",
        ),
        pytest.param(
            [1, 2],
            {1: AVAILABLE, 2: END},
            {2},
            None,
            id="a failed version is not tried again, and the old one stays",
        ),
        pytest.param(
            [1],
            {1: END, 2: AVAILABLE},
            (),
            Load(1),
            id="deleting the highest version brings the one before back",
        ),
        pytest.param(
            [1], {1: UNLOADING, 2: AVAILABLE}, (), None, id="one thing at a time"
        ),
        pytest.param(
            [], {1: AVAILABLE}, (), Unload(1), id="an empty folder unloads the last one"
        ),
        pytest.param(
            [9],
            {7: AVAILABLE, 3: AVAILABLE, 9: AVAILABLE},
            (),
            Unload(3),
            id="the oldest is unloaded first",
        ),
    ],
)
def test_next_action(
    found: list[int],
    states: dict[int, State],
    failed: set[int],
    expected: Load | Unload | None,
) -> None:
    assert next_action(aspired(found, Latest()), states, failed) == expected


def test_two_versions_serve_side_by_side_when_two_are_wanted() -> None:
    states = {1: AVAILABLE, 2: AVAILABLE, 3: AVAILABLE}
    wanted = aspired([1, 2, 3], Latest(2))
    assert next_action(wanted, states) == Unload(1)
    assert next_action(wanted, {2: AVAILABLE, 3: AVAILABLE}) is None


def test_policies_choose_versions() -> None:
    found = [1, 2, 10]
    assert aspired(found, Latest()) == [10]
    assert aspired(found, Latest(5)) == [10, 2, 1]
    assert aspired(found, All()) == [10, 2, 1]
    assert aspired(found, Specific((2, 7))) == [2]


VERSIONS = st.sets(st.integers(1, 5))
POLICIES: st.SearchStrategy[Policy] = (
    st.builds(Latest, st.integers(1, 3))
    | st.builds(All)
    | st.builds(Specific, st.lists(st.integers(1, 5), min_size=1).map(tuple))
)


@given(found=VERSIONS, serving=VERSIONS, broken=VERSIONS)
def test_steps_end_and_never_leave_a_model_without_versions(
    found: set[int], serving: set[int], broken: set[int]
) -> None:
    states = dict.fromkeys(serving, AVAILABLE)
    failed: set[int] = set()
    for _ in range(20):
        match next_action(aspired(found, Latest()), states, failed):
            case Load(version):
                states[version] = END if version in broken else AVAILABLE
                failed |= {version} & broken
            case Unload(version):
                states[version] = END
            case None:
                break
        if found and serving:
            assert AVAILABLE in states.values()
    else:
        pytest.fail("the steps do not end")
    available = {version for version, state in states.items() if state is AVAILABLE}
    if found and max(found) not in broken - serving:
        assert available == {max(found)}


class Server(RuleBasedStateMachine):
    """What the plan makes of any sequence of folder contents and broken versions.

    A fake of `ModelVersions`: loads and unloads are at once, failures are remembered
    for as long as the version stays on disk.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: set[int] = set()
        self.broken: set[int] = set()
        self.failed: set[int] = set()
        self.states: dict[int, State] = {}

    @property
    def serving(self) -> set[int]:
        return {v for v, state in self.states.items() if state is AVAILABLE}

    @rule(found=VERSIONS)
    def change_disk(self, found: set[int]) -> None:
        self.found = found

    @rule(broken=VERSIONS)
    def break_versions(self, broken: set[int]) -> None:
        self.broken = broken

    @rule(policy=POLICIES)
    def tick(self, policy: Policy) -> None:
        self.failed &= self.found
        wanted = set(aspired(self.found, policy))
        loaded: list[int] = []
        unloaded: list[int] = []
        while action := next_action(wanted, self.states, self.failed):
            before = self.serving
            if isinstance(action, Load):
                loaded.append(action.version)
                assert action.version in wanted - before - self.failed
                is_broken = action.version in self.broken
                self.states[action.version] = END if is_broken else AVAILABLE
                self.failed |= {action.version} & self.broken
                continue
            unloaded.append(action.version)
            assert action.version in before - wanted
            assert wanted - self.failed <= before
            self.states[action.version] = END
            assert self.serving & wanted or not wanted
        assert len(loaded) == len(set(loaded))
        assert not set(loaded) & set(unloaded)
        if wanted - self.failed or not wanted:
            assert self.serving == wanted - self.failed


TestServer = Server.TestCase


def test_versions_to_serve_are_the_highest() -> None:
    assert aspired([3, 10, 2], Latest()) == [10]
    assert aspired([3, 10, 2], Latest(2)) == [10, 3]
    assert aspired([], Latest()) == []
