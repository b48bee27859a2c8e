"""One split of the transformed examples: counted, and kept parsed where it fits.

Kept in memory or in files that are mapped into memory, every example can be reached
by its number: the order of an epoch is a permutation, and a resumed run starts at any
batch without reading what comes before it.
"""

import bisect
import math
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from components.errors import DataError
from components.trainer.columns import Layout

Cache = Literal["memory", "disk", "none"]
PARSE_BATCH = 8_192
MEMORY_SHARE = 0.3
"""Share of the free memory that parsed examples may take."""
DISK_SHARE = 0.5
ROW_BITS = 40
"""Where nothing is cached a row's number is `file number << ROW_BITS | place in it`."""
GZIP_RATIO = 8
"""Taken where the size before compression is not known."""


@dataclass(frozen=True)
class Split:
    """The examples of a split, numbered in the order of the files."""

    files: tuple[str, ...]
    counts: tuple[int, ...]
    """Examples in each file."""
    label_mean: float
    label_std: float
    cache: Cache
    rows: Mapping[str, np.ndarray] | None
    """By group: [num_examples, width]; None where nothing is cached."""

    @property
    def num_examples(self) -> int:
        """All examples."""
        return sum(self.counts)

    def place(self, number: int) -> str:
        """Say where an example is: `row 17 of transformed_examples-00000…gz`."""
        if self.rows is None:
            file, row = number >> ROW_BITS, number & ((1 << ROW_BITS) - 1)
        else:
            starts = [0, *accumulate(self.counts)]
            file = bisect.bisect_right(starts, number) - 1
            row = number - starts[file]
        path = Path(self.files[file])
        return f"row {row} of {path.parent.name}/{path.name}"


@dataclass(frozen=True)
class Free:
    """What this machine has left, in bytes."""

    memory_bytes: int
    disk_bytes: int


def choose_cache(wanted: str, size_bytes: int, free: Free) -> Cache:
    """Pick where parsed examples are kept.

    Args:
        wanted: The setting `trainer.input.cache`.
        size_bytes: How large they are, from above.
        free: What is left of memory, and of disk beside the run.
    """
    match wanted:
        case "memory" | "disk" | "none":
            return wanted
    if size_bytes <= MEMORY_SHARE * free.memory_bytes:
        return "memory"
    return "disk" if size_bytes <= DISK_SHARE * free.disk_bytes else "none"


def estimate_bytes(files: Sequence[str]) -> int:
    """Return a size that the parsed examples hardly exceed.

    Serialized examples carry the names of their features and are larger than the
    numbers. The last four bytes of a gzip file are its size before compression,
    modulo 2^32 (RFC 1952, 2.3.1).
    """
    total = 0
    for file in files:
        path = Path(file)
        size = path.stat().st_size
        with path.open("rb") as stream:
            stream.seek(max(0, size - 4))
            told = int.from_bytes(stream.read(4), "little")
        total += told if size < 1 << 28 else size * GZIP_RATIO
    return total


