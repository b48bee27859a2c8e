"""`taxiway doctor`: what each finding says, and when the exit code says broken."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from pipeline import doctor
from pipeline.cli import main
from pipeline.commands import doctor as command
from pipeline.doctor import Finding, Machine, examine, locked_versions, this_machine

ROOT = Path(__file__).parents[2]
LOCK = """\
# A comment about numpy==9
numpy==2.4.6 \\
    --hash=sha256:00
tensorflow==2.21.0 ; python_version < "3.13" \\
    --hash=sha256:00
"""
INSTALLED = dict.fromkeys(doctor.KEY_PACKAGES, "1.0") | {
    "numpy": "2.4.6",
    "tensorflow": "2.21.0",
}


def healthy(**changes: object) -> Machine:
    """Return a machine on which nothing is wrong, but for the changes."""
    machine = Machine(
        environ={},
        version_of=INSTALLED.get,
        output_of=lambda _: "NVIDIA H200, 143771 MiB, 570.1\n",
        libc=("glibc", "2.36"),
        python=(3, 11, 7),
        memory_bytes=16 << 30,
        free_disk_bytes=100 << 30,
        lock=LOCK,
    )
    return dataclasses.replace(machine, **changes)  # type: ignore[arg-type]


def finding(topic: str, **changes: object) -> Finding:
    findings = examine(healthy(**changes), deep=topic == "devices")
    return next(each for each in reversed(findings) if each.topic == topic)


@pytest.fixture(autouse=True)
def all_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "missing_modules", lambda extra: [])


def test_a_healthy_machine_has_nothing_to_mend() -> None:
    wrong = [each for each in examine(healthy()) if each.state != "ok"]
    assert [each.topic for each in wrong] == ["extra gpu"]


def test_whatever_is_wrong_has_a_remedy() -> None:
    sick = healthy(
        environ={"PYTHONDONTWRITEBYTECODE": "1"},
        version_of=lambda name: None,
        output_of=lambda command: None,
        libc=("", ""),
        python=(3, 9, 1),
        free_disk_bytes=0,
        lock=None,
    )
    findings = examine(sick, deep=True)
    assert {each.topic for each in findings if each.state == "ok"} <= {
        "extra serving",
        "extra tfx",
        "extra kubeflow",
    }
    assert all(each.remedy for each in findings if each.state != "ok")


def test_an_old_python_is_broken() -> None:
    found = finding("python", python=(3, 10, 2))
    assert found.state == "broken"
    assert found.remedy == "use a Python from 3.11 to 3.13"


def test_the_sentence_about_the_lock_stands_beside_glibc() -> None:
    assert finding("libc").what.startswith(
        "glibc 2.36; a plain `pip install` without the lock fails where glibc is "
        "older than 2.39"
    )


def test_another_libc_is_noted() -> None:
    assert finding("libc", libc=("", "")).state == "note"


def test_missing_essentials_are_broken() -> None:
    found = finding("packages", version_of={**INSTALLED, "pyarrow": None}.get)
    assert (found.state, found.what) == ("broken", "without pyarrow")


def test_missing_tensorflow_is_not_broken() -> None:
    found = finding("packages", version_of={**INSTALLED, "tensorflow": None}.get)
    assert found.state == "ok"


def test_an_extra_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "missing_modules", lambda extra: ["tfx", "keras"])
    found = finding("extra serving")
    assert (found.state, found.what) == ("missing", "lacks tfx, keras")
    assert found.remedy == "pip install --no-deps -r requirements/serving.txt"


def test_the_gpu_extra_is_known_by_its_libraries() -> None:
    assert finding("extra gpu").state == "missing"
    there = {**INSTALLED, "nvidia-cudnn-cu12": "9"}
    assert finding("extra gpu", version_of=there.get).state == "ok"


def test_versions_that_differ_from_the_lock_are_named() -> None:
    found = finding("lock", version_of={**INSTALLED, "numpy": "2.0.0"}.get)
    assert (found.state, found.what) == ("note", "numpy is 2.0.0, locked is 2.4.6")


def test_packages_that_are_not_installed_do_not_differ() -> None:
    found = finding("lock", version_of={"numpy": "2.4.6"}.get)
    assert found.what == "installed packages agree with 2 locked ones"


def test_the_lock_of_this_repository_is_understood() -> None:
    text = (ROOT / "requirements" / "full.txt").read_text()
    versions = locked_versions(text)
    assert len(versions) == len(re.findall(r"^[a-z]", text, re.MULTILINE))
    assert versions["tfx"] == "1.21.0"


def test_gpus_are_those_of_nvidia_smi() -> None:
    assert finding("gpu").what == "NVIDIA H200, 143771 MiB, 570.1"
    assert finding("gpu", output_of=lambda _: None).state == "note"


def test_devices_are_looked_at_only_when_asked() -> None:
    assert "devices" not in {each.topic for each in examine(healthy())}
    found = finding("devices", output_of=lambda _: "/physical_device:CPU:0\n")
    assert found.what == "TensorFlow sees /physical_device:CPU:0"


def test_a_tensorflow_that_cannot_be_imported_is_broken() -> None:
    assert finding("devices", output_of=lambda _: None).state == "broken"


def test_unwritten_bytecode_is_noted() -> None:
    found = finding("environment", environ={"PYTHONDONTWRITEBYTECODE": "1"})
    assert found.remedy == "unset PYTHONDONTWRITEBYTECODE"


@pytest.mark.parametrize(
    "change", [{"memory_bytes": 2 << 30}, {"free_disk_bytes": 1 << 30}]
)
def test_little_room_is_noted(change: dict[str, int]) -> None:
    assert finding("machine", **change).state == "note"


def test_this_machine_can_be_looked_at() -> None:
    machine = this_machine()
    assert machine.version_of("pydantic") is not None
    assert machine.version_of("no-such-distribution") is None
    assert machine.output_of(("no-such-program",)) is None
    assert machine.memory_bytes > 0


def test_a_remedy_stands_below_what_it_is_for() -> None:
    findings = [
        Finding("python", "ok", "Python 3.11"),
        Finding("gpu", "note", "none", "none is needed"),
    ]
    assert list(command.lines(findings)) == [
        "✓ python  Python 3.11",
        "! gpu     none",
        "          → none is needed",
    ]


@pytest.mark.parametrize(("python", "code"), [((3, 11, 7), 0), ((3, 9, 0), 1)])
def test_the_exit_code_says_whether_something_is_broken(
    python: tuple[int, int, int],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(command, "this_machine", lambda: healthy(python=python))
    assert main(["doctor", "--json"]) == code
    findings = json.loads(capsys.readouterr().out)
    assert findings[0]["state"] == ("broken" if code else "ok")
