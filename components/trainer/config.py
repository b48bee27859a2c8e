"""Settings of the Trainer."""

from typing import Annotated

from pydantic import Field

from serving.settings import Settings

TABLE_FILE = "assets.extra/taxiway_features.json"
"""Where an exported model keeps the feature table that it was made from."""

Positive = Annotated[int, Field(ge=1)]


class TrainerSettings(Settings):
    """How the model is built and trained."""

    model: str | None = None
    """Dotted path of your `build_model(inputs)`; wide-and-deep when left out."""
    hidden_units: tuple[Positive, ...] = (64, 32)
    """Sizes of the deep part's layers."""
    embedding_dim: Positive | None = None
    """Size of each embedding; grows with the vocabulary when left out."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of units dropped after each hidden layer while training."""
    learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    """Step size of Adam."""
    batch_size: Positive = 512
    """Examples for each gradient step."""
    epochs: Positive = 2
    """How often training reads the train split."""
    early_stopping_patience: Annotated[int, Field(ge=0)] = 0
    """Stop after this many epochs without a lower eval loss; 0 never stops early."""
    seed: int = 1
    """Seed of the weights and of the order of examples."""
