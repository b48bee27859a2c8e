"""A CSV that nobody has seen before: init, run, serve, predict, with no edit."""

import csv
import json
import random
from pathlib import Path

import pytest

from pipeline.cli import main
from serving.server.process import EmbeddedServer

pytestmark = pytest.mark.e2e
HEADER = ["customer id", "class", "monthly charge, EUR", "µ-level", "since", "churned"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    chance = random.Random(1)
    file = tmp_path / "customers.csv"
    with file.open("w", newline="") as output:
        writer = csv.writer(output)
        writer.writerow(HEADER)
        for number in range(600):
            charge = chance.uniform(5, 120)
            leaves = chance.random() < charge / 120
            writer.writerow(
                [
                    f"c{number:05d}",
                    chance.choice(["basic", "gold, new", 'the "best"']),
                    "NA" if chance.random() < 0.05 else f"{charge:.2f}",
                    chance.randint(0, 40),
                    f"20{chance.randint(10, 25)}-0{chance.randint(1, 9)}-01",
                    "yes" if leaves else "no",
                ]
            )
    return file


def test_an_unknown_csv_becomes_a_served_model(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = data.parent / "project"
    assert main(["init", str(data), "--dir", str(project), "--label", "churned"]) == 0
    assert main(["-c", str(project), "run"]) == 0, capsys.readouterr().out
    capsys.readouterr()
    folder = project / "models" / "project"
    with EmbeddedServer("project", folder, project / "server.log") as server:
        rest = predict(project, data, "rest", server.rest_port, capsys)
        grpc = predict(project, data, "grpc", server.grpc_port, capsys)
    assert len(rest) == len(grpc) == 600
    for one, other in zip(rest, grpc, strict=True):
        assert one["customer id"] == other["customer id"]
        assert one["probability"] == pytest.approx(other["probability"], rel=1e-6)
    mean = {
        answer: sum(r["probability"] for r in rest if r["churned"] == answer)
        / sum(r["churned"] == answer for r in rest)
        for answer in ("yes", "no")
    }
    assert mean["yes"] > mean["no"] + 0.1


def predict(
    project: Path,
    data: Path,
    api: str,
    port: int,
    capsys: pytest.CaptureFixture[str],
) -> list[dict[str, float | str]]:
    options = ["--api", api, "--address", f"127.0.0.1:{port}", "--json"]
    assert main(["-c", str(project), "predict", str(data), *options]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]
