"""Settings of the schema and of what an anomaly does to the run."""

from pathlib import Path
from typing import Literal

from serving.settings import Settings

Policy = Literal["error", "warn", "ignore"]


class SchemaSettings(Settings):
    """The schema that data is held to."""

    file: Path | None = None
    """Curated schema (text proto); inferred from the train split when left out."""
    on_anomaly: Policy = "error"
    """What an anomaly does unless `anomalies` names its kind."""
    anomalies: dict[str, Policy] = {}
    """Policy by kind, as ExampleValidator names it: `ENUM_TYPE_UNEXPECTED_STRING_VALUES`."""
