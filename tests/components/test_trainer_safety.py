"""A training survives memory errors, values that are not finite, and being killed."""

import json
import os
import random
import signal
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import trainer_data
from trainer_faults import write_project

from components.errors import ModelError, ResumeError, StorageError
from components.trainer.checkpoints import Checkpoints
from components.trainer.config import RECORD_FILE, TABLE_FILE
from components.trainer.processes import launch
from components.trainer.record import TrainingRecord
from components.trainer.request import SUMMARY_FILE, TrainingRequest
from components.trainer.supervisor import Shrinkings, supervise

pytestmark = pytest.mark.integration

SETTINGS = {
    "hidden_units": [8],
    "batch_size": 64,
    "epochs": 3,
    "steps_per_execution": 8,
    "deterministic": True,
    "checkpoints": {"every_steps": 11, "every_s": 1e9},
    "tensorboard": {"enabled": False},
}
STEPS_PER_EPOCH = 47  # of 3,000 examples in batches of 64


class Project:
    """A request whose parts lie in one folder."""

    def __init__(self, folder: Path, data: Path) -> None:
        self.folder = folder
        self.data = data

    def request(
        self, fault: dict[str, Any] | None = None, **settings: Any
    ) -> TrainingRequest:
        model = write_project(self.folder / "project", fault)
        return TrainingRequest.model_validate_json(
            json.dumps(
                {
                    "table": json.loads((self.data / "table.json").read_text()),
                    "settings": {**SETTINGS, "model": model, **settings},
                    "train_files": [str(self.data / "train" / "*")],
                    "eval_files": [str(self.data / "eval" / "*")],
                    "transform_output": str(self.data / "transform"),
                    "work_dir": str(self.folder / "work"),
                    "export_dir": str(self.folder / "model"),
                    "log_dir": str(self.folder / "log"),
                    "project_root": str(self.folder / "project"),
                }
            )
        )

    def train(self, fault: dict[str, Any] | None = None, **settings: Any) -> Shrinkings:
        (self.folder / "work").mkdir(parents=True, exist_ok=True)
        return supervise(self.request(fault, **settings), launch)

    @property
    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            (self.folder / "log" / SUMMARY_FILE).read_text()
        )
        return found

    @property
    def record(self) -> TrainingRecord:
        return TrainingRecord.model_validate_json(
            (self.folder / "model" / RECORD_FILE).read_text()
        )


@pytest.fixture
def project(tmp_path: Path, small_data: Path) -> Project:
    return Project(tmp_path, small_data)


