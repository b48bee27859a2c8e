"""`taxiway reload`: serve what another ModelServerConfig says."""

import argparse
from pathlib import Path

from pipeline.config import load_settings
from pipeline.served import routes_of, told
from serving.model_server_config import differences, read_models


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("file", type=Path, help="a ModelServerConfig, as text")
    parser.add_argument(
        "--prune", action="store_true", help="let models go that the file leaves out"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show the difference, change nothing"
    )


def run(args: argparse.Namespace) -> int:
    """Show what would change, and then change it, on all servers or on none."""
    settings = load_settings(args.config, args.overrides)
    models = read_models(args.file)
    with routes_of(settings) as routes:
        lines = differences(routes.models(), models)
        print("\n".join(lines) or "nothing would change")
        if args.dry_run:
            return 0
        timeout_s = settings.serving.change_timeout_s
        routes.replace(models, timeout_s, prune=args.prune)
        print(f"{routes.file}: {len(models)} models; {told(routes)}")
    return 0
