"""Which examples make which batch: arithmetic on numbers, without TensorFlow.

An epoch's order depends on the seed and the epoch alone. An effective batch holds the
same examples however it is cut into workers, replicas and micro-batches:

```
order of the epoch   | batch 0                     | batch 1 …
replica              | 0           | 1             |
micro-batch          | 0    | 1    | 0     | 1     |
```
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from components.errors import DataError

CHUNK_BYTES = 64 << 20
MAX_CHUNK_STEPS = 32


@dataclass(frozen=True)
class BatchPlan:
    """How the examples of a split become steps, and steps become chunks.

    A chunk is what the input hands over at once: the batches of several steps, which
    are run without going back to Python.
    """

    num_examples: int
    num_replicas: int
    accumulation: int
    micro_batch_size: int
    chunk_steps: int
    last_batch: str = "pad"

    def __post_init__(self) -> None:
        """Refuse a split that does not fill one batch."""
        if not self.steps_per_epoch:
            raise DataError(
                f"trainer.last_batch: got drop, but the {self.num_examples} examples "
                f"do not fill one batch of {self.batch_size}; allowed here: pad"
            )

    @property
    def batch_size(self) -> int:
        """Examples of an effective batch."""
        return self.num_replicas * self.accumulation * self.micro_batch_size

    @property
    def steps_per_epoch(self) -> int:
        """Effective batches in an epoch, the incomplete last one counted if kept."""
        if self.last_batch == "drop":
            return self.num_examples // self.batch_size
        return -(-self.num_examples // self.batch_size)

    @property
    def chunks_per_epoch(self) -> int:
        """Chunks in an epoch; the last may hold fewer steps."""
        return -(-self.steps_per_epoch // self.chunk_steps)

    @property
    def chunk_shape(self) -> tuple[int, int, int, int]:
        """`(steps, replicas, micro-batches, examples)` of a chunk."""
        return (
            self.chunk_steps,
            self.num_replicas,
            self.accumulation,
            self.micro_batch_size,
        )

    def chunks(
        self, order: np.ndarray, first_chunk: int = 0
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield example numbers and mask of each chunk, both of `chunk_shape`.

        The mask is 0 where a batch is filled up. It is filled with its own examples
        again: statistics of the batch should see real ones, and a NaN in an example
        of another batch must not make this one bad.

        Args:
            order: [num_examples] int64, the order of this epoch.
            first_chunk: Where to begin.
        """
        size = self.chunk_steps * self.batch_size
        kept = min(len(order), self.steps_per_epoch * self.batch_size)
        for chunk in range(first_chunk, self.chunks_per_epoch):
            places = np.arange(chunk * size, (chunk + 1) * size)
            mask = (places < kept).astype(np.float32)
            first = (kept - 1) // self.batch_size * self.batch_size
            again = first + (places - first) % (kept - first)
            numbers = order[np.where(places < kept, places, again)]
            yield numbers.reshape(self.chunk_shape), mask.reshape(self.chunk_shape)


def epoch_order(num_examples: int, seed: int, epoch: int) -> np.ndarray:
    """Return a permutation of all examples, [num_examples] int64."""
    generator = np.random.default_rng([seed % 2**32, epoch])
    return generator.permutation(num_examples)


def chunk_steps(wanted: int | None, batch_size: int, row_bytes: int) -> int:
    """Return the steps of a chunk: as wanted, or so many that it stays small.

    Args:
        wanted: The setting `trainer.steps_per_execution`.
        batch_size: Examples of an effective batch.
        row_bytes: Bytes of one packed example.
    """
    if wanted is not None:
        return wanted
    return max(1, min(MAX_CHUNK_STEPS, CHUNK_BYTES // (batch_size * row_bytes)))
