"""`taxiway models`, `promote`, `rollback`, `retire` and `verify`, beside a server."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.cli import main
from serving.client import Which, connect
from serving.errors import ClientError
from serving.model_repository import ModelRepository, Origin
from serving.server.process import EmbeddedServer

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60.0
SETTINGS = """\
project: half
data: {files: rows.csv}
label: {column: y, kind: regression}
features:
  x: {kind: numeric}
serving: {grpc_port: GRPC, rest_port: REST, poll_interval_s: 0.2}
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


class Project:
    """A project whose model is `half_plus_two`, each version another file of it."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.folder, self._model = folder, model
        self.ports = free_port(), free_port()
        text = SETTINGS.replace("GRPC", str(self.ports[0]))
        text = text.replace("REST", str(self.ports[1]))
        (folder / "taxiway.yaml").write_text(text)
        self.repository = ModelRepository(folder / "models", "half")
        self._number = 0

    def publish(self) -> int:
        """Publish another version."""
        self._number += 1
        source = self.folder / f"source-{self._number}"
        shutil.copytree(self._model, source)
        (source / "assets.extra").mkdir()
        (source / "assets.extra" / "number").write_text(str(self._number))
        origin = Origin("run-7", (("metrics", {"auc": 0.71}),))
        return self.repository.publish(source, origin).version

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Run `taxiway serve` meanwhile."""
        process = subprocess.Popen(
            [sys.executable, "-m", "pipeline", "serve"],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            for _ in range(3):
                assert process.stdout.readline()
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=TIMEOUT_S)

    def states(self) -> dict[int, str]:
        client = connect("grpc", f"127.0.0.1:{self.ports[0]}", "half")
        try:
            return {entry.version: entry.state for entry in client.status(5.0)}
        finally:
            client.close()

    def unlabelled(self) -> int:
        """Return the version that answers a request which asks for none."""
        import grpc

        from serving import apis
        from serving.tensors import to_proto

        request = apis.PredictRequest()
        request.model_spec.name = "half"
        request.inputs["x"].CopyFrom(to_proto(np.array([2.0], np.float32)))
        with grpc.insecure_channel(f"127.0.0.1:{self.ports[0]}") as channel:
            call = channel.unary_unary(f"/{apis.PREDICTION_SERVICE}/Predict")
            answer = call(request.SerializeToString(), timeout=5.0)
        return int(apis.PredictResponse.FromString(answer).model_spec.version.value)


def asked(project: Project, api: Any, which: Which) -> list[float]:
    port = project.ports[0 if api == "grpc" else 1]
    client = connect(api, f"127.0.0.1:{port}", "half", which)
    try:
        x = np.array([2.0], np.float32)
        (output,) = client.predict({"x": x}, "serving_default", 5.0).values()
    finally:
        client.close()
    answer: list[float] = output.ravel().tolist()
    return answer


