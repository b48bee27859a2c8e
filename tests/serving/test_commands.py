"""`taxiway serve`, `predict` and `status` as a user runs them."""

import json
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli import main

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60
TAXIWAY = [sys.executable, "-m", "pipeline"]
SETTINGS = """\
project: half_plus_two
data:
  files: rows.csv
label:
  column: y
  kind: regression
features:
  x: {kind: numeric}
"""


@pytest.fixture
def project(tmp_path: Path, conformance: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose model was published twice; the working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taxiway.yaml").write_text(SETTINGS)
    (tmp_path / "rows.csv").write_text("x,note\n2.0,a\n,b\n4.0,c\n")
    shutil.copytree(conformance / "models/half_plus_two", "models/half_plus_two")
    return tmp_path


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes find the packages from any folder, installed or not."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def predict(server: Any, *arguments: str, api: str = "rest") -> int:
    address = f"127.0.0.1:{getattr(server, f'{api}_port')}"
    told = ["--api", api, "--address", address, "--signature", "serving_default"]
    return main(["predict", *told, *arguments])


@pytest.mark.parametrize("api", ["rest", "grpc"])
def test_predict_prints_an_answer_for_each_row(
    half_plus_two: Any, project: Path, capsys: pytest.CaptureFixture[str], api: str
) -> None:
    assert predict(half_plus_two, "rows.csv", api=api) == 0
    printed = capsys.readouterr()
    assert "3.0000" in printed.out
    assert "nan" in printed.out
    assert "4.0000" in printed.out
    assert "note" not in printed.out
    assert "note" in printed.err


def test_predict_limits_rows(
    half_plus_two: Any, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert predict(half_plus_two, "rows.csv", "--limit", "1") == 0
    out = capsys.readouterr().out
    assert "3.0000" in out
    assert "4.0000" not in out


def test_predict_says_the_same_over_both_apis_in_json(
    half_plus_two: Any, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outs = []
    for api in ("rest", "grpc"):
        assert predict(half_plus_two, "rows.csv", "--json", api=api) == 0
        outs.append(capsys.readouterr().out)
    assert "3.0" in outs[0]
    assert "NaN" in outs[0]
    assert outs[0].count("4.0") == outs[1].count("4.0")


def test_predict_names_a_missing_column(
    half_plus_two: Any, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "rows.csv").write_text("z\n1\n")
    assert predict(half_plus_two, "rows.csv") == 1
    printed = capsys.readouterr()
    assert "no column 'x'" in printed.err
    assert printed.out == ""


def test_predict_names_a_file_that_is_not_there(
    half_plus_two: Any, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert predict(half_plus_two, "gone.csv") == 1
    assert "gone.csv: cannot be read: No such file" in capsys.readouterr().err


def test_predict_without_a_server_names_the_address(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    assert main(["predict", "rows.csv", "--address", address]) == 1
    assert address in capsys.readouterr().err


def test_status_shows_what_is_published_and_what_is_served(
    half_plus_two: Any, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"127.0.0.1:{half_plus_two.rest_port}"
    assert main(["status", "--address", address, "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert status["versions"] == [123, 124]
    assert status["served"] == [{"version": 124, "state": "AVAILABLE", "error": ""}]
    assert main(["status", "--address", address]) == 0
    shown = capsys.readouterr().out
    assert "AVAILABLE" in shown
    assert "123" in shown


def test_status_without_a_server_is_no_error(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    assert main(["status", "--address", address]) == 0
    printed = capsys.readouterr()
    assert "not reached" in printed.out
    assert address in printed.out


def test_serve_reads_the_settings_says_where_and_stops_when_told(
    project: Path,
) -> None:
    arguments = ["serve", "--rest-port", "0", "--grpc-port", "0"]
    with subprocess.Popen(
        [*TAXIWAY, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            said = [process.stdout.readline() for _ in range(3)]
            process.send_signal(signal.SIGTERM)
            rest, _ = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()
    assert said[0].startswith("gRPC  127.0.0.1:")
    assert said[1].startswith("REST  http://127.0.0.1:")
    assert "version 124 of half_plus_two is AVAILABLE" in said[2]
    assert rest == "stopping\n"
    assert process.returncode == 0


def test_serve_needs_no_settings_with_base_path_and_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        told = ["--base-path", "models", "--model", "m", "--rest-port", port]
        done = subprocess.run(
            [*TAXIWAY, "serve", *told, "--grpc-port", "0"],
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
    assert done.returncode == 1
    assert f"127.0.0.1:{port} cannot be opened" in done.stderr
    assert done.stdout == ""


WITHOUT = """
import sys

class Nowhere:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"uvloop", "httptools", "hpack", "orjson"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Nowhere())
"""


@pytest.mark.parametrize(
    ("code", "status", "text"),
    [
        ("from pipeline.cli import main; main(['serve', '--help'])", 0, ""),
        (
            "from serving.server.__main__ import main; sys.exit(main())",
            1,
            (
                "which is not installed; install the lock: `pip install --no-deps -r "
                "requirements/serving.txt`"
            ),
        ),
    ],
    ids=["help", "tensorflow_model_server"],
)
def test_what_the_server_lacks_is_said_in_a_sentence(
    code: str, status: int, text: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT + code],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == status
    assert text in done.stderr
    assert "Traceback" not in done.stderr
