"""`taxiway rollback`: make the version stable that was stable before."""

import argparse

from pipeline.config import load_settings
from pipeline.served import routes_of, told
from serving.errors import RoutingError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "--to", type=int, metavar="VERSION", help="to this one, not the one before"
    )


def run(args: argparse.Namespace) -> int:
    """Move the label `stable` back."""
    settings = load_settings(args.config, args.overrides)
    with routes_of(settings) as routes:
        before = routes.stable()
        version = args.to if args.to is not None else routes.previous()
        if version is None:
            known = ", ".join(map(str, routes.repository.versions())) or "none"
            raise RoutingError(
                f"no version of {settings.push.model} was stable before "
                f"{before or 'any'}; choose one with --to; versions: {known}"
            )
        routes.promote(version, settings.serving.change_timeout_s, "rollback")
        print(f"back at version {version}, before: {before}; {told(routes)}")
    return 0
