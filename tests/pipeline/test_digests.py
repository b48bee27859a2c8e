"""Digests change with what they stand for, and with nothing else."""

import hashlib
import sys
from pathlib import Path

import pytest

from pipeline import digests


def test_the_order_of_keys_is_no_difference() -> None:
    assert digests.of_value({"a": 1, "b": [2]}) == digests.of_value({"b": [2], "a": 1})


@pytest.mark.parametrize(
    ("one", "other"),
    [([1, 2], [2, 1]), (1, "1"), (None, ""), ({"a": None}, {}), (True, 1), (1, 1.0)],
)
def test_values_that_differ_have_other_digests(one: object, other: object) -> None:
    assert digests.of_value(one) != digests.of_value(other)


@pytest.mark.parametrize("size", [0, 1, digests.CHUNK_BYTES, digests.CHUNK_BYTES + 1])
def test_a_file_is_its_bytes_whatever_its_size(size: int, tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(b"x" * size)
    assert digests.of_file(path) == hashlib.sha256(b"x" * size).hexdigest()


def test_files_are_told_apart_by_path(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.csv", "b.csv")]
    for path in paths:
        path.write_text(path.name)
    assert digests.of_files(paths) == {str(p): digests.of_file(p) for p in paths}


def test_an_upgraded_library_is_a_difference_and_our_own_name_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our own code has digests of its own, module by module."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), "", str(tmp_path / "gone")])
    found = []
    for name in ("numpy-2.0", "taxiway-0.1.0", "numpy-2.1"):
        (tmp_path / f"{name}.dist-info").mkdir()
        found.append(digests.of_libraries())
    assert found[0] == found[1] != found[2]
