"""`taxiway models`: the versions of the model, and what became of each."""

import argparse
import json
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from pipeline.config import load_settings
from pipeline.served import routes_of
from serving.errors import ClientError, RepositoryError
from serving.model_repository import Entry
from serving.routing import Routes

TIMEOUT_S = 5.0
UNITS = ("B", "kB", "MB", "GB", "TB")


@dataclass(frozen=True)
class Row:
    """One version."""

    version: int
    labels: list[str]
    states: dict[str, str]
    """State by the server's address."""
    size: int | None
    """Bytes; None: it has no manifest."""
    published: str
    run: str
    metrics: dict[str, float]
    problem: str
    """Why it cannot be served; empty: it can."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Print every version of the repository, newest first, and what is no version."""
    settings = load_settings(args.config, args.overrides)
    with routes_of(settings) as routes:
        entries = routes.repository.entries()
        states = _states(routes)
        rows = [
            _row(routes, entry, states)
            for entry in sorted(entries, key=lambda e: -(e.version or 0))
            if entry.version is not None
        ]
    ignored = [entry for entry in entries if entry.version is None]
    if args.json:
        document = {
            "model": settings.push.model,
            "versions": [asdict(row) for row in rows],
            "ignored": {entry.name: entry.problem for entry in ignored},
        }
        print(json.dumps(document, indent=2))
    else:
        _show(rows, ignored, Console(highlight=False))
    return 0


def _states(routes: Routes) -> dict[int, dict[str, str]]:
    states: dict[int, dict[str, str]] = {}
    for address, server in routes.servers.items():
        try:
            found = server.status(TIMEOUT_S)
        except ClientError:
            continue
        for entry in found:
            text = f"{entry.state} {entry.error}".strip()
            states.setdefault(entry.version, {})[address] = text
    return states


def _row(routes: Routes, entry: Entry, states: dict[int, dict[str, str]]) -> Row:
    version = entry.version or 0
    labels = routes.current().labels
    try:
        manifest = routes.repository.manifest(version)
    except RepositoryError:
        manifest = None
    return Row(
        version=version,
        labels=sorted(label for label, target in labels.items() if target == version),
        states=states.get(version, {}),
        size=manifest.size if manifest else None,
        published=manifest.created if manifest else "",
        run=manifest.run if manifest else "",
        metrics=dict(manifest.facts.get("metrics", {})) if manifest else {},
        problem=entry.problem,
    )


def _show(rows: list[Row], ignored: list[Entry], console: Console) -> None:
    if not rows:
        console.print("no version yet; `taxiway run` publishes one")
    else:
        table = Table(box=None, header_style="bold")
        for column in ("version", "labels", "on server", "size", "published", "run"):
            table.add_column(column)
        table.add_column("metrics")
        for row in rows:
            table.add_row(
                str(row.version),
                " ".join(row.labels),
                ", ".join(sorted(set(row.states.values()))) or "-",
                readable(row.size),
                row.published,
                row.run,
                " ".join(f"{k} {v:.4g}" for k, v in sorted(row.metrics.items())),
            )
        console.print(table)
    for row in rows:
        if row.problem:
            console.print(f"[red]version {row.version}:[/] {row.problem}")
    for entry in ignored:
        console.print(f"[dim]{entry.name}: {entry.problem}[/]")


def readable(size: int | None) -> str:
    """Return a number of bytes as people read it."""
    if size is None:
        return "?"
    amount, unit = float(size), UNITS[0]
    for unit in UNITS:  # noqa: B007  the last one is used
        if amount < 1000:
            break
        amount /= 1000
    return f"{amount:.3g} {unit}"
