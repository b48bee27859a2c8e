"""How many examples/s the model runs in this process, without any server: the bound."""

import json
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from serving.server.loader import LoadedModel  # noqa: E402

SECONDS = 3.0


def main(folder: str, rows: str) -> None:
    """Print examples/s."""
    model = LoadedModel(Path(folder))
    x = np.linspace(0, 1, int(rows) * 20, dtype=np.float32).reshape(-1, 20)
    for _ in range(100):
        model.run("serving_default", {"x": x}, ())
    started, calls = time.perf_counter(), 0
    while time.perf_counter() - started < SECONDS:
        for _ in range(50):
            model.run("serving_default", {"x": x}, ())
        calls += 50
    rate = calls * int(rows) / (time.perf_counter() - started)
    print(json.dumps({"examples_per_s": rate}))


if __name__ == "__main__":
    main(*sys.argv[1:])
