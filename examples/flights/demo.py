"""The demo: runs the commands that a user would run, and sums up what came of them.

Each step but the server is a command, printed before it runs.
"""

import argparse
import contextlib
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pipeline.runners.record import RECORD_FILE, RunRecord, read_record
from pipeline.runners.words import step_words
from serving.errors import TaxiwayError
from serving.server.process import EmbeddedServer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TAXIWAY = Path(sys.executable).with_name("taxiway")
PROJECT = HERE.relative_to(ROOT)
REQUESTS = PROJECT / "requests.csv"
NOT_BLESSED = 3
MODEL = "flights"
OUTPUT = "probability"
SHOWN_STEPS = ("ExampleGen", "ExampleValidator", "Trainer", "Evaluator", "Pusher")

Row = Mapping[str, Any]


class DemoError(Exception):
    """The demo cannot go on; the message says why."""


@dataclass
class Stopwatch:
    """How long each part of the demo took, in seconds."""

    clock: Callable[[], float]
    seconds: dict[str, float] = field(default_factory=dict)

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time what is done inside."""
        began = self.clock()
        yield
        self.seconds[name] = self.clock() - began


def main() -> int:
    """Run the demo and return its exit code."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--setup-seconds", type=float, default=0.0)
    options = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True)
    watch = Stopwatch(time.monotonic, {"setting up .venv": options.setup_seconds})
    try:
        play(console, watch)
    except (DemoError, TaxiwayError) as error:
        console.print(f"[red]the demo stopped:[/] {error}")
        return 1
    except KeyboardInterrupt:
        console.print("\nthe demo was interrupted; its server is stopped")
        return 130
    return 0


def play(console: Console, watch: Stopwatch) -> None:
    """Do each part in turn.

    Raises:
        DemoError: A part failed.
    """
    with watch.part("data"):
        title(console, "1. The data: flights, weather and planes of 2013")
        command(console, sys.executable, str(PROJECT / "prepare.py"))
    with watch.part("pipeline"):
        title(console, "2. From the file to a published model")
        code = command(console, *taxiway("run"), allowed=(0, NOT_BLESSED))
        if code == NOT_BLESSED and not any((HERE / "models").glob("*/*/")):
            raise DemoError("no model was blessed, so there is none to serve")
    title(console, "3. A model server, and twelve flights it has never seen")
    with contextlib.ExitStack() as stack:
        with watch.part("server start"):
            server = stack.enter_context(start_server())
        console.print(
            f"the server listens on {server.host}: REST on port {server.rest_port}, "
            f"gRPC on port {server.grpc_port} (by hand: taxiway serve)"
        )
        with watch.part("predictions"):
            rest = predict(console, "rest", f"{server.host}:{server.rest_port}")
            grpc = predict(console, "grpc", f"{server.host}:{server.grpc_port}")
    show_predictions(console, rest, grpc)
    summarise(console, watch)


def title(console: Console, text: str) -> None:
    """Print a heading."""
    console.print(f"\n[bold]{text}[/]")


def taxiway(*arguments: str) -> tuple[str, ...]:
    """Return a command line of taxiway for this project."""
    return (str(TAXIWAY), "-c", str(PROJECT / "taxiway.yaml"), *arguments)


def show_command(console: Console, arguments: tuple[str, ...]) -> None:
    """Print a command as a user would type it."""
    words = [word.removeprefix(f"{ROOT}/") for word in arguments]
    console.print(f"[dim]$ {shlex.join(words)}[/]")


def command(console: Console, *arguments: str, allowed: tuple[int, ...] = (0,)) -> int:
    """Run a command on this terminal and return its exit code.

    Raises:
        DemoError: The exit code is not an allowed one.
    """
    show_command(console, arguments)
    code = subprocess.run(arguments, cwd=ROOT, check=False).returncode
    if code not in allowed:
        raise DemoError(f"the command above ended with exit code {code}")
    return code


def start_server() -> EmbeddedServer:
    """Return a model server for what was published, not yet started."""
    return EmbeddedServer(MODEL, HERE / "models" / MODEL, HERE / ".taxiway/server.log")


def predict(console: Console, api: str, address: str) -> list[Row]:
    """Ask a server about the requests; return each with the model's answer.

    Raises:
        DemoError: The command failed.
    """
    asked = ("--api", api, "--address", address, "--json")
    arguments = taxiway("predict", str(REQUESTS), *asked)
    show_command(console, arguments)
    done = subprocess.run(
        arguments, cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise DemoError(
            f"the command above ended with exit code {done.returncode}: {done.stderr}"
        )
    return [json.loads(line) for line in done.stdout.splitlines()]


def show_predictions(
    console: Console, rest: Sequence[Row], grpc: Sequence[Row]
) -> None:
    """Print what both APIs said beside what happened."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("flight", "from", "to", "scheduled"):
        table.add_column(column)
    for column in ("P(late), REST", "P(late), gRPC", "was late"):
        table.add_column(column, justify="right")
    for flight, same in zip(rest, grpc, strict=True):
        table.add_row(
            f"{flight['carrier']} {flight['flight']}",
            flight["origin"],
            flight["dest"],
            f"Dec {int(flight['day']):2}, {flight['hour']:>2}:{flight['minute']:0>2}",
            f"{flight[OUTPUT]:.3f}",
            f"{same[OUTPUT]:.3f}",
            "yes" if flight["late"] == "1" else "no",
        )
    console.print(table)


def summarise(console: Console, watch: Stopwatch) -> None:
    """Print what the run did, how long everything took and where to look next."""
    title(console, "Summary")
    record = latest_record()
    for name in SHOWN_STEPS:
        words = step_words(record.step(name)).replace("\n", f"\n{'':18}")
        console.print(f"{name:<18}{words}")
    for name, seconds in watch.seconds.items():
        console.print(f"{name:<18}{seconds:>7.1f} s")
    console.print(f"{'in all':<18}{sum(watch.seconds.values()):>7.1f} s")
    console.print("\nLook next at:")
    for what, why in (
        (PROJECT / "taxiway.yaml", "what was asked for"),
        (record_path().relative_to(ROOT).parent, "the record of the run, and its logs"),
        (PROJECT / "models" / MODEL, "the published versions"),
        (f".venv/bin/taxiway -c {PROJECT} runs", "what was made from what"),
        ("README.md", "the same with your own data"),
        ("scripts/demo", "again: what has not changed is cached"),
    ):
        console.print(f"  {what!s:<50}  {why}")


def record_path() -> Path:
    """Return the newest record of a run; a run that did nothing leaves none."""
    paths = sorted(HERE.glob(f".taxiway/runs/*/{RECORD_FILE}"))
    if not paths:
        raise DemoError("there is no record of a run under .taxiway/runs")
    return paths[-1]


def latest_record() -> RunRecord:
    """Return the newest record of a run."""
    return read_record(record_path())


if __name__ == "__main__":
    sys.exit(main())
