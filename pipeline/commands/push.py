"""`taxiway push`: publish a SavedModel that was not made by `taxiway run`."""

import argparse
from pathlib import Path

from components.pusher.push import push
from pipeline.commands.run import NOT_PUSHED
from pipeline.config import load_settings
from pipeline.served import routes_of
from serving.model_repository import UNKNOWN


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("model", type=Path, help="folder of a SavedModel")
    parser.add_argument(
        "--allow-breaking",
        action="store_true",
        help="push it even if clients of the stable version would break",
    )


def run(args: argparse.Namespace) -> int:
    """Publish it, and say which servers have taken it.

    Returns:
        0 when every server has, 4 when one has not: it is published then, not pushed.
    """
    settings = load_settings(args.config, args.overrides)
    with routes_of(settings) as routes:
        servers = routes.addresses
    where = settings.push
    if args.allow_breaking:
        where = where.model_copy(update={"allow_breaking": True})
    pushed = push(
        args.model, where, servers, settings.serving.change_timeout_s, UNKNOWN
    )
    what = "" if pushed.is_new else " held the same model already"
    print(f"version {pushed.version} of {where.model}{what}")
    for change in pushed.changes:
        print(f"  {change}")
    if pushed.problem:
        print(f"published, not pushed: {pushed.problem}")
        return NOT_PUSHED
    taken = f"AVAILABLE on {', '.join(pushed.confirmed)}" if pushed.confirmed else ""
    print(taken or "no server runs; one that starts takes it from there")
    return 0
