"""A split of the transformed examples: its size, where it is kept, where a row is."""

import errno
import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from components.errors import DataError
from components.trainer.columns import Column, Layout
from components.trainer.split import (
    GZIP_RATIO,
    ROW_BITS,
    Free,
    Split,
    _InMemory,
    _Moments,
    _OnDisk,
    choose_cache,
    estimate_bytes,
    files_of,
)

LAYOUT = Layout(
    (
        Column("x", "float32", 0, (1,)),
        Column("y", "int64", 0, (1,)),
        Column("z", "float32", 1, (2,)),
    )
)
FREE = Free(memory_bytes=1_000, disk_bytes=10_000)


@pytest.mark.parametrize("wanted", ["memory", "disk", "none"])
def test_a_cache_that_is_asked_for_is_taken_whatever_is_free(wanted: str) -> None:
    assert choose_cache(wanted, 10**12, Free(0, 0)) == wanted


@pytest.mark.parametrize(
    ("size_bytes", "expected"),
    [
        (0, "memory"),
        (300, "memory"),
        (301, "disk"),
        (5_000, "disk"),
        (5_001, "none"),
    ],
)
def test_auto_takes_memory_then_disk_then_nothing(
    size_bytes: int, expected: str
) -> None:
    assert choose_cache("auto", size_bytes, FREE) == expected


def split(counts: tuple[int, ...], *, cached: bool) -> Split:
    files = tuple(f"/data/Split-train/part-{n}.gz" for n in range(len(counts)))
    rows = {"float32": np.zeros((sum(counts), 3))} if cached else None
    return Split(files, counts, 0.0, 1.0, "memory" if cached else "none", rows)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=6).map(tuple))
def test_a_row_is_found_in_its_file_though_files_may_be_empty(
    counts: tuple[int, ...],
) -> None:
    cached, streamed = split(counts, cached=True), split(counts, cached=False)
    places = [(file, row) for file, count in enumerate(counts) for row in range(count)]
    assert cached.num_examples == len(places)
    for number, (file, row) in enumerate(places):
        words = f"row {row} of Split-train/part-{file}.gz"
        assert cached.place(number) == words
        assert streamed.place((file << ROW_BITS) + row) == words


def test_the_estimate_is_the_size_before_compression(tmp_path: Path) -> None:
    contents = [b"a" * 10_000, b"", bytes(range(256)) * 7]
    files = [tmp_path / f"{number}.gz" for number in range(len(contents))]
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(gzip.compress(content))
    total = sum(map(len, contents))
    assert estimate_bytes([str(file) for file in files]) == total


def test_a_large_files_estimate_does_not_trust_what_wraps_around(
    tmp_path: Path,
) -> None:
    size = 1 << 28
    with (tmp_path / "large.gz").open("wb") as file:
        file.truncate(size)  # sparse: takes no room
    assert estimate_bytes([str(tmp_path / "large.gz")]) == size * GZIP_RATIO


def test_a_file_too_short_to_be_gzip_is_estimated_too(tmp_path: Path) -> None:
    (tmp_path / "short.gz").write_bytes(b"")
    assert estimate_bytes([str(tmp_path / "short.gz")]) == 0


def test_files_are_in_the_order_of_their_names_and_each_once(tmp_path: Path) -> None:
    for name in ("b.gz", "a.gz"):
        (tmp_path / name).touch()
    found = files_of([f"{tmp_path}/*", f"{tmp_path}/a*"])
    assert found == (f"{tmp_path}/a.gz", f"{tmp_path}/b.gz")


def test_a_split_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        files_of([f"{tmp_path}/x*", f"{tmp_path}/y*"])
    assert str(error.value) == (
        f"no transformed examples in {tmp_path}/x*, {tmp_path}/y*"
    )


BATCHES = st.lists(
    hnp.arrays(
        np.float64,
        hnp.array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=6),
        elements=st.one_of(
            st.floats(-1e6, 1e6),
            st.sampled_from([float("nan"), float("inf"), float("-inf")]),
        ),
    ),
    max_size=6,
)


@given(BATCHES)
def test_mean_and_deviation_are_those_of_all_finite_values(
    batches: list[np.ndarray],
) -> None:
    moments = _Moments()
    for batch in batches:
        moments.add(batch)
    values = np.concatenate([np.zeros(0), *(batch.ravel() for batch in batches)])
    values = values[np.isfinite(values)]
    expected = (values.mean(), values.std()) if values.size else (0.0, 0.0)
    assert moments.mean == pytest.approx(expected[0], rel=1e-9, abs=1e-6)
    assert moments.std == pytest.approx(expected[1], rel=1e-9, abs=1e-6)


def test_a_deviation_far_from_zero_keeps_its_digits() -> None:
    moments = _Moments()
    for part in np.split(1e9 + np.arange(1_000.0), 10):
        moments.add(part)
    assert moments.std == pytest.approx(np.arange(1_000.0).std(), rel=1e-9)


def packed(first: int, count: int) -> dict[str, np.ndarray]:
    numbers = np.arange(first, first + count)
    return {
        "float32": np.stack([numbers] * 3, axis=1).astype(np.float32),
        "int64": numbers[:, None],
    }


@pytest.mark.parametrize("keeper", [_InMemory, _OnDisk])
def test_rows_are_kept_in_the_order_they_came(
    keeper: Callable[..., _InMemory | _OnDisk], tmp_path: Path
) -> None:
    kept = keeper(LAYOUT, tmp_path)
    kept.add(packed(0, 3))
    kept.add(packed(3, 2))
    rows = kept.rows()
    assert rows is not None
    for group, expected in packed(0, 5).items():
        assert rows[group].dtype == expected.dtype
        np.testing.assert_array_equal(rows[group], expected)


def test_a_disk_cache_has_no_names_that_a_kill_could_leave_behind(
    tmp_path: Path,
) -> None:
    kept = _OnDisk(LAYOUT, tmp_path)
    kept.add(packed(0, 3))
    assert list(tmp_path.iterdir()) == []
    rows = kept.rows()
    assert list(tmp_path.iterdir()) == []
    assert rows is not None
    assert rows["int64"].sum() == 3


def test_a_disk_cache_that_has_no_room_names_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = _OnDisk(LAYOUT, tmp_path)
    with Path("/dev/full").open("wb") as full:
        monkeypatch.setitem(kept._files, "int64", full)
        with pytest.raises(OSError, match="No space left on device") as error:
            kept.add(packed(0, 10_000))
    assert (error.value.errno, error.value.filename) == (errno.ENOSPC, str(tmp_path))
