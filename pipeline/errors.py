"""What goes wrong outside the steps: settings, metadata, the run itself.

TaxiwayError
└── PipelineError
    ├── SettingsError     taxiway.yaml, an override or a variable is wrong
    ├── UserCodeError     the project's own modules cannot be used
    ├── MissingExtraError a command needs packages that are not installed
    ├── ScaffoldError     no project can be made from the CSV file
    ├── CacheError        the record of what is cached is damaged
    ├── MetadataError     the history of runs cannot be read
    ├── ReplayError       a version cannot be trained again
    └── StepError         a step could not be started
"""

from serving.errors import TaxiwayError


class PipelineError(TaxiwayError):
    """Something outside the steps is wrong; the message says what to do."""


class SettingsError(PipelineError):
    """The settings are wrong; each line names a file and line, a key and a value."""

    exit_code = 2


class UserCodeError(PipelineError):
    """The project's own modules cannot be used."""


class MissingExtraError(PipelineError):
    """A command needs packages that are not installed."""


class ScaffoldError(PipelineError):
    """No project can be made from the CSV file."""


class CacheError(PipelineError):
    """The record of what is cached is damaged."""


class MetadataError(PipelineError):
    """The history of runs cannot be read."""


class ReplayError(PipelineError):
    """A version cannot be trained again."""


class StepError(PipelineError):
    """A step could not be started."""
