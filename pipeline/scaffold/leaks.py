"""Which columns say the same as the label under another name."""

from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.scaffold.profile import Table, batches

MAX_PAIRS = 1000
"""Pairs of values followed before only equal cells count as the same."""
MIN_ROWS = 20
"""Fewer rows than this agree by chance."""
MIN_REPEATS = 4
"""A renaming shows only where values repeat, on average so often."""


@dataclass
class _Agreement:
    """Whether a column's values and the label's stand for each other, so far."""

    is_equal: bool = True
    to_label: dict[str, str] = field(default_factory=dict)
    from_label: dict[str, str] = field(default_factory=dict)
    is_renaming: bool = True
    """Each value goes with one label and each label with one value."""
    num_rows: int = 0

    @property
    def is_open(self) -> bool:
        """They may still say the same."""
        return self.is_equal or self.is_renaming

    @property
    def is_proven(self) -> bool:
        """They say the same, and not only because each value stands alone."""
        repeats = MIN_REPEATS * len(self.to_label) <= self.num_rows
        return self.is_equal or (self.is_renaming and repeats)

    def add(self, cells: pa.Array, label: pa.Array) -> None:
        self.num_rows += len(cells)
        self.is_equal = self.is_equal and bool(pc.all(pc.equal(cells, label)).as_py())
        if not self.is_renaming:
            return
        both = pa.table({"cell": cells, "label": label})
        pairs = both.group_by(["cell", "label"], use_threads=False).aggregate([])
        if len(pairs) > MAX_PAIRS:
            self.is_renaming = False
            return
        for pair in pairs.to_pylist():
            cell, value = pair["cell"], pair["label"]
            known = self.to_label.setdefault(cell, value)
            other = self.from_label.setdefault(value, cell)
            self.is_renaming = self.is_renaming and (known, other) == (value, cell)
        self.is_renaming = self.is_renaming and len(self.to_label) <= MAX_PAIRS


def same_as_label(table: Table, label: str) -> frozenset[str]:
    """Return the columns that equal the label or rename its values one to one.

    Rows without a label do not count. A column that is missing where the label is not
    still counts when each label goes with one way of being filled.
    """
    if table.num_rows < MIN_ROWS:
        return frozenset()
    names = [name for name in table.dialect.columns if name and name != label]
    agreements = {name: _Agreement() for name in names}
    nulls = pa.array(table.null_values, pa.string())
    for batch in batches(table.file, table.dialect):
        labelled = batch.filter(
            pc.invert(pc.is_in(batch.column(label), value_set=nulls))
        )
        for name in [name for name in names if agreements[name].is_open]:
            agreements[name].add(labelled.column(name), labelled.column(label))
    return frozenset(name for name in names if agreements[name].is_proven)