def free_bytes(folder: Path) -> Free:
    """Measure free memory (the container's, where it has a limit) and disk."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    [available] = [line for line in lines if line.startswith("MemAvailable:")]
    memory = int(available.split()[1]) * 1024
    limit, used = (
        Path("/sys/fs/cgroup", name) for name in ("memory.max", "memory.current")
    )
    if limit.exists() and (text := limit.read_text().strip()).isdigit():
        memory = min(memory, max(0, int(text) - int(used.read_text())))
    return Free(memory, shutil.disk_usage(folder).free)


def files_of(patterns: Sequence[str]) -> tuple[str, ...]:
    """Return the files that match, in order.

    Raises:
        DataError: None does.
    """
    found = sorted({name for pattern in patterns for name in tf.io.gfile.glob(pattern)})
    if not found:
        raise DataError(f"no transformed examples in {', '.join(patterns)}")
    return tuple(found)


def read_split(
    patterns: Sequence[str],
    layout: Layout,
    label_key: str,
    wanted_cache: str,
    folder: Path,
) -> Split:
    """Read a split once: count it, describe its label, and keep it where it fits.

    Args:
        patterns: Gzipped TFRecord files of transformed tf.Examples.
        layout: The columns to parse.
        label_key: The column to take mean and standard deviation of.
        wanted_cache: The setting `trainer.input.cache`.
        folder: Where files of a disk cache go.

    Raises:
        DataError: There are no examples.
    """
    files = files_of(patterns)
    folder.mkdir(parents=True, exist_ok=True)
    cache = choose_cache(wanted_cache, estimate_bytes(files), free_bytes(folder))
    keeper = _KEEPERS[cache](layout, folder)
    label, counts = _Moments(), []
    for file in files:
        count = 0
        for packed in _parsed(file, layout):
            labels = layout.unpack(packed)[label_key]
            label.add(np.asarray(labels, np.float64))
            count += len(labels)
            keeper.add(packed)
        counts.append(count)
    if not sum(counts):
        raise DataError(f"{Path(files[0]).parent} holds no examples")
    return Split(files, tuple(counts), label.mean, label.std, cache, keeper.rows())


def _parsed(file: str, layout: Layout) -> Iterator[dict[str, np.ndarray]]:
    parse = parser(layout)
    batches = tf.data.TFRecordDataset(file, compression_type="GZIP").batch(PARSE_BATCH)
    batches = batches.map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    yield from batches.prefetch(2).as_numpy_iterator()


def parser(layout: Layout) -> Any:
    """Return a function from [batch] serialized examples to packed columns.

    Whole batches are parsed at once: parsing row by row costs more than training.
    """
    spec = {
        column.key: tf.io.FixedLenFeature(
            column.shape, tf.dtypes.as_dtype(column.group)
        )
        for column in layout.columns
    }

    def parse(serialized: Any) -> Any:
        return layout.pack(tf.io.parse_example(serialized, spec))

    return parse


class _Moments:
    """Mean and standard deviation of finite values, batch by batch.

    Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing
    Sample Variances" (1979).
    """

    def __init__(self) -> None:
        self._count = 0
        self.mean = 0.0
        self._squares = 0.0

    def add(self, values: np.ndarray) -> None:
        values = values[np.isfinite(values)]
        if not values.size:
            return
        mean, count = float(values.mean()), self._count + values.size
        delta = mean - self.mean
        self._squares += float(((values - mean) ** 2).sum())
        self._squares += delta**2 * self._count * values.size / count
        self.mean += delta * values.size / count
        self._count = count

    @property
    def std(self) -> float:
        return math.sqrt(self._squares / self._count) if self._count else 0.0


class _InMemory:
    def __init__(self, layout: Layout, _: Path) -> None:
        self._parts: dict[str, list[np.ndarray]] = {g: [] for g in layout.widths}

    def add(self, packed: Mapping[str, np.ndarray]) -> None:
        for group, part in packed.items():
            self._parts[group].append(part)

    def rows(self) -> Mapping[str, np.ndarray] | None:
        return {
            group: np.concatenate(self._parts.pop(group))
            for group in tuple(self._parts)
            if self._parts[group]
        }


class _OnDisk:
    """Files that are mapped; without a name, so that no kill leaves them behind."""

    def __init__(self, layout: Layout, folder: Path) -> None:
        self._widths = layout.widths
        self._folder = folder
        with self._room():
            self._files: dict[str, Any] = {
                group: tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  see `rows`
                for group in self._widths
            }

    def add(self, packed: Mapping[str, np.ndarray]) -> None:
        with self._room():
            for group, part in packed.items():
                # Not tofile: its error does not say why.
                self._files[group].write(np.ascontiguousarray(part).data)

    def rows(self) -> Mapping[str, np.ndarray] | None:
        mapped = {}
        for group, file in self._files.items():
            with self._room(), file:
                file.flush()
                if file.tell():
                    flat = np.memmap(file, np.dtype(group), "r")
                    mapped[group] = flat.reshape(-1, self._widths[group])
        return mapped

    @contextmanager
    def _room(self) -> Iterator[None]:
        """Name the folder: a file without a name cannot be told."""
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._folder)) from error


class _Nowhere:
    def __init__(self, layout: Layout, _: Path) -> None:
        pass

    def add(self, packed: Mapping[str, np.ndarray]) -> None:
        pass

    def rows(self) -> Mapping[str, np.ndarray] | None:
        return None


_KEEPERS: Mapping[Cache, Any] = {"memory": _InMemory, "disk": _OnDisk, "none": _Nowhere}
