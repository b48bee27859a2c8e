"""Real runs of a small project: what runs, what is cached, and what stops a run.

The tests are in the order of one project's life, since a run takes half a minute;
each says what it needs from those before it.
"""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from components.errors import DataError
from pipeline import steps
from pipeline.config import load_settings
from pipeline.errors import UserCodeError
from pipeline.metadata import History
from pipeline.runners.local import run_pipeline
from pipeline.runners.record import RunRecord, StepRecord
from pipeline.runners.words import unblessed_words
from serving import apis, tfrecord
from serving.model_repository import ModelRepository
from serving.warm_up_requests import FILE

pytestmark = pytest.mark.e2e
DATA = Path(__file__).parents[1] / "data" / "flights" / "flights.csv"

SETTINGS = """
project: small
data:
  files: flights.csv
  split: {by: column, column: month, train: [1, 2, 3, 4, 5, 6, 7, 8], eval: [9]}
label: {column: late, kind: binary, missing: drop}
features:
  distance: {kind: numeric}
  hour: {kind: cyclic, dtype: int, period: 24}
  origin: {kind: categorical}
schema: {on_anomaly: warn}
trainer: {model: my_model.build_model, batch_size: 64, epochs: 1}
evaluator:
  slices: [origin]
  min_slice_examples: 5
  thresholds: {auc: {min: 0.01}}
"""

MODEL = """
import keras

from my_layers import head


def build_model(inputs):
    layers = {i.name: keras.Input((1,), name=i.name, dtype=i.dtype) for i in inputs.inputs}
    joined = keras.layers.Concatenate()(
        [keras.ops.cast(layer, "float32") for layer in layers.values()]
    )
    return keras.Model(layers, head(joined))
"""

LAYERS = """
import keras


def head(joined):
    return keras.layers.Dense(1, activation="sigmoid")(joined)
"""


class Recorder:
    """A display that remembers what it was told."""

    def __init__(self) -> None:
        self.waited_for: list[str] = []
        self.loads = 0

    def waiting(self, pid: str) -> None:
        self.waited_for.append(pid)

    def started(self, record: RunRecord) -> None: ...

    def loading(self) -> None:
        self.loads += 1

    def loaded(self, seconds: float) -> None: ...

    def running(self, step: StepRecord) -> None: ...

    def progress(self, text: str) -> None: ...

    def finished(self, step: StepRecord) -> None: ...


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project")
    shutil.copy(DATA, root)
    (root / "taxiway.yaml").write_text(SETTINGS)
    (root / "my_model.py").write_text(MODEL)
    (root / "my_layers.py").write_text(LAYERS)
    (root / "README.md").write_text("A small project.\n")
    return root


def run(project: Path, *overrides: str) -> tuple[RunRecord, Recorder]:
    display = Recorder()
    settings = load_settings(project, overrides, environ={})
    return run_pipeline(settings, display, time.monotonic), display


def states(record: RunRecord) -> dict[str, str]:
    return {step.id: step.state for step in record.steps}


def ran(record: RunRecord) -> list[str]:
    return [step.id for step in record.steps if step.state == "done"]


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_a_first_run_goes_from_a_file_to_a_published_version(project: Path) -> None:
    record, display = run(project)
    failed = [
        f"{s.id}: {s.reason}\n{Path(s.log or '').read_text()}"
        for s in record.steps
        if s.state == "failed"
    ]
    assert not failed
    assert record.status == "pushed"
    assert ran(record) == [step.id for step in steps.STEPS]
    assert display.loads == 1
    counts = record.step("ExampleGen").summary
    assert counts["num_rows"] == 444
    assert ModelRepository(project / "models", "small").versions() == [1]


def test_a_version_tells_its_run_and_brings_requests_to_warm_it_up(
    project: Path,
) -> None:
    repository = ModelRepository(project / "models", "small")
    manifest = repository.manifest(1)
    assert manifest is not None
    runs = {path.name for path in (project / ".taxiway" / "runs").iterdir()}
    assert manifest.run in runs
    assert 0 < manifest.facts["metrics"]["auc"] <= 1
    signatures = {"serving_default", "serving_columns"}
    assert signatures <= manifest.signatures.keys()
    assert repository.verify(1) == []
    with (repository.path(1) / FILE).open("rb") as records:
        logs = [apis.PredictionLog.FromString(r) for r in tfrecord.read(records)]
    asked = {log.predict_log.request.model_spec.signature_name for log in logs}
    assert signatures <= asked


def test_a_second_run_does_no_work_and_pushes_nothing(project: Path) -> None:
    record, display = run(project)
    assert ran(record) == []
    assert record.status == "unchanged"
    assert display.loads == 0
    assert ModelRepository(project / "models", "small").versions() == [1]


