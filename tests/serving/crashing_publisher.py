"""Publishes a model and dies at one of its file operations: NUMBER BASE_PATH SOURCE.

Exits with 0 if it has fewer operations than that.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from serving.model_repository import ModelRepository

OPERATIONS = (
    *("open", "os.rename", "os.mkdir", "os.chmod", "os.remove", "os.rmdir"),
    *("fcntl.flock", "os.scandir", "os.truncate", "os.listdir", "shutil.copytree"),
)


def main(number: int, base_path: Path, source: Path) -> None:
    """Count audited operations below the repository, and die at one."""
    count = 0

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if event not in OPERATIONS:
            return
        is_ours = any(str(base_path) in str(given) for given in arguments)
        if is_ours or event == "fcntl.flock":
            count += 1
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(audit)
    ModelRepository(base_path, "m").publish(source)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    main(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
