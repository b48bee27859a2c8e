"""The user's modules: where they stand on the path, and which files they reach."""

import ast
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import UserCodeError
from pipeline.user_code import (
    is_dotted_path,
    make_importable,
    reachable_sources,
    resolve,
)


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def reached(root: Path, dotted: str = "model.build") -> set[str]:
    return {
        str(path.relative_to(root)) for path in reachable_sources(dotted, root).values()
    }


@pytest.fixture
def path() -> Iterator[None]:
    """Put the import path and the modules back."""
    before, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = before
    for name in set(sys.modules) - modules:
        del sys.modules[name]


@pytest.mark.usefixtures("path")
def test_the_project_stands_last_on_the_path_and_once(tmp_path: Path) -> None:
    make_importable(tmp_path)
    make_importable(tmp_path)
    assert sys.path[-1] == str(tmp_path)
    assert sys.path.count(str(tmp_path)) == 1


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("a.b", True),
        ("my_project.model.build_model", True),
        ("a", False),
        ("a.", False),
        ("a..b", False),
        ("a-b.c", False),
        ("a/b.py", False),
        ("", False),
    ],
)
def test_a_dotted_path_is_names_between_dots(text: str, right: bool) -> None:
    assert is_dotted_path(text) is right


class TestResolve:
    """Each test has a module name of its own: Python remembers modules."""

    @pytest.fixture
    def name(self, path: None, tmp_path: Path) -> str:
        make_importable(tmp_path)
        return f"m{uuid.uuid4().hex}"

    def refusal(self, dotted: str, root: Path) -> str:
        with pytest.raises(UserCodeError) as caught:
            resolve(dotted, root)
        return str(caught.value)

    def test_what_a_path_names_is_imported(self, name: str, tmp_path: Path) -> None:
        write(tmp_path, {f"{name}/__init__.py": "", f"{name}/model.py": "build = 3"})
        assert resolve(f"{name}.model.build", tmp_path) == 3

    def test_a_module_that_is_not_there(self, name: str, tmp_path: Path) -> None:
        assert self.refusal(f"{name}.build", tmp_path) == (
            f"{name}.build: no module '{name}' in {tmp_path} "
            "or among installed packages"
        )

    def test_a_name_that_is_not_there(self, name: str, tmp_path: Path) -> None:
        write(tmp_path, {f"{name}.py": "def build_model(): ..."})
        assert self.refusal(f"{name}.build_modl", tmp_path) == (
            f"{name}.build_modl: module {name} has no 'build_modl' "
            '(did you mean "build_model"?)'
        )

    def test_an_error_while_importing(self, name: str, tmp_path: Path) -> None:
        write(tmp_path, {f"{name}.py": "x = 1\ny = x / 0\n"})
        assert self.refusal(f"{name}.build", tmp_path) == (
            f"{name}.build: importing it failed: ZeroDivisionError: division by zero "
            f"({name}.py:2)"
        )

    def test_an_error_of_syntax(self, name: str, tmp_path: Path) -> None:
        write(tmp_path, {f"{name}.py": "x = 1\ndef :\n"})
        assert self.refusal(f"{name}.build", tmp_path) == (
            f"{name}.build: importing it failed: SyntaxError: invalid syntax "
            f"({name}.py:2)"
        )

    def test_a_module_that_it_misses(self, name: str, tmp_path: Path) -> None:
        write(tmp_path, {f"{name}.py": "import not_there_at_all\n"})
        assert self.refusal(f"{name}.build", tmp_path) == (
            f"{name}.build: importing it failed: ModuleNotFoundError: No module named "
            f"'not_there_at_all' ({name}.py:1)"
        )


REACHED = {
    "import": ("import layers", {"layers.py"}),
    "from": ("from layers import head", {"layers.py"}),
    "as": ("import pkg.a as other", {"pkg/__init__.py", "pkg/a.py"}),
    "submodule": ("from pkg import a", {"pkg/__init__.py", "pkg/a.py"}),
    "star": (
        "from pkg import *",
        {"pkg/__init__.py", "pkg/a.py", "pkg/b.py", "pkg/sub/__init__.py"},
    ),
    "in a function": ("def f():\n    import layers", {"layers.py"}),
    "under a condition": ("if 0:\n    import layers", {"layers.py"}),
    "in a try": ("try:\n    import layers\nexcept ImportError: ...", {"layers.py"}),
    "in a class": ("class A:\n    from layers import x", {"layers.py"}),
    "for types": ("from typing import TYPE_CHECKING\nimport layers", {"layers.py"}),
    "installed": ("import json, numpy", set()),
    "namespace": ("import space.a", {"space/a.py"}),
    "relative within": (
        "import pkg.b",
        {"pkg/__init__.py", "pkg/b.py", "pkg/a.py", "layers.py"},
    ),
    "relative upwards": (
        "import pkg.sub.c",
        {"pkg/__init__.py", "pkg/sub/__init__.py", "pkg/sub/c.py", "pkg/a.py"},
    ),
}
FILES = {
    "layers.py": "",
    "other.py": "",
    "pkg/__init__.py": "",
    "pkg/a.py": "",
    "pkg/b.py": "from . import a\nimport layers",
    "pkg/sub/__init__.py": "",
    "pkg/sub/c.py": "from ..a import x",
    "space/a.py": "",
    "README.md": "",
}


