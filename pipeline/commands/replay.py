"""`taxiway replay`: train a published version again from its record, and compare."""

import argparse
import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from components.trainer.config import RECORD_FILE
from pipeline.config import load_settings
from pipeline.errors import ReplayError
from pipeline.extras import require_tfx
from pipeline.user_code import make_importable
from serving.model_repository import ModelRepository
from serving.server.quiet import quiet

if TYPE_CHECKING:
    from components.trainer.record import TrainingRecord
    from components.trainer.request import Digests

DIFFERENT = 3
REPLAY_FOLDER = "replay"
LOG_FILE = "training.log"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("version", type=int, help="a version in the repository")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Train again and say where the two trainings part.

    Returns:
        0 when the weights are equal bit by bit, 3 when they are not.

    Raises:
        ReplayError: The version has no record, or its data are gone.
    """
    require_tfx()
    settings = load_settings(args.config, args.overrides)
    version = ModelRepository(settings.push.base_path, settings.push.model).path(
        args.version
    )
    make_importable(settings.root)
    folder = settings.state_dir / REPLAY_FOLDER / str(args.version)
    quiet(folder / LOG_FILE)
    console = Console(highlight=False, stderr=args.json)
    was = _read(version)
    today = look(was)
    for line in today.differences:
        console.print(f"[yellow]differs:[/] {escape(line)}", soft_wrap=True)
    for line in doubts(was, today):
        console.print(escape(line), soft_wrap=True)
    console.print(
        f"training version {args.version} again, {was.num_steps:,} steps; "
        f"log: {folder / LOG_FILE}",
        soft_wrap=True,
    )
    now = train_again(was, today, own_folder(folder, was, today))
    return _report(args, console, today.differences, was, now)


def _read(version: Path) -> "TrainingRecord":
    from pydantic import ValidationError

    from components.trainer.record import TrainingRecord

    path = version / RECORD_FILE
    try:
        return TrainingRecord.model_validate_json(path.read_text())
    except FileNotFoundError:
        raise ReplayError(
            f"{version} holds no record of its training ({RECORD_FILE}): it was not "
            "made by this Trainer"
        ) from None
    except ValidationError as error:
        raise ReplayError(
            f"{path} is of another version of Taxiway: {error.errors()[0]['msg']}"
        ) from error


@dataclass(frozen=True)
class Today:
    """What a version would be trained of and on now."""

    digests: "Digests"
    differences: tuple[str, ...]
    """From the record, a line for each."""


def look(was: "TrainingRecord") -> Today:
    """Say in what today differs from the record.

    Raises:
        ReplayError: What was trained on is gone.
        ModelError: The devices that the settings demand are.
    """
    from components.errors import DataError
    from components.trainer import record
    from components.trainer.foresight import foresee

    request = was.request
    if not Path(request.transform_output).is_dir():
        raise ReplayError(f"the Transform graph is gone: {request.transform_output}")
    try:
        digests = record.digests(request)
    except DataError as error:
        raise ReplayError(f"what was trained on is gone: {error}") from error
    commit, dirty = record.git_state(request.project_root)
    now = {
        "data_digest": digests.data,
        "transform_digest": digests.transform,
        "git_commit": commit,
        "git_dirty": dirty,
        "libraries": record.libraries(),
        **foresee(request),
    }
    return Today(digests, tuple(record.differences(was, now)))


def doubts(was: "TrainingRecord", today: Today) -> list[str]:
    """Say why the two trainings may not be equal."""
    from components.trainer.record import change_of_micro_batch

    lines = []
    if not was.deterministic:
        lines.append("trainer.deterministic was off: small differences are expected")
    if today.differences:
        lines.append("equal bit by bit can only be expected where nothing differs")
    if changed := change_of_micro_batch(was):
        lines.append(changed)
    return lines


def own_folder(folder: Path, was: "TrainingRecord", today: Today) -> Path:
    """Return the folder of this replay, and remove those of others of the version.

    An interrupted replay is gone on with: only where the record is the same, and what
    differs from it.
    """
    asked = "\n".join([was.model_dump_json(), *today.differences])
    own = folder / hashlib.sha256(asked.encode()).hexdigest()[:16]
    for path in folder.glob("*/"):
        if path != own:
            shutil.rmtree(path, ignore_errors=True)
    return own


def train_again(was: "TrainingRecord", today: Today, folder: Path) -> "TrainingRecord":
    """Train in a folder of its own and return the new record.

    Raises:
        ModelError: Training failed.
        ResumeError: It was asked to stop; the next replay goes on.
        StorageError: The folder cannot be written.
    """
    from components.trainer.processes import launch
    from components.trainer.record import TrainingRecord
    from components.trainer.supervisor import supervise

    done = {name: folder / name for name in ("model", "log")}
    for path in done.values():
        shutil.rmtree(path, ignore_errors=True)
    request = was.request.model_copy(
        update={
            "work_dir": folder / "work",
            "export_dir": done["model"],
            "log_dir": done["log"],
            "progress_file": None,
            "digests": today.digests,
        }
    )
    supervise(request, launch)
    text = (done["model"] / RECORD_FILE).read_text()
    shutil.rmtree(request.work_dir, ignore_errors=True)
    return TrainingRecord.model_validate_json(text)


def _report(
    args: argparse.Namespace,
    console: Console,
    changed: Sequence[str],
    was: "TrainingRecord",
    now: "TrainingRecord",
) -> int:
    from components.trainer.record import decided, differences, first_difference

    # What only training has shown: XLA, and memory that was too little.
    new = [line for line in differences(was, decided(now)) if line not in changed]
    for line in new:
        console.print(f"[yellow]differed:[/] {escape(line)}", soft_wrap=True)
    parted = first_difference(was.weight_digests, now.weight_digests)
    if args.json:
        print(
            json.dumps(
                {
                    "version": args.version,
                    "equal": parted is None,
                    "equal_until_step": was.num_steps if parted is None else parted[0],
                    "different_at_step": None if parted is None else parted[1],
                    "differences": [*changed, *new],
                }
            )
        )
    elif parted is None:
        console.print(
            f"[green]equal bit by bit[/] at all {len(was.weight_digests)} digests, "
            f"the last after step {was.num_steps:,}"
        )
    else:
        console.print(
            f"[yellow]not equal:[/] the weights part between step {parted[0]:,} and "
            f"step {parted[1]:,}"
        )
    return 0 if parted is None else DIFFERENT