def test_an_unchanged_run_does_not_import_tfx(project: Path) -> None:
    program = (
        "import sys\nfrom pipeline.cli import main\ncode = main(sys.argv[1:])\n"
        "print('tfx' in sys.modules, 'tensorflow' in sys.modules, code)"
    )
    arguments = [sys.executable, "-c", program, "-c", str(project), "run"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False False 0"
    assert "nothing has changed: version 1 stands" in done.stdout


def test_an_edited_readme_runs_nothing(project: Path) -> None:
    (project / "README.md").write_text("Edited.\n")
    assert ran(run(project)[0]) == []


def test_an_edit_behind_the_model_function_runs_trainer_and_later_steps(
    project: Path,
) -> None:
    edit(project / "my_layers.py", "Dense(1,", "Dense(1, use_bias=False,")
    record, _ = run(project)
    assert ran(record) == ["Trainer", "Evaluator", "Pusher"]
    assert states(record)["Transform"] == "cached"
    assert record.step("Evaluator").summary["baseline_version"] == 1
    assert record.step("Pusher").summary["version"] == 2


def test_history_and_lineage_are_in_ml_metadata(project: Path) -> None:
    runs = History(load_settings(project, environ={}).metadata_path).runs()
    assert [run.version for run in runs] == ["2", "1"]
    newest = {
        execution.step.split(".")[-1]: execution for execution in runs[0].executions
    }
    assert newest["Transform"].state == "cached"
    [examples] = newest["ExampleGen"].outputs
    assert Path(examples.uri, "Split-train").is_dir()


def test_a_deleted_version_is_published_again(project: Path) -> None:
    """Under a number of its own: 2 may be in a cache somewhere."""
    shutil.rmtree(project / "models" / "small" / "2")
    record, _ = run(project)
    assert ran(record) == ["Pusher"]
    assert record.step("Pusher").summary["version"] == 3


def test_an_unblessed_model_is_not_pushed_and_the_reason_has_numbers(
    project: Path,
) -> None:
    record, _ = run(project, "evaluator.thresholds.auc.min=0.999")
    assert record.status == "not blessed"
    assert ran(record) == ["Evaluator", "Pusher"]
    [reason] = unblessed_words(record)
    assert reason.startswith("auc 0.")
    assert "below 0.999, n=" in reason
    assert ModelRepository(project / "models", "small").versions() == [1, 3]


TRANSFORM = """
import keras
import tensorflow as tf

from components.transform.preprocess import preprocessing_fn as from_table


def preprocessing_fn(inputs, custom_config):
    outputs = from_table(inputs, custom_config)
    origin = tf.sparse.to_dense(inputs["origin"], default_value="")
    outputs["is_jfk"] = tf.reshape(tf.cast(origin == "JFK", tf.float32), [-1, 1])
    return outputs


def build_model(inputs):
    is_jfk = keras.Input((1,), name="is_jfk")
    output = keras.layers.Dense(1, activation="sigmoid")(is_jfk)
    return keras.Model({"is_jfk": is_jfk}, output)
"""


def test_a_preprocessing_function_of_the_project_feeds_its_model(project: Path) -> None:
    (project / "my_transform.py").write_text(TRANSFORM)
    record, _ = run(
        project,
        "transform.preprocessing_fn=my_transform.preprocessing_fn",
        "trainer.model=my_transform.build_model",
    )
    assert ran(record) == ["Transform", "Trainer", "Evaluator", "Pusher"]
    assert record.status == "pushed"


def test_a_failing_model_function_is_named_with_file_and_line(project: Path) -> None:
    edit(
        project / "my_layers.py",
        "return keras",
        "raise RuntimeError('boom')\n    return keras",
    )
    record, _ = run(project)
    trainer = record.step("Trainer")
    assert record.status == "failed"
    assert trainer.state == "failed"
    assert trainer.reason == "RuntimeError: boom (my_layers.py:6 in head)"
    assert "boom" in Path(trainer.log or "").read_text()
    assert states(record)["Evaluator"] == "not run"


def test_what_a_model_function_returns_is_checked(project: Path) -> None:
    (project / "other_model.py").write_text("def build_model(inputs):\n    return 3\n")
    record, _ = run(project, "trainer.model=other_model.build_model")
    assert record.step("Trainer").reason == (
        "trainer.model: other_model.build_model returned int, "
        "not a keras.Model (Keras 3: `import keras`)"
    )


def test_a_step_that_is_killed_is_a_failure_that_says_so(project: Path) -> None:
    (project / "deadly.py").write_text(
        "import os, signal\n\ndef build_model(inputs):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    record, _ = run(project, "trainer.model=deadly.build_model")
    assert "killed by SIGKILL" in (record.step("Trainer").reason or "")


def test_an_anomaly_against_a_curated_schema_stops_the_run_before_training(
    project: Path,
) -> None:
    state = project / ".taxiway" / "pipeline" / "SchemaGen" / "schema"
    inferred = next(state.rglob("schema.pbtxt")).read_text()
    curated = inferred.replace('value: "JFK"\n', "")
    assert curated != inferred
    (project / "schema.pbtxt").write_text(curated)
    record, _ = run(project, "schema.file=schema.pbtxt", "schema.on_anomaly=error")
    validator = record.step("ExampleValidator")
    assert validator.state == "failed"
    assert states(record)["Trainer"] == "not run"
    assert "origin" in (validator.reason or "")
    assert "JFK" in (validator.reason or "")
    assert "ENUM_TYPE_UNEXPECTED_STRING_VALUES" in (validator.reason or "")


def test_a_constant_label_stops_the_run_in_one_sentence(project: Path) -> None:
    lines = DATA.read_text().splitlines()
    constant = [lines[0], *(f"0{line[1:]}" for line in lines[1:] if line[0] in "01")]
    (project / "constant.csv").write_text("\n".join(constant) + "\n")
    record, _ = run(project, "data.files=constant.csv")
    reason = record.step("ExampleGen").reason or ""
    assert reason.startswith("label 'late' is constant: '0' in all ")
    assert "\n" not in reason


def test_what_can_be_known_at_once_is_said_before_tfx_is_loaded(project: Path) -> None:
    with pytest.raises(DataError, match="no column 'lateness'; the file has: late, "):
        run(project, "label.column=lateness")
    with pytest.raises(UserCodeError, match="my_model.py has no 'build'"):
        run(project, "trainer.model=my_model.build")
