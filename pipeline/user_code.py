"""The user's own modules: importable, never in front of ours, known by their bytes."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from pipeline.errors import UserCodeError

RESERVED = ("pipeline", "components", "serving")
SKIPPED_FOLDERS = frozenset({".taxiway", ".venv", "venv", "__pycache__", ".git"})
DYNAMIC = frozenset({"import_module", "__import__", "exec", "eval", "run_path"})


def make_importable(root: Path) -> None:
    """Append the project's folder to the import path.

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
        for candidate in (root / f"{name}.py", root / name / "__init__.py"):
            if candidate.exists() and not _is_ours(candidate):
                raise UserCodeError(
                    f"{candidate}: a module called {name!r} would clash with "
                    f"Taxiway's own package of that name; rename it"
                )


def _is_ours(candidate: Path) -> bool:
    return candidate.resolve().is_relative_to(Path(__file__).resolve().parents[1])


def reachable_sources(
    dotted: str, root: Path, packages: tuple[str, ...] | None = None
) -> dict[str, Path]:
    """Return the source files under `root` that a dotted path can run, by module.

    Imports are followed as they are written: in functions, under conditions, relative
    ones too. A module that imports by a computed name could reach anything, so then
    all files count.

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
        for imported in _imports(tree, package):
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


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            if base:
                yield base
            for alias in node.names:
                yield f"{base}.{alias.name}".strip(".")


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".") if package else []
    kept = parts[: len(parts) - (node.level - 1)]
    return ".".join([*kept, *([node.module] if node.module else [])])


def _imports_dynamically(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.Call)
        and (
            (isinstance(node.func, ast.Name) and node.func.id in DYNAMIC)
            or (isinstance(node.func, ast.Attribute) and node.func.attr in DYNAMIC)
        )
        for node in ast.walk(tree)
    )


def _all_sources(root: Path) -> dict[str, Path]:
    files = sorted(root.rglob("*.py"))
    return {
        str(file.relative_to(root)): file
        for file in files
        if not SKIPPED_FOLDERS & set(file.relative_to(root).parts)
    }
