"""The locks are what pyproject.toml asks for, complete, and name no host."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import locks
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
HOW_TO_RENEW = "run scripts/renew-locks and commit requirements/"
PYTHON = {"python_version": "3.11", "python_full_version": "3.11.0"}

PYPROJECT = (ROOT / "pyproject.toml").read_text()
PROJECT = tomllib.loads(PYPROJECT)
TEXTS = {name: (ROOT / f"requirements/{name}.txt").read_text() for name in locks.EXTRAS}
each_lock = pytest.mark.parametrize("name", TEXTS)


def requirements_of(extra: str) -> list[Requirement]:
    """Return what an extra asks for, with the extras of ours that it names."""
    own = PROJECT["project"]["optional-dependencies"]
    found = [Requirement(text) for text in PROJECT["project"]["dependencies"]]
    todo = [extra]
    while todo:
        for requirement in map(Requirement, own[todo.pop()]):
            if requirement.name == "taxiway":
                todo += requirement.extras
            else:
                found.append(requirement)
    return found


def overrides() -> dict[str, Requirement]:
    listed = map(Requirement, PROJECT["tool"]["uv"]["override-dependencies"])
    return {
        canonicalize_name(one.name): one
        for one in listed
        if one.marker is None or one.marker.evaluate(PYTHON)
    }


def unmet(requirements: list[Requirement], pins: dict[str, str]) -> list[str]:
    return [
        str(one)
        for one in requirements
        if not one.specifier.contains(
            pins.get(canonicalize_name(one.name), "0"), prereleases=True
        )
        or canonicalize_name(one.name) not in pins
    ]


@each_lock
def test_lock_was_resolved_from_this_pyproject(name: str) -> None:
    digest = locks.parse(TEXTS[name]).digest
    assert digest == locks.inputs_digest(PYPROJECT), HOW_TO_RENEW


@each_lock
def test_lock_meets_each_requirement_of_its_extra(name: str) -> None:
    pins = locks.parse(TEXTS[name]).pins
    wanted = [
        overrides().get(canonicalize_name(one.name), one)
        for one in requirements_of(locks.EXTRAS[name])
    ]
    assert unmet(wanted, pins) == [], HOW_TO_RENEW


@each_lock
def test_overrides_win_wherever_the_lock_has_them(name: str) -> None:
    pins = locks.parse(TEXTS[name]).pins
    present = [one for key, one in overrides().items() if key in pins]
    assert unmet(present, pins) == [], HOW_TO_RENEW


@each_lock
def test_each_pin_has_a_hash(name: str) -> None:
    lock = locks.parse(TEXTS[name])
    assert lock.pins
    assert lock.unhashed == (), HOW_TO_RENEW


@each_lock
def test_lock_names_no_host_and_sets_no_option(name: str) -> None:
    lines = [line for line in TEXTS[name].splitlines() if not line.startswith("#")]
    pin = re.compile(r"[A-Za-z0-9._-]+==[^ /:@]+( ; [^/:@]+)? \\")
    hash_ = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")
    strange = [
        line for line in lines if not pin.fullmatch(line) and not hash_.fullmatch(line)
    ]
    assert strange == [], HOW_TO_RENEW


def test_the_locks_agree_on_each_version() -> None:
    dev, *others = (locks.parse(text).pins for text in TEXTS.values())
    apart = [
        f"{name}: {dev[name]} and {version}"
        for pins in others
        for name, version in pins.items()
        if dev.get(name, version) != version
    ]
    assert apart == [], HOW_TO_RENEW


def test_a_changed_requirement_changes_the_digest() -> None:
    changed = PYPROJECT.replace('"pyyaml>=6"', '"pyyaml>=6.0.1"')
    assert changed != PYPROJECT
    assert locks.inputs_digest(changed) != locks.inputs_digest(PYPROJECT)


def test_a_changed_tool_setting_keeps_the_digest() -> None:
    changed = PYPROJECT.replace("line-length = 88", "line-length = 100")
    assert changed != PYPROJECT
    assert locks.inputs_digest(changed) == locks.inputs_digest(PYPROJECT)


def test_environment_that_changes_the_choice_is_kept_from_uv() -> None:
    given = {
        "PATH": "/bin",
        "PIP_FIND_LINKS": "/wheels",
        "UV_FIND_LINKS": "/wheels",
        "UV_DEFAULT_INDEX": "mirror",
    }
    assert locks.clean_environment(given) == {
        "PATH": "/bin",
        "UV_DEFAULT_INDEX": "mirror",
    }


@pytest.mark.slow
def test_resolving_again_gives_the_same_locks(tmp_path: Path) -> None:
    uv = shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv is None:
        pytest.skip("uv is not installed beside this Python")
    for name, text in TEXTS.items():
        (tmp_path / f"{name}.txt").write_text(text)
    try:
        locks.resolve(Path(uv), tmp_path)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"uv could not resolve, is the package index reachable? {error}")
    for name, text in TEXTS.items():
        assert (tmp_path / f"{name}.txt").read_text() == text, HOW_TO_RENEW