@pytest.fixture(scope="module")
def undisturbed(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project(tmp_path_factory.mktemp("undisturbed"), small_data)
    project.train()
    return project


def test_an_undisturbed_run_exports_a_model_with_its_record(
    undisturbed: Project,
) -> None:
    loaded = tf.saved_model.load(str(undisturbed.folder / "model"))
    assert "serving_default" in loaded.signatures
    assert (undisturbed.folder / "model" / TABLE_FILE).exists()
    losses = undisturbed.summary["history"]["loss"]
    assert losses[-1] < losses[0]
    assert undisturbed.record.num_steps == 3 * STEPS_PER_EPOCH
    assert undisturbed.record.deterministic
    assert undisturbed.record.micro_batches == ((0, 64),)


def test_a_training_from_a_disk_cache_is_the_same_and_leaves_nothing_of_it(
    project: Project, undisturbed: Project
) -> None:
    project.train(input={"cache": "disk"})
    assert project.record.weight_digests == undisturbed.record.weight_digests
    left = {path.name for path in (project.folder / "work").iterdir()}
    assert left == {"checkpoints", "outcome-0.json", "started.json"}


AT_RANDOM = random.Random().randrange(2, 3 * STEPS_PER_EPOCH)


@pytest.mark.parametrize(
    "step",
    [1, STEPS_PER_EPOCH, 2 * STEPS_PER_EPOCH + 3, AT_RANDOM],
    ids=["first", "last of an epoch", "mid-epoch", f"at random ({AT_RANDOM})"],
)
def test_a_run_that_was_killed_and_resumed_ends_with_the_same_weights(
    step: int, project: Project, undisturbed: Project
) -> None:
    with pytest.raises(ModelError, match="killed by SIGKILL; run again to go on"):
        project.train({"kind": "signal", "signal": signal.SIGKILL, "at": step})
    assert not (project.folder / "model").exists()
    project.train()
    assert project.record.weight_digests == undisturbed.record.weight_digests
    assert project.summary["history"] == undisturbed.summary["history"]


def test_a_killed_export_is_gone_on_with_and_no_step_is_trained_again(
    project: Project, undisturbed: Project
) -> None:
    with pytest.raises(ModelError, match="killed by SIGKILL; run again to go on"):
        project.train({"kind": "export"})
    saved = Checkpoints(project.folder / "work" / "checkpoints", 2).latest()
    assert saved is not None
    assert saved.progress.step == 3 * STEPS_PER_EPOCH
    project.train()
    assert project.record.seconds == round(saved.progress.all_s, 3)
    assert project.record.weight_digests == undisturbed.record.weight_digests
    assert project.summary["history"] == undisturbed.summary["history"]


def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(
    project: Project, undisturbed: Project
) -> None:
    with pytest.raises(ModelError, match="killed by SIGKILL"):
        project.train({"kind": "signal", "signal": signal.SIGKILL, "at": 60})
    checkpoints = project.folder / "work" / "checkpoints"
    newest = max(checkpoints.glob("step-*"))
    data = newest / "values.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-100])
    project.train()
    assert (checkpoints / f"damaged-{newest.name}").is_dir()
    assert project.record.weight_digests == undisturbed.record.weight_digests


@pytest.mark.parametrize("step", [1, STEPS_PER_EPOCH + 5, AT_RANDOM])
def test_sigterm_saves_and_asks_to_be_resumed(
    step: int, project: Project, undisturbed: Project
) -> None:
    with pytest.raises(ResumeError, match="its state is saved: run again") as caught:
        project.train({"kind": "signal", "signal": signal.SIGTERM, "at": step})
    assert caught.value.exit_code == 75
    saved = Checkpoints(project.folder / "work" / "checkpoints", 2).latest()
    assert saved is not None
    assert step <= saved.progress.step <= step + 8
    project.train()
    assert project.record.weight_digests == undisturbed.record.weight_digests
    assert project.summary["history"] == undisturbed.summary["history"]


def test_two_replicas_resume_with_the_same_weights_too(
    project: Project, small_data: Path, tmp_path: Path
) -> None:
    whole = Project(tmp_path / "whole", small_data)
    whole.train(cpu_devices=2)
    with pytest.raises(ModelError, match="SIGKILL"):
        project.train({"kind": "signal", "signal": 9, "at": 120}, cpu_devices=2)
    project.train(cpu_devices=2)
    assert project.record.weight_digests == whole.record.weight_digests


def test_two_workers_outlive_the_loss_of_one_by_a_checkpoint(
    project: Project,
) -> None:
    """The other worker must not wait for ever for the one that was killed."""
    settings = {"num_local_workers": 2, "epochs": 2}
    with pytest.raises(ResumeError, match="another worker is gone.*run again to go on"):
        project.train({"kind": "signal", "signal": 9, "at": 60}, **settings)
    project.train(**settings)
    assert project.summary["replicas"] == 2
    assert project.record.num_steps == 2 * STEPS_PER_EPOCH
    losses = project.summary["history"]["loss"]
    assert losses[-1] < losses[0]


def test_examples_can_be_read_by_a_tf_data_service(project: Project) -> None:
    servers = serve_data()
    dispatcher = servers["dispatcher"]
    project.train(deterministic=False, input={"service": dispatcher.target})
    assert project.summary["steps"] == 3 * STEPS_PER_EPOCH
    losses = project.summary["history"]["val_loss"]
    assert losses[-1] < losses[0]
    del servers


def test_out_of_memory_halves_the_micro_batch_and_keeps_the_effective_batch(
    project: Project, undisturbed: Project
) -> None:
    """T3: a batch that is too large is computed in parts; the result is the same."""
    shrunk = project.train({"kind": "memory", "over": 16})
    assert [time.micro_batch_size for time in shrunk.times] == [64, 32]
    assert project.record.micro_batches == ((0, 16),)  # it never got through a step
    assert "injected" in shrunk.times[0].reason
    summary = project.summary
    assert (summary["micro_batch_size"], summary["accumulation"]) == (16, 4)
    assert summary["effective_batch_size"] == 64
    np.testing.assert_allclose(
        summary["history"]["loss"], undisturbed.summary["history"]["loss"], rtol=1e-4
    )


def test_out_of_memory_in_the_middle_is_noted_for_a_replay(project: Project) -> None:
    project.train({"kind": "memory", "over": 32, "from": 30})
    last_checkpoint = 22
    assert project.record.micro_batches == ((0, 64), (last_checkpoint, 32))


def test_an_address_space_limit_takes_the_process_but_not_the_run(
    project: Project,
) -> None:
    """T3 with a real limit: TensorFlow has none for CPU devices."""
    shrunk = project.train(
        {"kind": "limit", "bytes": 600_000_000},
        batch_size=4096,
        epochs=1,
        steps_per_execution=1,
    )
    assert shrunk.times
    assert project.summary["micro_batch_size"] < 4096
    assert project.summary["effective_batch_size"] == 4096


def test_too_little_memory_for_one_example_ends_with_a_sentence(
    project: Project,
) -> None:
    with pytest.raises(ModelError, match="out of memory with 8 examples at a time"):
        project.train({"kind": "memory", "over": 0}, memory_retries=3)


@pytest.fixture
def with_a_nan(tmp_path: Path, small_data: Path) -> Path:
    """T4: the small data, with NaN in one value of one row."""
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("transform", "eval", "table.json"):
        (folder / name).symlink_to(small_data / name)
    values = trainer_data.columns(3000)
    values["z"][1234] = np.nan
    trainer_data.write_examples(folder / "train" / "one.gz", values)
    return folder


@pytest.mark.parametrize("cache", ["memory", "none"])
def test_a_nan_stops_training_and_names_the_feature_and_the_row(
    cache: str, tmp_path: Path, with_a_nan: Path
) -> None:
    project = Project(tmp_path, with_a_nan)
    with pytest.raises(
        ModelError,
        match=r"the loss is not finite at step \d+ \(epoch 1\): "
        r"z is nan in row 1234 of train/one.gz; trainer.nan_policy",
    ):
        project.train(input={"cache": cache})
    assert not (tmp_path / "model").exists()


def test_a_nan_is_skipped_by_policy_and_the_weights_stay_finite(
    tmp_path: Path, with_a_nan: Path
) -> None:
    project = Project(tmp_path, with_a_nan)
    project.train(nan_policy="skip")
    assert len(project.summary["skipped_steps"]) == 3  # once an epoch
    model = tf.saved_model.load(str(tmp_path / "model"))
    assert all(np.isfinite(v.numpy()).all() for v in model.model_variables)
    losses = project.summary["history"]["val_loss"]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"cpu_devices": 2, "batch_size": 63}, "got 63, which does not divide by 2"),
        ({"strategy": "multi_worker"}, "nothing says who the workers are"),
        ({"strategy": "tpu"}, "got tpu, but TensorFlow sees none"),
        ({"device": "cpu", "all_reduce": "nccl"}, "got nccl, which needs GPUs"),
    ],
)
def test_what_cannot_be_is_said_before_training_starts(
    settings: dict[str, Any], sentence: str, project: Project
) -> None:
    with pytest.raises(ModelError, match=sentence):
        project.train(**settings)
    assert not (project.folder / "work" / "checkpoints").exists()


