"""Imports go one way, modules stay small and are named for what they hold."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("pipeline", "components", "serving")
"""Ours, each allowed to import those after it."""
NOT_IN_SERVING = (
    "apache_beam",
    "kfp",
    "ml_metadata",
    "tensorflow_data_validation",
    "tensorflow_model_analysis",
    "tensorflow_transform",
    "tfx",
    "tfx_bsl",
)
TENSORFLOW = ("keras", "tensorflow", "tensorflow_serving", "tf_keras")
SERVING_FOR_COMPONENTS = (
    "serving.backends",
    "serving.client",
    "serving.config",
    "serving.errors",
    "serving.model_repository",
    "serving.model_server_config",
    "serving.routing",
    "serving.saved_model",
    "serving.settings",
    "serving.signature_contract",
    "serving.signing",
    "serving.tfrecord",
    "serving.warm_up_requests",
)
MAX_LINES = 600
NAMES_THAT_SAY_NOTHING = ("utils", "util", "common", "misc")


def modules(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield `(dotted name, file)` of all modules of ours."""
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            yield ".".join(part for part in parts if part != "__init__"), path


def imports(name: str, path: Path) -> Iterator[str]:
    """Yield each module that a file imports anywhere, in functions and for types too.

    `from a import b` yields `a` and `a.b`, since b may be a module.
    """
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, name, is_package=path.name == "__init__.py")
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and _is_import_call(node):
            yield from (
                argument.value
                for argument in node.args[:1]
                if isinstance(argument, ast.Constant)
                and isinstance(argument.value, str)
            )


def _absolute(node: ast.ImportFrom, name: str, *, is_package: bool) -> str:
    if node.level == 0:
        return node.module or ""
    parts = name.split(".")
    kept = parts[: len(parts) - node.level + is_package]
    return ".".join([*kept, *([node.module] if node.module else [])])


def _is_import_call(node: ast.Call) -> bool:
    called = node.func
    word = called.attr if isinstance(called, ast.Attribute) else None
    word = called.id if isinstance(called, ast.Name) else word
    return word in {"import_module", "__import__"}


def inside(module: str, packages: tuple[str, ...] | str) -> bool:
    """Tell whether a module is one of the packages, or in one."""
    of = (packages,) if isinstance(packages, str) else packages
    return any(module == one or module.startswith(f"{one}.") for one in of)


def against_the_arrows(root: Path) -> list[str]:
    found = []
    for name, path in modules(root):
        earlier = PACKAGES[: PACKAGES.index(name.split(".", maxsplit=1)[0])]
        found += [
            f"{name} imports {imported}; imports go {' -> '.join(PACKAGES)}"
            for imported in imports(name, path)
            if inside(imported, earlier)
        ]
    return found


def serving_imports_of_the_pipeline(root: Path) -> list[str]:
    return [
        f"{name} imports {imported}; serving must run without it"
        for name, path in modules(root)
        if inside(name, "serving")
        for imported in imports(name, path)
        if inside(imported, NOT_IN_SERVING)
    ]


def tensorflow_in_serving(root: Path) -> list[str]:
    return [
        f"{name} imports {imported}; the server loads TensorFlow's library instead"
        for name, path in modules(root)
        if inside(name, "serving")
        for imported in imports(name, path)
        if inside(imported, TENSORFLOW)
    ]


def serving_internals_in_components(root: Path) -> list[str]:
    return [
        f"{name} imports {imported}; of serving, components may use "
        + ", ".join(SERVING_FOR_COMPONENTS)
        for name, path in modules(root)
        if inside(name, "components")
        for imported in imports(name, path)
        if imported != "serving"
        and inside(imported, "serving")
        and not inside(imported, SERVING_FOR_COMPONENTS)
    ]


def long_modules(root: Path) -> list[str]:
    return [
        f"{name} has {lines} lines, at most {MAX_LINES}: split it"
        for name, path in modules(root)
        if (lines := len(path.read_text().splitlines())) > MAX_LINES
    ]


def names_that_say_nothing(root: Path) -> list[str]:
    return [
        f"{name}: name it for what it holds"
        for name, _ in modules(root)
        if any(
            part in NAMES_THAT_SAY_NOTHING or "helper" in part
            for part in name.split(".")
        )
    ]


def asserts(root: Path) -> list[str]:
    return [
        f"{name}, line {node.lineno}: raise an error that says what was got"
        for name, path in modules(root)
        for node in ast.walk(ast.parse(path.read_text(), str(path)))
        if isinstance(node, ast.Assert)
    ]


def packages_under_tests(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}: remove it, or the folder shadows our package"
        for path in sorted((root / "tests").rglob("__init__.py"))
    ]


RULES = (
    against_the_arrows,
    serving_imports_of_the_pipeline,
    tensorflow_in_serving,
    serving_internals_in_components,
    long_modules,
    names_that_say_nothing,
    asserts,
    packages_under_tests,
)
Rule = Callable[[Path], list[str]]


@pytest.mark.parametrize("rule", RULES)
def test_repository_keeps_the_rule(rule: Rule) -> None:
    assert rule(ROOT) == []


def test_there_are_modules_to_look_at() -> None:
    assert {name.split(".")[0] for name, _ in modules(ROOT)} == set(PACKAGES)


BREACHES = (
    (against_the_arrows, "serving/a.py", "import components.features"),
    (against_the_arrows, "serving/a.py", "from components import features"),
    (against_the_arrows, "components/a.py", "def f():\n    from pipeline import cli"),
    (against_the_arrows, "components/a/b.py", "import_module('pipeline.cli')"),
    (serving_imports_of_the_pipeline, "serving/a.py", "import tfx.v1"),
    (
        serving_imports_of_the_pipeline,
        "serving/server/a.py",
        "async def f():\n    import apache_beam as beam",
    ),
    (serving_imports_of_the_pipeline, "serving/a.py", "import tensorflow_transform"),
    (tensorflow_in_serving, "serving/a.py", "import tensorflow as tf"),
    (
        tensorflow_in_serving,
        "serving/client/a.py",
        "from tensorflow_serving.apis import predict_pb2",
    ),
    (tensorflow_in_serving, "serving/servers.py", "import tensorflow"),
    (tensorflow_in_serving, "serving/server/a.py", "import tensorflow as tf"),
    (serving_internals_in_components, "components/a.py", "import serving.rollout"),
    (serving_internals_in_components, "components/a.py", "from serving import server"),
    (long_modules, "pipeline/a.py", "\n" * 601),
    (names_that_say_nothing, "pipeline/utils.py", ""),
    (names_that_say_nothing, "pipeline/common/a.py", ""),
    (names_that_say_nothing, "serving/csv_helpers.py", ""),
    (asserts, "serving/a.py", "def f(x):\n    assert x"),
    (packages_under_tests, "tests/serving/__init__.py", ""),
)


@pytest.mark.parametrize(("rule", "file", "text"), BREACHES)
def test_rule_finds_its_breach(
    rule: Rule, file: str, text: str, tmp_path: Path
) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert len(set(rule(tmp_path))) >= 1


ALLOWED = (
    ("pipeline/a.py", "from components import features\nimport serving.server"),
    ("components/a.py", "import tfx\nfrom serving.errors import TaxiwayError"),
    ("components/a.py", "from serving import model_repository"),
    ("serving/a/b.py", "from . import components\nfrom .pipeline import x"),
    ("serving/a.py", "import pipelines"),
)


@pytest.mark.parametrize(("file", "text"), ALLOWED)
def test_rules_allow_what_is_allowed(file: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert [breach for rule in RULES for breach in rule(tmp_path)] == []
