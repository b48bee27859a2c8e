"""The TFX component: pushes a blessed model."""

import gzip
import json
import logging
import os
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from tfx import v1 as tfx
from tfx.types import artifact_utils
from tfx.utils import path_utils

from components.evaluator.verdict import VERDICT_FILE
from components.pusher.config import RUN_VARIABLE, PushSettings
from components.pusher.push import push
from serving import tfrecord
from serving.model_repository import Origin

log = logging.getLogger(__name__)
PUSHED_VERSION_PROPERTY = "pushed_version"
PUSHED_PROPERTY = "pushed"
PUSH_FILE = "push.json"


@tfx.dsl.components.component
def Pusher(
    model: tfx.dsl.components.InputArtifact[tfx.types.standard_artifacts.Model],
    model_blessing: tfx.dsl.components.InputArtifact[
        tfx.types.standard_artifacts.ModelBlessing
    ],
    evaluation: tfx.dsl.components.InputArtifact[
        tfx.types.standard_artifacts.ModelEvaluation
    ],
    examples: tfx.dsl.components.InputArtifact[tfx.types.standard_artifacts.Examples],
    pushed_model: tfx.dsl.components.OutputArtifact[
        tfx.types.standard_artifacts.PushedModel
    ],
    settings: tfx.dsl.components.Parameter[str],
    servers: tfx.dsl.components.Parameter[str],
    timeout_s: tfx.dsl.components.Parameter[float],
) -> None:
    """Push the model if it is blessed; record what became of it.

    Args:
        model: The trained model.
        model_blessing: The Evaluator's.
        evaluation: The Evaluator's, whose metrics go into the manifest.
        examples: The eval split makes warm-up requests.
        pushed_model: Gets the version, and `push.json` with all that is known.
        settings: A PushSettings as JSON.
        servers: gRPC addresses that must take it, as a JSON list.
        timeout_s: How long they may take.
    """
    pushed = None
    if model_blessing.get_int_custom_property("blessed") == 1:
        wanted = PushSettings.model_validate_json(settings)
        eval_split = Path(artifact_utils.get_split_uri([examples], "eval"))
        pushed = push(
            Path(path_utils.serving_model_path(model.uri)),
            wanted,
            json.loads(servers),
            timeout_s,
            origin(Path(evaluation.uri, VERDICT_FILE)),
            first_examples(eval_split, max(wanted.warm_up_batch_sizes, default=0)),
        )
        pushed_model.set_string_custom_property(
            PUSHED_VERSION_PROPERTY, str(pushed.version)
        )
    is_pushed = pushed is not None and not pushed.problem
    pushed_model.set_int_custom_property(PUSHED_PROPERTY, int(is_pushed))
    content = None if pushed is None else asdict(pushed)
    Path(pushed_model.uri, PUSH_FILE).write_text(json.dumps(content, indent=1))
    log.info("pushed: %s", content)


def first_examples(split: Path, count: int) -> list[bytes]:
    """Return the first examples of a split, serialized."""
    found: list[bytes] = []
    for shard in sorted(split.iterdir()):
        with gzip.open(shard) as records:
            found.extend(islice(tfrecord.read(records), count - len(found)))
        if len(found) >= count:
            break
    return found


def origin(verdict_file: Path) -> Origin:
    """Return where the model comes from: the run, and how it was judged."""
    verdict = json.loads(verdict_file.read_text())
    return Origin(os.environ.get(RUN_VARIABLE, ""), (("metrics", verdict["metrics"]),))
