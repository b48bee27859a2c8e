"""`taxiway promote`: make a version the stable one."""

import argparse

from pipeline.config import load_settings
from pipeline.served import routes_of, told


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("version", type=int, help="the version that becomes stable")


def run(args: argparse.Namespace) -> int:
    """Move the label `stable`; requests without a version follow it."""
    settings = load_settings(args.config, args.overrides)
    with routes_of(settings) as routes:
        before = routes.stable()
        routes.promote(args.version, settings.serving.change_timeout_s)
        was = "" if before in {None, args.version} else f", before: {before}"
        print(f"version {args.version} is stable{was}; {told(routes)}")
    return 0