@pytest.mark.parametrize("config", ["{", '{"cluster": {"worker": ["a:1", "b:1"]}}'])
def test_a_wrong_tf_config_is_said_in_its_own_sentence(
    config: str, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(ModelError, match=r"^TF_CONFIG "):
        project.train()


@pytest.mark.parametrize(
    ("message", "status", "said"),
    [
        (
            "OOM when allocating tensor with shape[4096,8192]",
            "out_of_memory",
            "OOM when allocating tensor with shape[4096,8192]",
        ),
        (
            "/run/values.data; No space left on device [Op:SaveV2]",
            "failed",
            (
                "/run/values.data: No space left on device; free some space there, then "
                "run again"
            ),
        ),
    ],
)
def test_a_full_disk_is_no_lack_of_memory(
    message: str, status: str, said: str, project: Project
) -> None:
    from components.trainer.ending import ending

    error = tf.errors.ResourceExhaustedError(None, None, message)
    outcome = ending(error, project.request())
    assert (outcome.status, outcome.message) == (status, said)


def test_a_work_folder_that_is_gone_is_told_in_a_sentence(project: Project) -> None:
    """What the process says reaches its parent though it cannot be written."""
    work = project.folder / "work"
    with pytest.raises(
        ModelError, match=rf"^{work}\S*: Not a directory; remove the file that is in"
    ):
        project.train({"kind": "gone", "folder": str(work), "at": 30})
    with pytest.raises(StorageError, match=rf"^{work}\S*: Not a directory; remove"):
        supervise(project.request(), launch)


ENDS = """
import os, sys
def by_sys(inputs):
    sys.exit()
def by_os(inputs):
    os._exit(0)
"""


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (
            "by_sys",
            (
                r"^trainer.model: ends.by_sys: sys.exit\(\) was called; raise an exception "
                r"that says why instead \(ends.py:4 in by_sys\)$"
            ),
        ),
        ("by_os", r"ended with exit code 0 before it could say why: trainer.model"),
    ],
)
def test_a_model_function_that_ends_the_process_is_an_error(
    function: str, sentence: str, project: Project
) -> None:
    request = project.request(model=f"ends.{function}")
    (project.folder / "project" / "ends.py").write_text(ENDS)
    with pytest.raises(ModelError, match=sentence):
        supervise(request, launch)


