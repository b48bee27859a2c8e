"""Which version to load or unload next: pure, one action at a time.

TensorFlow Serving's availability-preserving policy: a version is unloaded only when
one that should be there serves, or none should be.

```
START ─► LOADING ─► AVAILABLE ─► UNLOADING ─► END
            └────────── failed ────────────────┘
```
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from serving.model_server_config import All, Latest, Policy, Specific


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


def aspired(found: Iterable[int], policy: Policy) -> list[int]:
    """Return the versions that should be served, highest first."""
    versions = sorted(found, reverse=True)
    match policy:
        case All():
            return versions
        case Specific(wanted):
            return [version for version in versions if version in wanted]
        case Latest(num_versions):
            return versions[:num_versions]


def next_action(
    wanted: Iterable[int],
    states: Mapping[int, State],
    failed: Container[int] = (),
) -> Load | Unload | None:
    """Decide on one step towards serving the wanted versions.

    Args:
        wanted: Versions that should be served.
        states: State of each version that was ever seen. A version in END was
            unloaded, and is loaded again when it is wanted again, or it failed.
        failed: Versions that could not be loaded; they are not tried again.
    """
    wanted = sorted(wanted, reverse=True)
    if State.LOADING in states.values():
        return None
    for version in wanted:
        is_out = states.get(version, State.START) in {State.START, State.END}
        if is_out and version not in failed:
            return Load(version)
    serving = [version for version, state in states.items() if state is State.AVAILABLE]
    unwanted = sorted(version for version in serving if version not in wanted)
    if unwanted and (not wanted or any(version in wanted for version in serving)):
        return Unload(unwanted[0])
    return None
