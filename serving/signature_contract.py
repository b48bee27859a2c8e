"""What a client of one version would notice of the next: the contract between them.

A change breaks the contract when a request that one version answers could fail with the
next, or an answer could no longer be read as before. Keras 3, for example, renames the
inputs of a model with each export unless they are named.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from serving.errors import RepositoryError
from serving.saved_model import ASSETS, Signature, TensorSpec

ANY = -1
TAKES, GIVES = "takes", "gives"


@dataclass(frozen=True)
class Change:
    """One difference between two versions."""

    where: str
    """`serving_default: input x` for example."""
    what: str
    breaks: bool

    def __str__(self) -> str:
        return f"{self.where} {self.what}"


def compare(
    before: Mapping[str, Signature], after: Mapping[str, Signature]
) -> list[Change]:
    """Return what differs between the signatures of two versions."""
    changes = []
    for name, signature in before.items():
        if name not in after:
            changes.append(Change(f"signature {name}", "is gone", breaks=True))
            continue
        changes.extend(_compare_signature(name, signature, after[name]))
    changes.extend(
        Change(f"signature {name}", "is new", breaks=False)
        for name in after
        if name not in before
    )
    return changes


def _compare_signature(
    name: str, before: Signature, after: Signature
) -> Iterator[Change]:
    if before.method != after.method:
        what = f"has the method {after.method}, before: {before.method}"
        yield Change(f"signature {name}", what, breaks=True)
    yield from _compare_names(name, "input", before.inputs, after.inputs)
    yield from _compare_names(name, "output", before.outputs, after.outputs)
    for key in sorted(before.inputs.keys() & after.inputs.keys()):
        where, specs = f"{name}: input {key}", (before.inputs[key], after.inputs[key])
        yield from _compare_spec(where, TAKES, *specs)
    for key in sorted(before.outputs.keys() & after.outputs.keys()):
        where = f"{name}: output {key}"
        specs = before.outputs[key], after.outputs[key]
        yield from _compare_spec(where, GIVES, *specs)


def _compare_names(
    name: str,
    kind: str,
    before: Mapping[str, TensorSpec],
    after: Mapping[str, TensorSpec],
) -> Iterator[Change]:
    gone, new = sorted(before.keys() - after.keys()), sorted(after.keys() - before)
    if len(gone) == len(new) == 1 and before[gone[0]] == after[new[0]]:
        what = f"was renamed to {new[0]}"
        yield Change(f"{name}: {kind} {gone[0]}", what, breaks=True)
        return
    for key in gone:
        yield Change(f"{name}: {kind} {key}", "is gone", breaks=True)
    for key in new:
        # An answer may hold more than before; a request must not need more.
        what = f"is new: {after[key]}"
        yield Change(f"{name}: {kind} {key}", what, breaks=kind == "input")


def _compare_spec(
    where: str, verb: str, before: TensorSpec, after: TensorSpec
) -> Iterator[Change]:
    if before == after:
        return
    # A request must still be taken; an answer must be one of those known before.
    wider, narrower = (after, before) if verb == TAKES else (before, after)
    fits = before.dtype == after.dtype and _takes_all(wider.shape, narrower.shape)
    yield Change(where, f"{verb} {after}, before: {before}", breaks=not fits)


def _takes_all(wider: tuple[int, ...] | None, narrower: tuple[int, ...] | None) -> bool:
    """Tell whether all tensors of one shape are of the other, too."""
    if wider is None:
        return True
    if narrower is None or len(wider) != len(narrower):
        return False
    return all(
        size in {ANY, other} for size, other in zip(wider, narrower, strict=True)
    )


def compare_vocabularies(before: Path, after: Path) -> list[Change]:
    """Return how the vocabularies in `assets` of two versions differ.

    None of it breaks a request: a value that a model does not know is one of the
    values that it does not know.

    Raises:
        RepositoryError: An asset cannot be read.
    """
    changes = []
    for name in sorted({file.name for file in _assets(before)}):
        where = f"vocabulary {name}"
        if not (after / ASSETS / name).is_file():
            changes.append(Change(where, "is gone", breaks=False))
            continue
        old, new = (_lines(folder / ASSETS / name) for folder in (before, after))
        lost, gained = len(old - new), len(new - old)
        if lost or gained:
            what = f"lost {lost} of its {len(old)} values, gained {gained}"
            changes.append(Change(where, what, breaks=False))
    return changes


def _assets(folder: Path) -> list[Path]:
    assets = folder / ASSETS
    if not assets.is_dir():
        return []
    return [file for file in assets.iterdir() if file.is_file()]


def _lines(file: Path) -> frozenset[bytes]:
    try:
        return frozenset(file.read_bytes().splitlines())
    except OSError as error:
        raise RepositoryError(f"{file} cannot be read: {error.strerror}") from error
