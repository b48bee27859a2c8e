"""Imports TFX once, in the process that every step's process is forked from.

Only that process imports this module: importing it is its work. Nothing here may
initialise TensorFlow's devices, for each step configures its own.
"""

import os
from importlib import import_module

from components.trainer.processes import outlive_sigterm
from pipeline.runners.output import LOG_VARIABLE, redirect


def _preload() -> None:
    # TFX before anything else that imports tensorflow_data_validation: TFX 1.21
    # puts a stand-in for a module that TFDV 1.16 wants.
    from tfx import v1 as tfx

    missing = [name for name, value in vars(tfx.components).items() if value is None]
    if missing:
        raise RuntimeError(f"TFX came without {', '.join(missing)}: broken install")
    for module in ("pipeline.runners.launch", "components.trainer.process"):
        import_module(module)

    # tensorflow_transform asks for Keras 2 when imported, for all of the process.
    os.environ["TF_USE_LEGACY_KERAS"] = "0"


outlive_sigterm()
redirect(os.environ.pop(LOG_VARIABLE))
_preload()
