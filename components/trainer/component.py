"""The TFX component: trains on transformed examples and writes a model."""

import hashlib
import json
import os
import shutil
from pathlib import Path

from tfx import v1 as tfx
from tfx.types import Artifact, artifact_utils
from tfx.utils import io_utils, path_utils

from components.features import FeatureTable
from components.trainer.config import (
    KEY_VARIABLE,
    PROGRESS_VARIABLE,
    RECORD_FILE,
    TrainerSettings,
)
from components.trainer.processes import launch
from components.trainer.record import TrainingRecord, digests
from components.trainer.request import (
    SUMMARY_FILE,
    Digests,
    TrainingRequest,
    write_json,
)
from components.trainer.supervisor import supervise

MAX_UNFINISHED = 5
"""Trainings that were begun and not finished, whose checkpoints are kept."""


@tfx.dsl.components.component
def Trainer(
    examples: tfx.dsl.components.InputArtifact[tfx.types.standard_artifacts.Examples],
    transform_graph: tfx.dsl.components.InputArtifact[
        tfx.types.standard_artifacts.TransformGraph
    ],
    model: tfx.dsl.components.OutputArtifact[tfx.types.standard_artifacts.Model],
    model_run: tfx.dsl.components.OutputArtifact[tfx.types.standard_artifacts.ModelRun],
    settings: tfx.dsl.components.Parameter[str],
    feature_table: tfx.dsl.components.Parameter[str],
    project_root: tfx.dsl.components.Parameter[str],
    state_dir: tfx.dsl.components.Parameter[str],
) -> None:
    """Train in processes of its own; note the record beside the model and in MLMD.

    A training that was interrupted is gone on with when the same is asked for: the
    same settings, data, Transform graph and code.
    """
    progress = os.environ.get(PROGRESS_VARIABLE)
    request = TrainingRequest(
        table=FeatureTable.model_validate_json(feature_table),
        settings=TrainerSettings.model_validate_json(settings),
        train_files=_patterns(examples, "train"),
        eval_files=_patterns(examples, "eval"),
        transform_output=transform_graph.uri,
        work_dir=Path(state_dir),
        export_dir=Path(path_utils.serving_model_dir(model.uri)),
        log_dir=Path(model_run.uri),
        project_root=Path(project_root),
        progress_file=Path(progress) if progress else None,
    )
    found = digests(request)
    key = training_key(request, found, os.environ.get(KEY_VARIABLE, ""))
    work_dir = Path(state_dir) / key
    request = request.model_copy(update={"work_dir": work_dir, "digests": found})
    forget_old(Path(state_dir), MAX_UNFINISHED)
    shrunk = supervise(request, launch)
    summary = request.log_dir / SUMMARY_FILE
    content = json.loads(summary.read_text())
    write_json(summary, {**content, "out_of_memory": shrunk.model_dump()["times"]})
    made = TrainingRecord.model_validate_json(
        (request.export_dir / RECORD_FILE).read_text()
    )
    for name, value in properties(made).items():
        model.set_string_custom_property(name, value)
    shutil.rmtree(work_dir, ignore_errors=True)


def training_key(request: TrainingRequest, found: Digests, step_key: str) -> str:
    """Return what an interrupted training is found again by."""
    asked = [
        request.settings.model_dump_json(),
        request.table.model_dump_json(),
        found.data,
        found.transform,
        step_key,
    ]
    return hashlib.sha256("\n".join(asked).encode()).hexdigest()[:16]


def forget_old(folder: Path, keep: int) -> None:
    """Remove the checkpoints of all unfinished trainings but the newest."""
    if folder.is_dir():
        newest = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)
        for path in newest[: max(0, len(newest) - keep)]:
            shutil.rmtree(path, ignore_errors=True)


def properties(made: TrainingRecord) -> dict[str, str]:
    """Return the record as properties of an artifact, all but its longest parts."""
    content = made.model_dump(mode="json", exclude={"request", "weight_digests"})
    texts = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in content.items()
    }
    last = made.weight_digests[-1][1] if made.weight_digests else ""
    return {**texts, "weights_digest": last}


def _patterns(examples: Artifact, split: str) -> tuple[str, ...]:
    uris = artifact_utils.get_split_uris([examples], split)
    return tuple(io_utils.all_files_pattern(uri) for uri in uris)