@pytest.mark.parametrize(("imports", "files"), REACHED.values(), ids=REACHED)
def test_static_imports_are_followed(
    imports: str, files: set[str], tmp_path: Path
) -> None:
    extra = {"layers.py"} if "pkg/b.py" in files else set()
    write(tmp_path, {**FILES, "model.py": f"{imports}\n"})
    assert reached(tmp_path) == {"model.py"} | files | extra


@pytest.mark.parametrize(
    "line",
    [
        "import importlib; importlib.import_module(name)",
        "from importlib import import_module as load; load(name)",
        "__import__(name)",
        "exec('import ' + name)",
        "import runpy; runpy.run_path(name)",
        "f = __import__",
        "import sys; sys.path.insert(0, 'lib')",
        "from importlib.util import spec_from_file_location",
    ],
)
def test_a_computed_import_reaches_every_file(line: str, tmp_path: Path) -> None:
    environments = {
        ".taxiway/wheel/x.py": "",
        "env/pyvenv.cfg": "",
        "env/lib/site.py": "",
        "__pycache__/x.py": "",
    }
    write(tmp_path, {**FILES, **environments, "model.py": "import layers"})
    write(tmp_path, {"layers.py": line})
    everything = {name for name in FILES if name.endswith(".py")} | {"model.py"}
    assert reached(tmp_path) == everything


def test_a_file_that_does_not_parse_counts_as_it_is(tmp_path: Path) -> None:
    write(tmp_path, {"model.py": "import layers", "layers.py": "def :"})
    assert reached(tmp_path) == {"model.py", "layers.py"}


def test_imports_that_go_round_come_to_an_end(tmp_path: Path) -> None:
    write(tmp_path, {"model.py": "import layers", "layers.py": "import model"})
    assert reached(tmp_path) == {"model.py", "layers.py"}


def test_a_package_runs_before_its_modules(tmp_path: Path) -> None:
    write(tmp_path, {"a/__init__.py": "import x", "a/b.py": "", "x.py": ""})
    assert reached(tmp_path, "a.b.build") == {"a/__init__.py", "a/b.py", "x.py"}


def test_a_path_to_nothing_reaches_nothing(tmp_path: Path) -> None:
    assert reached(tmp_path, "gone.build") == set()


NAMES = ("m0", "m1", "p0", "p0.m2", "p0.m3", "p0.q", "p0.q.m4", "p1", "p1.m5")
PACKAGES = {name.rpartition(".")[0] for name in NAMES} - {""} | {"p1"}
FORMS = ("import {0}", "from {1} import {2}", "def f():\n    import {0}")


@given(
    st.lists(
        st.tuples(
            st.sampled_from(NAMES), st.sampled_from(NAMES), st.sampled_from(FORMS)
        ),
        max_size=12,
    )
)
@settings(max_examples=60)
def test_what_python_would_load_is_reached(
    tmp_path_factory: pytest.TempPathFactory,
    edges: list[tuple[str, str, str]],
) -> None:
    root = tmp_path_factory.mktemp("generated")
    sources = dict.fromkeys(NAMES, "")
    for importer, imported, form in edges:
        parent, _, last = imported.rpartition(".")
        line = form.format(imported, parent, last) if parent else f"import {imported}"
        sources[importer] += f"{line}\n"
    for name, text in sources.items():
        stem = name.replace(".", "/")
        write(root, {f"{stem}/__init__.py" if name in PACKAGES else f"{stem}.py": text})
    assert set(reachable_sources("m0.build", root)) == closure("m0", sources)


def closure(start: str, sources: dict[str, str]) -> set[str]:
    """Return what importing runs, by the rule written down a second time."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        name = waiting.pop()
        parents = [".".join(name.split(".")[:n]) for n in range(1, name.count(".") + 2)]
        for module in parents:
            if module in sources and module not in seen:
                seen.add(module)
                for node in ast.walk(ast.parse(sources[module])):
                    if isinstance(node, ast.Import):
                        waiting += [alias.name for alias in node.names]
                    elif isinstance(node, ast.ImportFrom):
                        waiting += [f"{node.module}.{a.name}" for a in node.names]
    return seen
