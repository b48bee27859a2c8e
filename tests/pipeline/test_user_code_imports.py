"""The files that static reading reaches, held to those that Python really loads."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.user_code import reachable_sources

LOADER = """\
import importlib, json, sys
root, name = sys.argv[1:]
sys.path.append(root)
importlib.import_module(name)
files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
print(json.dumps([file for file in files if file and file.startswith(root)]))
"""


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def loaded(root: Path, name: str) -> set[str]:
    """Return the project's files that Python loads to import a module."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", LOADER, root, name],
        capture_output=True,
        text=True,
        check=True,
    )
    return {str(Path(file).relative_to(root)) for file in json.loads(done.stdout)}


def reached(root: Path, name: str) -> set[str]:
    files = reachable_sources(name, root).values()
    return {str(path.relative_to(root)) for path in files}


EXACT = {
    "a plain module": {"model.py": "import layers", "layers.py": ""},
    "a package that imports its own module": {
        "model.py": "import pkg",
        "pkg/__init__.py": "from . import a",
        "pkg/a.py": "",
    },
    "a name that a package takes from its module": {
        "model.py": "from pkg import build",
        "pkg/__init__.py": "from .a import build",
        "pkg/a.py": "from .b import build",
        "pkg/b.py": "build = 1",
    },
    "a module two packages up": {
        "model.py": "import pkg.sub.deep.c",
        "pkg/__init__.py": "",
        "pkg/a.py": "x = 1",
        "pkg/sub/__init__.py": "",
        "pkg/sub/deep/__init__.py": "",
        "pkg/sub/deep/c.py": "from ...a import x",
    },
    "a star with __all__": {
        "model.py": "from pkg import *",
        "pkg/__init__.py": "__all__ = ['a', 'b']",
        "pkg/a.py": "",
        "pkg/b.py": "",
    },
    "a folder without __init__": {
        "model.py": "from space import a\nimport space.deep.b",
        "space/a.py": "",
        "space/deep/b.py": "",
    },
    "a package before a module of its name": {
        "model.py": "import twin",
        "twin.py": "",
        "twin/__init__.py": "",
    },
    "modules that import each other": {
        "model.py": "import a",
        "a.py": "import b",
        "b.py": "import a, model",
    },
    "an encoding of its own": {
        "model.py": "# -*- coding: latin-1 -*-\nimport layers",
        "layers.py": "",
    },
}


@pytest.mark.parametrize("files", EXACT.values(), ids=EXACT)
def test_what_is_loaded_is_reached_and_no_more(
    files: dict[str, str], tmp_path: Path
) -> None:
    write(tmp_path, files)
    unrelated = {"other.py": "", "tests/test_model.py": "import model"}
    write(tmp_path, unrelated)
    assert reached(tmp_path, "model") == loaded(tmp_path, "model")


NAMES = ("model", "m1", "p0", "p0.m2", "p0.q", "p0.q.m3", "p1", "p1.m4")
PACKAGES = {"p0", "p0.q", "p1"}


@st.composite
def projects(draw: st.DrawFn) -> dict[str, str]:
    """Return files that import each other, by absolute and by relative names."""
    sources = dict.fromkeys(NAMES, "")
    names = st.sampled_from(NAMES)
    for importer, imported in draw(st.lists(st.tuples(names, names), max_size=14)):
        sources[importer] += f"{draw(st.sampled_from(lines(importer, imported)))}\n"
    return {
        f"{name.replace('.', '/')}{'/__init__' * (name in PACKAGES)}.py": text
        for name, text in sources.items()
    }


def lines(importer: str, imported: str) -> list[str]:
    """Return the ways to write an import."""
    parent, _, last = imported.rpartition(".")
    if not parent:
        return [f"import {imported}", f"import {imported} as other"]
    found = [
        f"import {imported}",
        f"from {parent} import {last}",
        f"if 1: import {imported}",
    ]
    package = importer if importer in PACKAGES else importer.rpartition(".")[0]
    if package:
        dots = "." * (package.count(".") + 2)
        # From the top-level package down: `from ..q import m3`, `from .. import q`.
        top, _, rest = parent.partition(".")
        if top == package.split(".")[0]:
            found.append(f"from {dots[:-1]}{rest} import {last}")
    return found


@given(projects())
@settings(max_examples=12)
def test_whatever_python_loads_is_reached(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, str]
) -> None:
    root = tmp_path_factory.mktemp("project")
    write(root, files)
    assert reached(root, "model") == loaded(root, "model")