def until(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(int(TIMEOUT_S / 0.05)):
        if condition():
            return
        pause.wait(0.05)
    pytest.fail("it did not come to be in a minute")


@pytest.fixture
def project(
    tmp_path: Path, conformance: Path, monkeypatch: pytest.MonkeyPatch
) -> Project:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return Project(tmp_path, conformance / "models" / "half_plus_two" / "00000123")


def models(capsys: pytest.CaptureFixture[str]) -> dict[int, Any]:
    capsys.readouterr()
    assert main(["models", "--json"]) == 0
    versions = json.loads(capsys.readouterr().out)["versions"]
    return {row["version"]: row for row in versions}


def test_a_push_moves_no_traffic_and_promote_and_rollback_do(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.publish()
    with project.serving():
        assert project.unlabelled() == 1
        project.publish()
        assert main(["promote", "2"]) == 0
        said = capsys.readouterr().out
        assert said.startswith("version 2 is stable, before: 1; taken by 127.0.0.1:")
        assert project.unlabelled() == 2
        for api in ("rest", "grpc"):
            assert asked(project, api, Which()) == [3.0]
            assert asked(project, api, Which(version=1)) == [3.0]
            assert asked(project, api, Which(label="stable")) == [3.0]
            with pytest.raises(ClientError, match="nobody"):
                asked(project, api, Which(label="nobody"))
            with pytest.raises(ClientError, match="7"):
                asked(project, api, Which(version=7))
        assert project.states() == {1: "AVAILABLE", 2: "AVAILABLE"}
        rows = models(capsys)
        assert rows[2]["labels"] == ["stable"]
        assert list(rows[1]["states"].values()) == ["AVAILABLE"]
        assert rows[1]["metrics"] == {"auc": 0.71}
        assert rows[1]["run"] == "run-7"
        assert main(["status", "--json"]) == 0
        status = json.loads(capsys.readouterr().out)
        assert (status["stable"], status["unlabelled"]) == (2, 2)
        assert main(["rollback"]) == 0
        assert capsys.readouterr().out.startswith("back at version 1, before: 2")
        assert project.unlabelled() == 1
    with project.serving():
        assert project.unlabelled() == 1


def test_first_version_is_served_when_it_comes(project: Project) -> None:
    with project.serving():
        project.publish()
        until(lambda: project_answers(project))
        assert project.unlabelled() == 1


def project_answers(project: Project) -> bool:
    try:
        return project.states().get(1) == "AVAILABLE"
    except ClientError:
        return False


def test_version_that_cannot_be_loaded_is_not_promoted(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.publish()
    project.publish()
    shutil.rmtree(project.repository.path(2) / "variables")
    with project.serving():
        assert project.unlabelled() == 1
        assert main(["promote", "2"]) == 1
        assert "could not load version 2 of half" in capsys.readouterr().err
        assert project.unlabelled() == 1
        assert models(capsys)[1]["labels"] == ["stable"]
    with project.serving():
        assert project.unlabelled() == 1
    assert main(["models"]) == 0
    assert "variables/" in capsys.readouterr().out
    assert main(["verify", "2"]) == 1
    assert "missing" in capsys.readouterr().out
    assert main(["verify", "1"]) == 0


def test_retire_refuses_what_is_needed_and_takes_the_rest(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(3):
        project.publish()
    assert main(["promote", "2"]) == 0
    assert main(["retire", "2"]) == 1
    assert "version 2 stays: the label stable is on it" in capsys.readouterr().err
    assert main(["retire", "1"]) == 0
    assert project.repository.versions() == [2, 3]
    assert main(["retire", "9"]) == 1
    assert "no version 9; versions: 2, 3" in capsys.readouterr().err


def test_rollback_without_a_past_says_so(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.publish()
    assert main(["rollback"]) == 1
    assert "no version of half was stable before" in capsys.readouterr().err
    assert main(["rollback", "--to", "1"]) == 0


def test_server_of_the_settings_that_does_not_answer_stops_a_change(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.publish()
    server = f'["127.0.0.1:{free_port()}"]'
    assert main(["--set", f"serving.servers={server}", "promote", "1"]) == 1
    assert "UNAVAILABLE" in capsys.readouterr().err
    assert not (project.folder / "models" / "models.config").exists()


def test_status_warns_where_a_push_would_move_traffic(
    project: Project, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The original's servers answer with the highest version."""
    for _ in range(2):
        project.publish()
    assert main(["promote", "1"]) == 0
    with EmbeddedServer("half", project.repository.folder, tmp_path / "log") as server:
        address = f"127.0.0.1:{server.rest_port}"
        capsys.readouterr()
        assert main(["status", "--address", address]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "requests that ask for no version get 2, not the stable 1" in shown


def test_push_by_hand_is_taken_by_the_server_that_runs(
    project: Project, capsys: pytest.CaptureFixture[str], conformance: Path
) -> None:
    project.publish()
    other = conformance / "models" / "half_plus_three" / "00000123"
    with project.serving():
        assert main(["push", str(other)]) == 1
        assert "clients of the version before would break" in capsys.readouterr().err
        assert main(["push", "--allow-breaking", str(other)]) == 0
        said = capsys.readouterr().out
        assert said.startswith("version 2 of half\n")
        assert f"AVAILABLE on 127.0.0.1:{project.ports[0]}" in said
        assert project.unlabelled() == 1
    assert main(["push", str(project.folder / "nothing")]) == 1
    assert "saved_model.pb is missing" in capsys.readouterr().err


def test_reload_shows_its_difference_and_drops_no_model_unasked(
    project: Project, capsys: pytest.CaptureFixture[str], conformance: Path
) -> None:
    project.publish()
    models_folder = conformance / "models"
    entry = (
        'config { name: "NAME" base_path: "PATH" model_platform: "tensorflow" MORE }'
    )

    def write(*models: tuple[str, Path, str]) -> str:
        entries = [
            entry.replace("NAME", name).replace("PATH", str(path)).replace("MORE", more)
            for name, path, more in models
        ]
        file = project.folder / "new.config"
        file.write_text(f"model_config_list {{ {' '.join(entries)} }}")
        return str(file)

    half = ("half", project.repository.folder, "")
    three = ("three", models_folder / "half_plus_three", "")
    stable = 'version_labels { key: "stable" value: 1 }'
    with project.serving():
        assert main(["reload", write((*half[:2], stable), three)]) == 0
        said = capsys.readouterr().out
        assert "+ three: " in said
        assert "half: versions 1 → the newest version" in said
        assert main(["reload", write(half)]) == 1
        printed = capsys.readouterr()
        assert "- three: no longer served" in printed.out
        assert "half: label stable 1 → none" in printed.out
        assert "leaves out three, which would no longer be served" in printed.err
        client = connect("grpc", f"127.0.0.1:{project.ports[0]}", "three")
        assert client.status(5.0)[0].state == "AVAILABLE"
        assert main(["reload", "--dry-run", write(half)]) == 0
        assert client.status(5.0)[0].state == "AVAILABLE"
        assert main(["reload", "--prune", write(half)]) == 0
        with pytest.raises(ClientError, match="Could not find"):
            client.status(5.0)
        client.close()
    capsys.readouterr()
    assert main(["reload", write(half, half)]) == 1
    assert "multiple times" in capsys.readouterr().err
