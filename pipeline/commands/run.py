"""`taxiway run`: run the pipeline on this machine."""

import argparse
import shlex
import signal
import threading
import time

from rich.console import Console
from rich.markup import escape

from components.errors import ResumeError
from pipeline.config import load_settings
from pipeline.runners.local import run_pipeline
from pipeline.runners.record import RECORD_FILE, RunRecord
from pipeline.runners.terminal import Terminal
from pipeline.runners.words import unblessed_words

FAILED, NOT_BLESSED, NOT_PUSHED = 1, 3, 4
RESUME = ResumeError.exit_code
MAX_SHOWN_REASONS = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "--no-cache", action="store_true", help="run every step, changed or not"
    )


def run(args: argparse.Namespace) -> int:
    """Run the pipeline.

    Returns:
        0 when a model is pushed or nothing has changed, 1 when a step failed, 3 when
        the model was not blessed, 4 when no server took it, 75 when it was asked to stop (SIGTERM, Ctrl-C) while
        a step ran: start it again to go on. A second Ctrl-C does not wait.
    """
    settings = load_settings(args.config, args.overrides)
    console = Console(highlight=False)
    asked = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked.set())
    signal.signal(signal.SIGINT, lambda *_: _interrupt(asked))
    record = run_pipeline(
        settings,
        Terminal(console),
        time.monotonic,
        use_cache=not args.no_cache,
        wants_stop=asked.is_set,
    )
    return report(record, console, _resume_command(args))


def _interrupt(asked: threading.Event) -> None:
    """Let the step that runs save its state, the first time."""
    if asked.is_set():
        raise KeyboardInterrupt
    asked.set()


def report(record: RunRecord, console: Console, resume: str) -> int:
    """Print how the run ended and return the exit code."""
    failed = next((step for step in record.steps if step.state == "failed"), None)
    if failed is not None:
        what = "was stopped" if failed.resumable else "failed"
        console.print(
            f"[red]{failed.id} {what}[/] after {failed.seconds:.1f} s: "
            f"{escape(failed.reason or '')}\n"
            f"  log:    {escape(failed.log or '')}\n"
            f"  resume: {escape(resume)}   (what succeeded is cached)",
            soft_wrap=True,
        )
        return RESUME if failed.resumable else FAILED
    if record.status == "not blessed":
        console.print("[yellow]not blessed, not pushed:[/]")
        reasons = unblessed_words(record)
        for reason in reasons[:MAX_SHOWN_REASONS]:
            console.print(f"  {escape(reason)}", soft_wrap=True)
        if len(reasons) > MAX_SHOWN_REASONS:
            more = len(reasons) - MAX_SHOWN_REASONS
            console.print(f"  and {more} more; all are in the run's {RECORD_FILE}")
        return NOT_BLESSED
    version = record.step("Pusher").summary.get("version")
    if record.status == "not pushed":
        problem = record.step("Pusher").summary["problem"]
        console.print(
            f"[red]published version {version}, not pushed:[/] {escape(problem)}",
            soft_wrap=True,
        )
        return NOT_PUSHED
    what = {
        "pushed": f"pushed version {version}",
        "unchanged": f"nothing has changed: version {version} stands, nothing was run",
    }.get(record.status, f"version {version} stands")
    console.print(f"[green]{what}[/]  ({record.seconds:.1f} s)")
    return 0


def _resume_command(args: argparse.Namespace) -> str:
    parts = ["taxiway"]
    if args.config is not None:
        parts += ["-c", str(args.config)]
    for override in args.overrides:
        parts += ["--set", override]
    return shlex.join([*parts, "run"])
