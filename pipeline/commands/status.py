"""`taxiway status`: versions in the repository, and what a server says of them."""

import argparse
import json
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from pipeline.config import ProjectSettings, load_settings
from serving.client import VersionStatus, connect
from serving.errors import ClientError
from serving.model_repository import ModelRepository
from serving.routing import AVAILABLE, Routes

TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Status:
    """What is published, and what is served."""

    model: str
    repository: str
    versions: list[int]
    """Versions in the repository, ascending."""
    server: str
    """Address of the REST API."""
    served: list[VersionStatus] | None
    """What the server says, newest first; None when it cannot be reached."""
    problem: str | None = None
    """Why it cannot be reached."""
    stable: int | None = None
    """The version with the label `stable`; None: there is none yet."""
    unlabelled: int | None = None
    """The version that answers who asks for none."""

    @property
    def warning(self) -> str | None:
        """What could move traffic by accident."""
        if self.stable is None or self.unlabelled in {None, self.stable}:
            return None
        return (
            f"requests that ask for no version get {self.unlabelled}, not the stable "
            f"{self.stable}: let clients ask for the label stable, or start the server "
            "with --default_version_label=stable"
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--address", help="host:port of the server's REST API")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Print the status; a server that is not running is a fact, not an error."""
    settings = load_settings(args.config, args.overrides)
    status = gather(settings, args.address)
    if args.json:
        print(json.dumps(asdict(status), indent=2))
    else:
        _show(status, Console(highlight=False))
    return 0


def gather(settings: ProjectSettings, address: str | None) -> Status:
    """Look into the repository and ask the server."""
    repository = ModelRepository(settings.push.base_path, settings.push.model)
    server = address or f"{settings.serving.host}:{settings.serving.rest_port}"
    served, problem, unlabelled = None, None, None
    client = connect("rest", server, settings.push.model)
    try:
        served = list(client.status(TIMEOUT_S))
        if any(entry.state == AVAILABLE for entry in served):
            unlabelled = client.version(TIMEOUT_S)
    except ClientError as error:
        problem = str(error)
    finally:
        client.close()
    return Status(
        model=settings.push.model,
        repository=str(repository.folder),
        versions=repository.versions(),
        server=server,
        served=served,
        problem=problem,
        stable=Routes(settings.push.base_path, settings.push.model, {}).stable(),
        unlabelled=unlabelled,
    )


def _show(status: Status, console: Console) -> None:
    console.print(f"model       {status.model}")
    console.print(f"repository  {status.repository}", soft_wrap=True)
    if status.served is None:
        console.print(f"server      not reached: {status.problem}", soft_wrap=True)
    else:
        console.print(f"server      http://{status.server}", soft_wrap=True)
    if status.stable is not None:
        console.print(f"stable      version {status.stable}")
    if status.warning is not None:
        console.print(f"[yellow]warning[/]     {status.warning}", soft_wrap=True)
    states = {entry.version: entry for entry in status.served or ()}
    table = Table(box=None, header_style="bold")
    for column in ("version", "in repository", "on server"):
        table.add_column(column)
    for version in sorted({*status.versions, *states}, reverse=True):
        entry = states.get(version)
        table.add_row(
            str(version),
            "yes" if version in status.versions else "no",
            "-" if entry is None else f"{entry.state} {entry.error}".strip(),
        )
    if table.row_count:
        console.print(table)
    else:
        console.print("no version yet; `taxiway run` publishes one")
