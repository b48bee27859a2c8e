"""`taxiway config`: check the settings, show them, or print their JSON Schema."""

import argparse
import json

from components.trainer.devices import check_ahead
from pipeline.config import ProjectSettings, load_settings, settings_json_schema
from pipeline.user_code import make_importable, resolve
from pipeline.yaml_source import dump


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "action",
        choices=("check", "show", "schema"),
        help="check: say whether the settings are right; show: print them with all "
        "defaults and overrides; schema: print the JSON Schema, for editors",
    )
    parser.add_argument("--json", action="store_true", help="show as JSON, not YAML")
    parser.add_argument(
        "--code", action="store_true", help="check that your functions can be imported"
    )


def run(args: argparse.Namespace) -> int:
    """Do what was asked; wrong settings are an error with one line for each fault."""
    if args.action == "schema":
        print(json.dumps(settings_json_schema(), indent=2))
        return 0
    settings = load_settings(args.config, args.overrides)
    if args.action == "check":
        check_ahead(settings.trainer)
        if args.code:
            _import_code(settings)
        print(_summary(settings))
        return 0
    content = settings.model_dump(mode="json", by_alias=True)
    if args.json:
        print(json.dumps(content, indent=2))
    else:
        print(dump(content), end="")
    return 0


def _import_code(settings: ProjectSettings) -> None:
    make_importable(settings.root)
    for dotted in (settings.transform.preprocessing_fn, settings.trainer.model):
        if dotted is not None:
            resolve(dotted, settings.root)


def _summary(settings: ProjectSettings) -> str:
    table = settings.table
    num_columns = len(table.input_columns())
    return (
        f"{settings.path}: no faults; {len(settings.features)} features from "
        f"{num_columns} columns, {table.label.kind} label {table.label.column!r}"
    )
