"""Settings of the Pusher."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from serving.settings import Settings

# Set by whoever runs the step: the run's id, for the manifest.
RUN_VARIABLE = "TAXIWAY_RUN_ID"


class PushSettings(Settings):
    """Where blessed models are published."""

    base_path: Path = Path("models")
    """Folder of the model repository: versions are `{base_path}/{model}/{version}`."""
    model: Annotated[str, Field(pattern=r"^[A-Za-z0-9_\-]*$")] = ""
    """Name of the model; the project's name when left out."""
    warm_up_batch_sizes: tuple[Annotated[int, Field(ge=1)], ...] = (1,)
    """Rows of the warm-up requests that are made of the eval split, for every signature
    that it can feed; servers replay them at each load. None: `[]`. A model that brings
    requests of its own keeps them."""
    signing_key: Path | None = None
    """File with a private key of Ed25519 in PEM that signs what is published; servers
    with its public key (`serving.public_key`) load nothing else."""
    allow_breaking: bool = False
    """Push a model even if clients of the stable version would break: an input that was
    renamed, a type or shape that is another, a signature that is gone."""
