"""Imports TFX once, in the process that every step's process is forked from.

Nothing here may initialise TensorFlow's devices: each step configures its own.
"""

import os
import sys

LOG_VARIABLE = "TAXIWAY_PRELOAD_LOG"


def redirect(path: str) -> None:
    """Send standard output and error of this process to the end of a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def _preload() -> None:
    # TFX before anything else that imports tensorflow_data_validation: TFX 1.21
    # puts a stand-in for a module that TFDV 1.16 wants.
    from tfx import v1 as tfx

    missing = [name for name, value in vars(tfx.components).items() if value is None]
    if missing:
        raise RuntimeError(f"TFX came without {', '.join(missing)}: broken install")
    import pipeline.runners.launch  # noqa: F401

    # tensorflow_transform asks for Keras 2 when imported, for all of the process.
    os.environ["TF_USE_LEGACY_KERAS"] = "0"


if LOG_VARIABLE in os.environ:
    redirect(os.environ[LOG_VARIABLE])
    _preload()
