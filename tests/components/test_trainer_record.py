"""What a replay is compared with, and the digests that make it comparable."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.trainer.batches import BatchPlan
from components.trainer.checkpoints import Progress
from components.trainer.devices import DevicePlan
from components.trainer.precision import Precision
from components.trainer.process import _record
from components.trainer.record import (
    CHUNK_BYTES,
    TrainingRecord,
    change_of_micro_batch,
    data_digest,
    decided,
    differences,
    digest_of_files,
    digests,
    first_difference,
    git_state,
    transform_digest,
)
from components.trainer.request import Digests, TrainingRequest

DIGESTS = st.lists(st.sampled_from("abc"), max_size=8).map(
    lambda names: [(10 * step, name) for step, name in enumerate(names, 1)]
)


def request(folder: Path) -> TrainingRequest:
    return TrainingRequest.model_validate(
        {
            "table": {
                "label": {"column": "y", "kind": "binary"},
                "features": {"x": {"kind": "numeric"}},
            },
            "settings": {},
            "train_files": [f"{folder}/Split-train/*"],
            "eval_files": [f"{folder}/Split-eval/*"],
            "transform_output": str(folder / "transform"),
            "work_dir": folder,
            "export_dir": folder,
            "log_dir": folder,
            "project_root": folder,
        }
    )


def record(**changed: Any) -> TrainingRecord:
    content = {
        "seed": 1,
        "deterministic": True,
        "git_commit": "c0ffee",
        "git_dirty": False,
        "data_digest": "d1",
        "transform_digest": "t1",
        "libraries": {"python": "3.11", "tensorflow": "2.21", "cuda": "12.5"},
        "devices": ("H200",),
        "strategy": "one_device on GPU:0",
        "num_replicas": 1,
        "precision": "float32",
        "xla": "off",
        "accumulation": 1,
        "micro_batch_size": 8,
        "num_steps": 3,
        "seconds": 1.0,
        "gpu_hours": 0.1,
        "energy_joules": None,
        "weight_digests": (),
        "request": request(Path("/run")),
    }
    return TrainingRecord.model_validate({**content, **changed})


@given(DIGESTS)
def test_equal_trainings_do_not_part(digests: list[tuple[int, str]]) -> None:
    assert first_difference(digests, digests) is None


@given(DIGESTS, st.data())
def test_two_trainings_part_between_the_last_equal_and_the_first_other_step(
    digests: list[tuple[int, str]], data: st.DataObject
) -> None:
    digests.append((10 * len(digests) + 10, "a"))
    place = data.draw(st.integers(0, len(digests) - 1))
    now = digests[:place] + [(step, "other") for step, _ in digests[place:]]
    before = digests[place - 1][0] if place else 0
    assert first_difference(digests, now) == (before, digests[place][0])


def test_a_replay_that_ended_sooner_parts_where_it_ended() -> None:
    assert first_difference([(10, "a"), (20, "b")], [(10, "a")]) == (10, 20)


def test_the_weights_that_were_exported_may_differ_from_the_last_steps() -> None:
    digests = [(10, "a"), (20, "b"), (20, "the best, of step 10 or so")]
    assert first_difference(digests, list(digests)) is None
    other = [*digests[:2], (20, "another")]
    assert first_difference(digests, other) == (20, 20)


def test_a_record_survives_json() -> None:
    made = record(weight_digests=((10, "a"), (20, "b")))
    assert TrainingRecord.model_validate_json(made.model_dump_json()) == made


def test_what_is_as_it_was_is_no_difference() -> None:
    now = {"git_commit": "c0ffee", "libraries": record().libraries, "num_replicas": 1}
    assert differences(record(), now) == []


def test_each_difference_is_a_line_with_both_values() -> None:
    now = {
        "git_commit": "beef",
        "git_dirty": False,
        "data_digest": "d2",
        "num_replicas": 4,
        "devices": ("A100", "A100"),
    }
    assert differences(record(), now) == [
        "git commit: was c0ffee, is beef",
        "data digest: was d1, is d2",
        "num replicas: was 1, is 4",
        "devices: was H200, is A100, A100",
    ]


def test_how_a_training_computed_is_compared_with_how_another_did() -> None:
    other = record(xla="whole", accumulation=2, micro_batch_size=4, seconds=2.0)
    assert differences(record(), decided(record())) == []
    assert differences(record(), decided(other)) == [
        "xla: was off, is whole",
        "accumulation: was 1, is 2",
        "micro batch size: was 8, is 4",
    ]


def test_a_training_in_equal_micro_batches_can_be_replayed() -> None:
    """Older records do not say it."""
    assert change_of_micro_batch(record()) is None
    assert change_of_micro_batch(record(micro_batches=[(0, 8)])) is None


def test_a_training_that_changed_its_micro_batch_cannot_be_replayed_bit_by_bit() -> (
    None
):
    made = record(micro_batches=[(0, 4096), (1200, 2048)])
    assert change_of_micro_batch(made) == (
        "memory was too little after step 1,200: until there a replica computed 4,096 "
        "examples at once, then 2,048; a replay takes 2,048 for all steps and cannot be "
        "equal bit by bit"
    )


def test_libraries_are_compared_one_by_one_and_absent_ones_are_none() -> None:
    now = {
        "libraries": {
            "python": "3.11",
            "tensorflow": "2.22",
            "cuda": "",
            "d": "5",
            "driver": "",
        }
    }
    assert differences(record(), now) == [
        "cuda: was 12.5, is none",
        "d: was none, is 5",
        "tensorflow: was 2.21, is 2.22",
    ]


def write(folder: Path, **contents: bytes) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in contents]


def test_a_digest_does_not_depend_on_where_the_files_are_or_their_order(
    tmp_path: Path,
) -> None:
    here = write(tmp_path / "here", a=b"1", b=b"2")
    there = write(tmp_path / "there", b=b"2", a=b"1")
    assert digest_of_files(here, tmp_path / "here") == digest_of_files(
        there, tmp_path / "there"
    )


@pytest.mark.parametrize(
    "other",
    [
        {"a": b"1", "b": b"3"},
        {"a": b"1", "c": b"2"},
        {"a": b"1"},
        {"a": b"12", "b": b""},
        {"a": b"2", "b": b"1"},
    ],
    ids=str,
)
def test_a_digest_depends_on_names_and_contents(
    tmp_path: Path, other: dict[str, bytes]
) -> None:
    one = digest_of_files(write(tmp_path / "1", a=b"1", b=b"2"), tmp_path / "1")
    assert digest_of_files(write(tmp_path / "2", **other), tmp_path / "2") != one


def test_a_digest_reads_to_the_end_of_a_large_file(tmp_path: Path) -> None:
    large = bytes(CHUNK_BYTES) + b"a"
    [one] = write(tmp_path / "1", a=large)
    [two] = write(tmp_path / "2", a=large[:-1] + b"b")
    assert digest_of_files([one], one.parent) != digest_of_files([two], two.parent)


def test_the_datas_digest_is_that_of_both_splits_wherever_they_are(
    tmp_path: Path,
) -> None:
    found = []
    for place in ("here", "there"):
        write(tmp_path / place / "Split-train", x=b"1")
        write(tmp_path / place / "Split-eval", x=b"2")
        found.append(data_digest(request(tmp_path / place)))
    assert found[0] == found[1]
    write(tmp_path / "there" / "Split-eval", x=b"3")
    assert data_digest(request(tmp_path / "there")) != found[0]


def test_the_transform_graphs_digest_covers_its_subfolders(tmp_path: Path) -> None:
    [file] = write(tmp_path / "transform" / "assets", vocabulary=b"a\nb\n")
    before = transform_digest(request(tmp_path))
    file.write_bytes(b"b\na\n")
    assert transform_digest(request(tmp_path)) != before


def test_where_there_is_no_git_nothing_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    assert git_state(tmp_path) == (None, None)


def trained(asked: TrainingRequest) -> TrainingRecord:
    """Return the record of a training that only its plans are known of."""
    ground = SimpleNamespace(
        devices=DevicePlan("one_device", "CPU", 1), precision=Precision("float32")
    )
    session: Any = SimpleNamespace(
        ground=ground, xla="off", plan=BatchPlan(8, 1, 1, 8, 1)
    )
    return _record(asked, session, Progress(step=3), None)


def test_digests_that_are_known_are_not_read_again(tmp_path: Path) -> None:
    """The data are not even there."""
    known = Digests(data="d", transform="t")
    made = trained(request(tmp_path).model_copy(update={"digests": known}))
    assert (made.data_digest, made.transform_digest) == ("d", "t")


def test_digests_that_are_not_known_are_read(tmp_path: Path) -> None:
    write(tmp_path / "Split-train", x=b"1")
    write(tmp_path / "Split-eval", x=b"2")
    write(tmp_path / "transform", graph=b"3")
    made = trained(request(tmp_path))
    read = digests(request(tmp_path))
    assert read == Digests(data=made.data_digest, transform=made.transform_digest)


def test_digests_are_read_whatever_the_request_says_of_them(tmp_path: Path) -> None:
    write(tmp_path / "Split-train", x=b"1")
    write(tmp_path / "Split-eval", x=b"2")
    old = Digests(data="d", transform="t")
    asked = request(tmp_path).model_copy(update={"digests": old})
    assert digests(asked).data == data_digest(request(tmp_path)) != "d"
