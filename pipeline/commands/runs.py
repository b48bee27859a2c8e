"""`taxiway runs`: the history of a project, and the lineage of one run."""

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from pipeline.config import load_settings
from pipeline.extras import require_tfx
from pipeline.steps import STEPS

if TYPE_CHECKING:
    from pipeline.metadata import ArtifactRecord, RunHistory


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "run", nargs="?", help="id of a run, or its beginning: show its lineage"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Print all runs, or how one run's outputs came about."""
    require_tfx()
    from pipeline.metadata import History

    settings = load_settings(args.config, args.overrides)
    history = History(settings.metadata_path)
    console = Console(highlight=False)
    found = history.runs() if args.run is None else [history.run(args.run)]
    if args.json:
        print(json.dumps([asdict(each) for each in found], indent=2))
    elif args.run is None:
        console.print(_overview(found))
    else:
        _lineage(found[0], console)
    return 0


def _overview(runs: "list[RunHistory]") -> Table:
    table = Table(box=None, header_style="bold")
    for column in ("run", "started (UTC)", "steps", "blessed", "version"):
        table.add_column(column)
    for each in runs:
        table.add_row(
            each.run_id,
            each.started.removesuffix("+00:00").replace("T", " "),
            _states(each),
            {True: "yes", False: "no", None: "-"}[each.blessed],
            each.version or "-",
        )
    return table


def _states(run: "RunHistory") -> str:
    ours = {step.id for step in STEPS}
    states = [e.state for e in run.executions if e.step in ours]
    names = dict.fromkeys(states)
    return ", ".join(f"{states.count(name)} {name}" for name in names)


def _lineage(run: "RunHistory", console: Console) -> None:
    console.print(f"[bold]{run.run_id}[/]  {run.started}", soft_wrap=True)
    for execution in run.executions:
        console.print(f"{execution.step}  {execution.state}  execution {execution.id}")
        for artifact in execution.inputs:
            console.print(f"  ← {_artifact(artifact)}", soft_wrap=True)
        for artifact in execution.outputs:
            console.print(f"  → {_artifact(artifact)}", soft_wrap=True)


def _artifact(artifact: "ArtifactRecord") -> str:
    return f"{artifact.channel} ({artifact.type} {artifact.id})  {artifact.uri}"
