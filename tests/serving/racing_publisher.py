"""Publishes one model after the other, until it is killed: BASE_PATH FOLDER NAME SEED.

Says of each which version it is. Its clock is wrong by as many hours as the seed says.
"""

import random
import sys
import time
from pathlib import Path

from saved_models import saved_model

from serving.model_repository import ModelRepository


def main(base_path: Path, folder: Path, name: str, seed: int) -> None:
    """Publish without end; one in three is a model that was published before."""
    draw = random.Random(seed)
    now, broken_down = time.time, time.gmtime
    time.time = lambda: now() + draw.randint(-48, 48) * 3600.0
    time.gmtime = lambda seconds=None: broken_down(  # type: ignore[assignment]
        time.time() if seconds is None else seconds
    )
    repository = ModelRepository(base_path, "m")
    number = 0
    while True:
        number += draw.random() < 0.67 or not number
        source = folder / f"{name}-{number}"
        if not source.exists():
            saved_model(source, f"{name}-{number}")
        published = repository.publish(source)
        print(f"{name}-{number} {published.version}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
