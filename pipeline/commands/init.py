"""`taxiway init`: scaffold a project from a CSV file."""

import argparse
import glob
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pipeline.config import FILE_NAME, STATE_FOLDER, load_settings
from pipeline.errors import ScaffoldError
from pipeline.scaffold.dialect import sniff
from pipeline.scaffold.guess import Guess, guess
from pipeline.scaffold.guess_label import guess_label
from pipeline.scaffold.leaks import same_as_label
from pipeline.scaffold.names import project_name
from pipeline.scaffold.profile import profile
from pipeline.scaffold.render import render
from pipeline.user_code import refuse_reserved_names

IGNORED = (f"{STATE_FOLDER}/", "models/")
FEW_ROWS = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("csv", type=Path, metavar="CSV", help="file with a header")
    parser.add_argument("--label", metavar="COLUMN", help="column to be predicted")
    parser.add_argument(
        "--dir", type=Path, default=Path(), help="the project's folder (this one)"
    )
    parser.add_argument("--project", metavar="NAME", help="the project's name")
    parser.add_argument(
        "--force", action="store_true", help=f"overwrite {FILE_NAME} if there is one"
    )


def run(args: argparse.Namespace) -> int:
    """Guess the settings, write them and say what was guessed.

    Raises:
        ScaffoldError: The file cannot be used, or there are settings already.
    """
    if args.config is not None or args.overrides:
        raise ScaffoldError("init takes neither --config nor --set; see --dir")
    root = args.dir.absolute()
    target = root / FILE_NAME
    if target.exists() and not args.force:
        raise ScaffoldError(f"{target}: is there already; --force overwrites it")
    if not args.csv.is_file():
        what = "is a folder" if args.csv.is_dir() else "no such file"
        raise ScaffoldError(f"{args.csv}: {what}; name a CSV file with a header")
    made = _guess(args.csv, args.label)
    project = args.project or project_name(root.resolve().name)
    _write(target, render(made, project, _pattern(args.csv, root)))
    for line in _report(made, target, args.dir):
        print(line)
    return 0


def _guess(file: Path, wanted: str | None) -> Guess:
    table = profile(file, sniff(file))
    label = guess_label(table, wanted)
    made = guess(table, label, same_as_label(table, label.label.column))
    if not made.features:
        reasons = "; ".join(f"{column}: {why}" for column, why in made.dropped)
        raise ScaffoldError(f"{file}: no column is left to predict from ({reasons})")
    return made


def _pattern(file: Path, root: Path) -> str:
    """Return the file as the settings name it; they hold patterns, so `[` is escaped."""
    full, folder = file.resolve(), root.resolve()
    inside = full.is_relative_to(folder)
    return glob.escape(str(full.relative_to(folder) if inside else full))


def _write(target: Path, text: str) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        refuse_reserved_names(target.parent)
        target.write_text(text, encoding="utf-8")
        _ignore(target.with_name(".gitignore"))
    except OSError as error:
        raise ScaffoldError(f"{target}: cannot be written: {error.strerror}") from error
    load_settings(target, environ={})


def _ignore(file: Path) -> None:
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    lines = text.splitlines()
    missing = [line for line in IGNORED if line not in lines]
    if missing:
        before = text if not text or text.endswith("\n") else f"{text}\n"
        file.write_text(before + "".join(f"{m}\n" for m in missing), encoding="utf-8")


def _report(made: Guess, target: Path, folder: Path) -> Iterator[str]:
    table, label = made.table, made.label.label
    yield (
        f"read      {table.file}: {table.num_rows:,} rows, {len(table.columns)} columns "
        f"({table.dialect.encoding}, {table.dialect.delimiter!r} between cells)"
    )
    yield (
        f"label     {label.column}: {made.label.why}; {label.kind}; "
        "another one: --label COLUMN"
    )
    kinds = Counter(feature.kind for feature in made.features.values())
    counted = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common())
    yield f"features  {counted}"
    for column, why in made.dropped:
        yield f"dropped   {column}: {why}"
    for note in made.label.notes:
        yield f"note      {note}"
    if table.num_rows < FEW_ROWS:
        yield f"note      {table.num_rows} rows are few: metrics will be mostly chance"
    yield f"wrote     {target}"
    at = "" if folder == Path() else f" -c {folder}"
    yield f"next      look through {FILE_NAME}: is the label right, what gives it away?"
    for command in ("run", "serve", f"predict {table.file}"):
        yield f"          taxiway{at} {command}"
