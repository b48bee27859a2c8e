"""Publishers with wrong clocks, a killer and a reader at once: old or new, never part."""

import os
import random
import subprocess
import sys
import threading
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from serving.model_repository import ModelRepository

pytestmark = pytest.mark.integration
PUBLISHER = Path(__file__).with_name("racing_publisher.py")
ROOT = Path(__file__).parents[2]
NUM_PUBLISHERS, NUM_KILLS = 3, 12


@pytest.mark.parametrize("seed", [1, 2])
def test_readers_only_ever_see_whole_versions(tmp_path: Path, seed: int) -> None:
    draw, pause = random.Random(seed), threading.Event()
    repository = ModelRepository(tmp_path / "models", "m")
    said: dict[str, list[str]] = {}
    seen: list[list[int]] = []

    def start(name: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, str(PUBLISHER), str(repository.folder.parent)]
        command += [str(tmp_path), name, str(draw.randint(0, 99))]
        paths = [str(ROOT), str(ROOT / "tests" / "serving")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        with (tmp_path / f"{name}.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    running = [start(f"p{number}") for number in range(NUM_PUBLISHERS)]
    kills = 0
    try:
        while kills < NUM_KILLS:
            seen.append(repository.versions())
            for version in seen[-1][-3:]:
                assert repository.verify(version) == []
            if len(seen[-1]) < 3 or draw.random() < 0.7:
                pause.wait(draw.random() * 0.05)
                continue
            victim = draw.randrange(len(running))
            running[victim].kill()
            running[victim].wait()
            kills += 1
            running[victim] = start(f"p{NUM_PUBLISHERS + kills}")
            pause.wait(draw.random() * 0.2)
    finally:
        for process in running:
            process.kill()
            process.wait()
    for earlier, later in pairwise(seen):
        assert set(earlier) <= set(later)
        assert not later or set(later) - set(earlier) <= set(
            range(max(earlier, default=0) + 1, later[-1] + 1)
        )
    repository.collect_garbage()
    names = {path.name for path in repository.folder.iterdir()}
    assert not [name for name in names if name.startswith((".staging", ".retired"))]
    for log in tmp_path.glob("p*.log"):
        lines = log.read_text().splitlines()
        said[log.stem] = lines
        assert not [line for line in lines if "Error" in line]
    held = defaultdict(set)
    for model, version in (line.split() for lines in said.values() for line in lines):
        held[model].add(int(version))
        folder = repository.path(int(version))
        content = (folder / "variables" / "variables.index").read_text()
        assert content == model
    assert all(len(versions) == 1 for versions in held.values())