@pytest.mark.parametrize(
    ("step", "error", "sentence"),
    [
        (5, ModelError, "3 s of being asked to stop, and was killed before its first"),
        (30, ResumeError, "and was killed; its last checkpoint stands: run again"),
    ],
)
def test_a_process_that_hangs_does_not_outlive_being_asked_to_stop(
    step: int, error: type[Exception], sentence: str, project: Project
) -> None:
    request = project.request({"kind": "hang", "tell": os.getpid(), "at": step})
    with pytest.raises(error, match=sentence):
        supervise(request, partial(launch, stop_limit_s=3.0))
    project.train()
    assert project.record.num_steps == 3 * STEPS_PER_EPOCH


@pytest.mark.parametrize(
    ("lost", "why"),
    [
        ("worker", r"^tf.data service at grpc://\S+ \(trainer.input.service\) \w.*, "),
        ("dispatcher", ""),  # its workers go on without it
    ],
)
def test_a_service_that_is_gone_does_not_keep_a_run_from_stopping(
    lost: str, why: str, project: Project
) -> None:
    servers = serve_data()
    request = project.request(
        deterministic=False,
        epochs=100_000,
        input={"service": servers["dispatcher"].target},
    )
    checkpoints = project.folder / "work" / "checkpoints"

    def strike() -> None:
        while not list(checkpoints.glob("step-*")):
            time.sleep(0.1)
        servers[lost]._stop()
        time.sleep(2)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=strike, daemon=True).start()
    with pytest.raises(
        ResumeError,
        match=rf"{why}stopped after step \d+; its state is saved: run again",
    ):
        supervise(request, launch)
    assert Checkpoints(checkpoints, 2).latest() is not None


def serve_data() -> dict[str, Any]:
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    address = dispatcher.target.split("://")[1]
    worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=address))
    return {"dispatcher": dispatcher, "worker": worker}
