"""The one way a section of the settings file is declared: frozen and strict."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """An immutable section of `taxiway.yaml`; an unknown key is an error."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True
    )
