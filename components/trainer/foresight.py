"""What a training would run on here, decided as a training process does; starts none."""

import os
from typing import Any

from components.trainer import devices, precision
from components.trainer.cluster import find_cluster
from components.trainer.processes import environments
from components.trainer.record import device_names
from components.trainer.request import TrainingRequest


def foresee(request: TrainingRequest) -> dict[str, Any]:
    """Return it by the names of the record's fields.

    What only shows while a model is built or trained is left out: what XLA can compile,
    and what memory demands.

    Raises:
        ModelError: The settings demand what is not there.
    """
    settings = request.settings
    cluster = find_cluster(
        settings.workers,
        {**os.environ, **environments(request)[0]},
        served=settings.strategy == "parameter_server",
    )
    planned = devices.plan(settings, devices.take_inventory(), cluster)
    # A process that trains on the CPU hides the GPUs from itself.
    gpus = precision.capabilities() if planned.device_type == "GPU" else []
    return {
        "devices": device_names(planned.device_type, planned.num_devices),
        "strategy": str(planned),
        "num_replicas": planned.num_replicas,
        "precision": precision.decide(settings.precision, gpus).name,
        "accumulation": request.accumulation,
        "micro_batch_size": devices.micro_batch_size(
            settings.batch_size, request.accumulation, planned.num_replicas
        ),
    }
