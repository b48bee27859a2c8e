"""Prepares the process that training processes are forked from.

Only that process imports this module: importing it is its work. Nothing here may
initialise TensorFlow's devices, for each training process configures its own.
"""

from importlib import import_module

from components.trainer.processes import outlive_sigterm

outlive_sigterm()
import_module("components.trainer.process")
