"""What ExampleGen is asked to read: settings reduced to files, columns and types."""

from pathlib import Path

from components.example_gen.config import DataSettings, FilesSplit
from components.features import Dtype, FeatureTable, Label
from serving.settings import Settings


class IngestRequest(Settings):
    """All that decides which examples come out; its JSON travels to the workers."""

    root: Path
    """Folder that patterns are relative to."""
    data: DataSettings
    """Files, dialect and split."""
    label: Label
    """Column that may not be missing."""
    dtypes: dict[str, Dtype]
    """Columns that become features of the examples, with their types."""

    @classmethod
    def build(
        cls,
        root: Path,
        data: DataSettings,
        table: FeatureTable,
        slice_columns: tuple[str, ...] = (),
    ) -> "IngestRequest":
        """Ask for the table's columns, and for those that only slices read."""
        dtypes = table.column_dtypes()
        for column in slice_columns:
            dtypes.setdefault(column, "string")
        return cls(root=root, data=data, label=table.label, dtypes=dtypes)

    def patterns(self) -> dict[str | None, tuple[str, ...]]:
        """Map a split to its file patterns; None when rows decide the split."""
        split = self.data.split
        if isinstance(split, FilesSplit):
            return {"train": (split.train,), "eval": (split.eval,)}
        files = self.data.files or ()
        return {None: (files,) if isinstance(files, str) else files}
