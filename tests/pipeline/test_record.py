"""The record of a run: what is written is read again, and never half of it."""

import json
from pathlib import Path

import pytest

from pipeline.runners.record import RECORD_FILE, RunRecord, StepRecord, read_record


def record(**changes: object) -> RunRecord:
    made = RunRecord(
        run_id="2026-01-31T12-00-00",
        project="delays",
        started="2026-01-31T12:00:00+00:00",
        steps=[
            StepRecord("ExampleGen", "cached", summary={"num_rows": 3}),
            StepRecord("Trainer", "failed", 1.5, "logs/Trainer.log", "no GPU — “why”"),
            StepRecord("Pusher"),
        ],
    )
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    made = record(seconds=3.25, status="not blessed")
    assert read_record(made.write(tmp_path)) == made


def test_a_run_has_failed_until_it_says_otherwise() -> None:
    made = record()
    assert made.status == "failed"
    assert (made.step("Pusher").state, made.step("Pusher").summary) == ("not run", {})


def test_a_step_is_found_by_its_id() -> None:
    assert record().step("Trainer").reason == "no GPU — “why”"


def test_a_second_write_takes_the_first_ones_place(tmp_path: Path) -> None:
    record().write(tmp_path)
    path = record(status="pushed").write(tmp_path)
    assert read_record(path).status == "pushed"
    assert [file.name for file in tmp_path.iterdir()] == [RECORD_FILE]


def test_a_reader_keeps_the_record_that_it_opened(tmp_path: Path) -> None:
    """The file is replaced, not written into: half a record is never seen."""
    path = record().write(tmp_path)
    before = path.read_text()
    with path.open() as reader:
        record(status="pushed").write(tmp_path)
        assert reader.read() == before


def test_a_record_that_cannot_be_written_leaves_the_last(tmp_path: Path) -> None:
    path = record(status="pushed").write(tmp_path)
    with pytest.raises(TypeError):
        record(steps=[StepRecord("Trainer", summary={"model": object()})]).write(
            tmp_path
        )
    assert read_record(path).status == "pushed"


def test_the_file_is_json_that_people_can_read(tmp_path: Path) -> None:
    text = record().write(tmp_path).read_text()
    assert json.loads(text)["steps"][1]["id"] == "Trainer"
    assert '\n  "project": "delays",\n' in text
    assert text.endswith("}\n")
