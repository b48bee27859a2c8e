"""`taxiway retire`: remove a version for good."""

import argparse

from pipeline.config import load_settings
from pipeline.served import routes_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("version", type=int, help="the version to remove")


def run(args: argparse.Namespace) -> int:
    """Remove a version that has no label, is not served, and is not the last."""
    settings = load_settings(args.config, args.overrides)
    with routes_of(settings) as routes:
        routes.repository.retire(args.version, routes.in_use())
        print(f"version {args.version} of {settings.push.model} is gone")
    return 0
