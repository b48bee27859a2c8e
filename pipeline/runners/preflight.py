"""What can be known to fail before TFX is loaded: columns, functions, the trainer."""

import ast
from importlib.util import find_spec

from components.example_gen.config import split_columns
from components.example_gen.csv_source import check_header
from components.example_gen.sources import find_sources
from components.trainer.devices import check_ahead
from pipeline.config import ProjectSettings
from pipeline.errors import PipelineError, UserCodeError
from pipeline.runners.ingredients import ingest_request
from pipeline.user_code import module_file


def check(settings: ProjectSettings) -> None:
    """Look at the data's headers, the trainer and the user's functions, unexecuted.

    Raises:
        DataError: A file cannot be read, or lacks a column.
        UserCodeError: A function is not where the settings say.
        ModelError: The trainer's settings fit no machine.
        PipelineError: TFX could not work in the project's folder.
    """
    magic = sorted(set("[]*?") & set(str(settings.state_dir)))
    if magic:
        raise PipelineError(
            f"{settings.root}: TFX takes {' '.join(magic)} in a path for a pattern; "
            "move the project to a folder without"
        )
    check_ahead(settings.trainer)
    request = ingest_request(settings)
    wanted = dict.fromkeys([*split_columns(settings.data.split), *request.dtypes])
    for _, file in find_sources(request):
        check_header(file, settings.data, wanted)
    check_function("trainer.model", settings.trainer.model, settings)
    check_function(
        "transform.preprocessing_fn", settings.transform.preprocessing_fn, settings
    )


def check_function(key: str, dotted: str | None, settings: ProjectSettings) -> None:
    """Find a function in its module's text.

    Raises:
        UserCodeError: The module is not there, is not Python, or has no such name.
    """
    if dotted is None:
        return
    module, _, name = dotted.rpartition(".")
    file = module_file(module, settings.root)
    if file is None:
        if find_spec(module.partition(".")[0]) is None:
            raise UserCodeError(
                f"{key}: no module {module} for {dotted}; it would be "
                f"{settings.root / module.replace('.', '/')}.py"
            )
        return
    try:
        tree = ast.parse(file.read_bytes(), str(file))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise UserCodeError(f"{key}: {file}:{line}: not Python: {error}") from error
    names = _names(tree)
    if name not in names and "*" not in names:
        raise UserCodeError(f"{key}: {file} has no {name!r}, named by {dotted}")


def _names(tree: ast.Module) -> set[str]:
    """Return every name that a module may bind at its top; `*` may bind any."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(a.asname or a.name).partition(".")[0] for a in node.names}
    return names
