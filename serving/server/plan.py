"""Which version to load or unload next: pure, one action at a time.

TensorFlow Serving's availability-preserving policy: a version is unloaded only after
every version that should be there is.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum


class State(IntEnum):
    """A version's life, with the numbers of get_model_status.proto."""

    START = 10
    LOADING = 20
    AVAILABLE = 30
    UNLOADING = 40
    END = 50


@dataclass(frozen=True)
class Load:
    """Load a version."""

    version: int


@dataclass(frozen=True)
class Unload:
    """Unload a version once its last request has finished."""

    version: int


def aspired(found: Iterable[int], num_versions: int = 1) -> list[int]:
    """Return the versions that should be served: the highest ones."""
    return sorted(found, reverse=True)[:num_versions]


def next_action(
    found: Iterable[int],
    states: Mapping[int, State],
    failed: Container[int] = (),
    num_versions: int = 1,
) -> Load | Unload | None:
    """Decide on one step towards serving the highest versions.

    Args:
        found: Complete versions on disk.
        states: State of each version that was ever seen. A version in END was
            unloaded, and is loaded again when it is the highest again, or it failed.
        failed: Versions that could not be loaded; they are not tried again.
        num_versions: How many of the highest versions to serve.
    """
    wanted = aspired(found, num_versions)
    for version in wanted:
        is_out = states.get(version, State.START) in {State.START, State.END}
        if is_out and version not in failed:
            return Load(version)
    serving = [version for version, state in states.items() if state is State.AVAILABLE]
    unwanted = [version for version in sorted(serving) if version not in wanted]
    if all(states[version] is State.AVAILABLE for version in wanted):
        return Unload(unwanted[0]) if unwanted else None
    return None
