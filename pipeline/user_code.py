"""The user's own modules: importable, never in front of ours, known by their bytes."""

import ast
import importlib
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

from pipeline.errors import UserCodeError
from pipeline.settings_errors import suggestion

RESERVED = ("pipeline", "components", "serving")
SKIPPED_FOLDERS = frozenset({".taxiway", "__pycache__", ".git", "node_modules"})
DYNAMIC = frozenset(
    {
        "__import__",
        "eval",
        "exec",
        "exec_module",
        "import_module",
        "iter_modules",
        "load_module",
        "module_from_spec",
        "run_module",
        "run_path",
        "spec_from_file_location",
        "walk_packages",
    }
)
"""Names behind which any module may be imported."""


def is_dotted_path(text: str) -> bool:
    """Tell whether the text could name something in a module: `a.b`, `a.b.c`."""
    parts = text.split(".")
    return len(parts) > 1 and all(part.isidentifier() for part in parts)


def make_importable(root: Path) -> None:
    """Append the project's folder to the import path: last, so that it hides nothing.

    Raises:
        UserCodeError: A module of the project has the name of one of our packages.
    """
    refuse_reserved_names(root)
    if str(root) not in sys.path:
        sys.path.append(str(root))


def refuse_reserved_names(root: Path) -> None:
    """Refuse a project with a module that ours would hide.

    Raises:
        UserCodeError: There is one.
    """
    for name in RESERVED:
        for candidate in (root / f"{name}.py", *sorted((root / name).glob("*.py"))):
            if candidate.exists() and not _is_ours(candidate):
                raise UserCodeError(
                    f"{candidate}: a module called {name!r} would clash with "
                    f"Taxiway's own package of that name; rename it"
                )


def resolve(dotted: str, root: Path) -> object:
    """Import what a dotted path names; the project must be importable.

    Args:
        dotted: `my_project.model.build_model`.
        root: The project's folder, to say where its code failed.

    Raises:
        UserCodeError: No such module, no such name in it, or its import failed.
    """
    module_name, _, name = dotted.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise UserCodeError(f"{dotted}: {_why(error, module_name, root)}") from error
    try:
        return getattr(module, name)
    except AttributeError as error:
        names = [known for known in vars(module) if not known.startswith("_")]
        raise UserCodeError(
            f"{dotted}: module {module_name} has no {name!r}{suggestion(name, names)}"
        ) from error


def _why(error: Exception, module: str, root: Path) -> str:
    absent = error.name if isinstance(error, ModuleNotFoundError) else None
    if absent and f"{module}.".startswith(f"{absent}."):
        return f"no module {absent!r} in {root} or among installed packages"
    if isinstance(error, SyntaxError):
        where = f"{_under(Path(error.filename or module), root)}:{error.lineno}"
        return f"importing it failed: SyntaxError: {error.msg} ({where})"
    lines = str(error).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        if file.is_relative_to(root) and "site-packages" not in file.parts:
            return f"importing it failed: {text} ({_under(file, root)}:{frame.lineno})"
    return f"importing it failed: {text}"


def _under(file: Path, root: Path) -> Path:
    return file.relative_to(root) if file.is_relative_to(root) else file


def _is_ours(candidate: Path) -> bool:
    return candidate.resolve().is_relative_to(Path(__file__).resolve().parents[1])


def reachable_sources(
    dotted: str, root: Path, packages: tuple[str, ...] | None = None
) -> dict[str, Path]:
    """Return the source files under `root` that a dotted path can run, by module.

    Nothing is imported. Imports are followed as they are written: in functions, under
    conditions, relative ones too. A module that imports by a computed name could reach
    anything, so then all files count.

    Args:
        dotted: `my_project.model.build_model`, or a module.
        root: Folder that absolute imports start from.
        packages: Only follow modules in these top-level packages.
    """
    found: dict[str, Path] = {}
    waiting = list(_prefixes(dotted))
    while waiting:
        name = waiting.pop()
        if name in found or (packages and name.split(".")[0] not in packages):
            continue
        file = module_file(name, root)
        if file is None:
            continue
        found[name] = file
        tree = _parse(file)
        if packages is None and _imports_dynamically(tree):
            return _all_sources(root)
        package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        for imported in _imports(tree, package, root):
            waiting += _prefixes(imported)
    return dict(sorted(found.items()))


def module_file(name: str, root: Path) -> Path | None:
    """Return the file of a module under `root`; None when it is not there."""
    base = root.joinpath(*name.split("."))
    for file in (base / "__init__.py", base.with_name(f"{base.name}.py")):
        if file.is_file():
            return file
    return None


def _prefixes(dotted: str) -> Iterator[str]:
    """Yield `a`, `a.b`, `a.b.c`: importing the last runs all of them."""
    parts = dotted.split(".")
    for length in range(1, len(parts) + 1):
        yield ".".join(parts[:length])


def _parse(file: Path) -> ast.Module:
    try:
        return ast.parse(file.read_bytes(), str(file))
    except (SyntaxError, ValueError):
        return ast.Module([], [])  # its step will fail and say where


def _imports(tree: ast.Module, package: str, root: Path) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            if base:
                yield base
            for alias in node.names:
                if alias.name == "*":
                    yield from _children(base, root)
                else:
                    yield f"{base}.{alias.name}".strip(".")


def _children(package: str, root: Path) -> Iterator[str]:
    """Yield each module in a package: a star imports those that `__all__` names."""
    folder = root.joinpath(*package.split(".")) if package else root
    for file in [*folder.glob("*.py"), *folder.glob("*/__init__.py")]:
        name = file.parent.name if file.name == "__init__.py" else file.stem
        yield f"{package}.{name}".strip(".")


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".") if package else []
    kept = parts[: len(parts) - (node.level - 1)]
    return ".".join([*kept, *([node.module] if node.module else [])])


def _imports_dynamically(tree: ast.Module) -> bool:
    return any(_may_import_anything(node) for node in ast.walk(tree))


def _may_import_anything(node: ast.AST) -> bool:
    match node:
        case ast.Name(id=name) | ast.alias(name=name):
            return name.rpartition(".")[2] in DYNAMIC
        case ast.Attribute(value=ast.Name(id="sys"), attr="path"):
            return True  # modules of other folders, under names of their own
        case ast.Attribute(attr=name):
            return name in DYNAMIC
        case _:
            return False


def _all_sources(root: Path) -> dict[str, Path]:
    environments = {marker.parent for marker in root.rglob("pyvenv.cfg")}
    files = sorted(root.rglob("*.py"))
    return {
        str(file.relative_to(root)): file
        for file in files
        if not SKIPPED_FOLDERS & set(file.relative_to(root).parts)
        and environments.isdisjoint(file.parents)
    }
