"""Settings of Transform."""

from serving.settings import Settings


class TransformSettings(Settings):
    """How raw columns become model inputs."""

    preprocessing_fn: str | None = None
    """Dotted path of your `preprocessing_fn`; the feature table's when left out."""
