"""The TFX component: publishes a blessed model to the model repository."""

import json
import logging
from pathlib import Path

from tfx import v1 as tfx
from tfx.utils import path_utils

from components.errors import PushError
from serving.errors import ServingError
from serving.model_repository import ModelRepository, Published

log = logging.getLogger(__name__)
PUSHED_VERSION_PROPERTY = "pushed_version"
PUSHED_PROPERTY = "pushed"
IS_NEW_PROPERTY = "is_new"


@tfx.dsl.components.component
def Pusher(
    model: tfx.dsl.components.InputArtifact[tfx.types.standard_artifacts.Model],
    model_blessing: tfx.dsl.components.InputArtifact[
        tfx.types.standard_artifacts.ModelBlessing
    ],
    pushed_model: tfx.dsl.components.OutputArtifact[
        tfx.types.standard_artifacts.PushedModel
    ],
    base_path: tfx.dsl.components.Parameter[str],
    model_name: tfx.dsl.components.Parameter[str],
) -> None:
    """Publish the model if it is blessed; record its version, or that it was not."""
    published = None
    if model_blessing.get_int_custom_property("blessed") == 1:
        source = Path(path_utils.serving_model_path(model.uri))
        published = publish(source, Path(base_path), model_name)
    pushed_model.set_int_custom_property(PUSHED_PROPERTY, int(published is not None))
    if published is not None:
        version = str(published.version)
        pushed_model.set_string_custom_property(PUSHED_VERSION_PROPERTY, version)
        pushed_model.set_int_custom_property(IS_NEW_PROPERTY, int(published.is_new))
    Path(pushed_model.uri, "push.json").write_text(
        json.dumps(
            {"model": model_name, "version": published and published.version},
        )
    )
    log.info("published: %s", published)


def publish(source: Path, base_path: Path, model_name: str) -> Published:
    """Publish a SavedModel, unless a version holds the same.

    Raises:
        PushError: The repository refuses it.
    """
    try:
        return ModelRepository(base_path, model_name).publish(source)
    except ServingError as error:
        raise PushError(f"push: {error}") from error
