"""What a step raises when the cause is the user's data, settings or model.

TaxiwayError
└── ComponentError
    ├── DataError        the data cannot be read, typed, split or learnt from
    ├── AnomalyError     the data does not fit the schema
    ├── ModelError       the model function or what it returned is unusable
    ├── CheckpointError  a checkpoint is damaged
    ├── StorageError     a file cannot be written
    ├── ResumeError      the step was asked to stop and has saved its state
    └── PushError        the model cannot be published
"""

from serving.errors import TaxiwayError


class ComponentError(TaxiwayError):
    """A step cannot do its work; the message says why and what to do."""


class DataError(ComponentError):
    """The data cannot be read, typed, split or learnt from."""


class AnomalyError(ComponentError):
    """The data does not fit the schema, and the settings say to stop."""


class ModelError(ComponentError):
    """The model function, or what it returned, is unusable."""


class CheckpointError(ComponentError):
    """A checkpoint is damaged: files are missing, cut off, or hold other bytes."""


class StorageError(ComponentError):
    """A file cannot be written: the disk is full, read-only or gone."""


class ResumeError(ComponentError):
    """The step was asked to stop; its state is saved, the run can be started again."""

    exit_code = 75  # EX_TEMPFAIL of sysexits.h: the user is invited to try again


class PushError(ComponentError):
    """The model cannot be published."""
