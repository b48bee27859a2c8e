"""What has run before, and whether a step has to run again: no TFX, no guesses.

A step is cached when an earlier execution had the same key, and what it wrote is
still there. The key holds digests of all that the step depends on; TFX's own cache
would not notice an edit in the user's model function.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline import digests, steps
from pipeline.errors import CacheError
from pipeline.steps import Step

Summary = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """One execution that succeeded."""

    step: str
    key: str
    execution_id: int
    """Id of the execution in ML Metadata."""
    run_id: str
    """Run in which it was executed."""
    outputs: tuple[str, ...]
    """Paths that it wrote and that must still be there."""
    summary: Summary = field(default_factory=dict)
    """What it reported: counts, metrics, version."""

    def is_whole(self) -> bool:
        """Tell whether all that it wrote is still there."""
        return all(Path(path).exists() for path in self.outputs)


def step_keys(
    all_steps: Iterable[Step], ingredients: Callable[[Step], Mapping[str, object]]
) -> dict[str, str]:
    """Return each step's key: its own ingredients and the keys of its inputs."""
    keys: dict[str, str] = {}
    for step in all_steps:
        upstream = {name: keys[name] for name in step.inputs}
        keys[step.id] = digests.of_value(
            {"step": step.id, "inputs": upstream, "own": ingredients(step)}
        )
    return keys


def is_current(entry: Entry, baseline: int | None) -> bool:
    """Tell whether an earlier execution still stands.

    The Evaluator's verdict also depends on the blessed baseline of the day. It
    stands if the baseline is the one it was compared against, or the judged model
    itself: comparing a model with itself would tell nothing new.
    """
    if not entry.is_whole():
        return False
    if entry.step != steps.EVALUATOR.id:
        return True
    return baseline in (entry.summary.get("baseline"), entry.summary.get("model"))


class Cache:
    """The record of executions, in SQLite beside ML Metadata."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._connection() as db:
            db.execute(
                "CREATE TABLE IF NOT EXISTS executions (id INTEGER PRIMARY KEY, "
                "step TEXT NOT NULL, key TEXT NOT NULL, execution_id INTEGER NOT NULL, "
                "run_id TEXT NOT NULL, outputs TEXT NOT NULL, summary TEXT NOT NULL)"
            )
            db.execute("CREATE INDEX IF NOT EXISTS by_key ON executions (step, key)")

    def record(self, entry: Entry) -> None:
        """Remember an execution that succeeded."""
        with self._connection() as db:
            db.execute(
                "INSERT INTO executions "
                "(step, key, execution_id, run_id, outputs, summary) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (
                    entry.step,
                    entry.key,
                    entry.execution_id,
                    entry.run_id,
                    json.dumps(entry.outputs),
                    json.dumps(entry.summary),
                ),
            )

    def find(self, step: str, key: str) -> Entry | None:
        """Return the latest execution with this key that still stands."""
        baseline = self.baseline_model()
        for entry in self._select("step = ? AND key = ?", (step, key)):
            if is_current(entry, baseline):
                return entry
        return None

    def baseline_model(self) -> int | None:
        """Return the id of the newest model that was blessed.

        The rule of TFX's LatestBlessedModelStrategy: newest by when the model was
        made, not by when it was blessed.
        """
        verdicts = self._select("step = ?", (steps.EVALUATOR.id,))
        blessed = [e.summary["model"] for e in verdicts if e.summary["blessed"]]
        return max(blessed, default=None)

    def version_of(self, model: int | None) -> int | None:
        """Return the version under which a model was last published, if it was."""
        for entry in self._select("step = ?", (steps.PUSHER.id,)):
            if model is not None and entry.summary.get("model") == model:
                version: int | None = entry.summary["version"]
                return version
        return None

    def _select(self, where: str, values: tuple[str, ...]) -> Iterator[Entry]:
        with self._connection() as db:
            rows = db.execute(
                "SELECT step, key, execution_id, run_id, outputs, summary "  # noqa: S608
                f"FROM executions WHERE {where} ORDER BY id DESC",
                values,
            ).fetchall()
        for step, key, execution_id, run_id, outputs, summary in rows:
            yield Entry(
                step,
                key,
                execution_id,
                run_id,
                tuple(json.loads(outputs)),
                json.loads(summary),
            )

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self._path)) as db, db:
                yield db
        except sqlite3.DatabaseError as error:
            raise CacheError(
                f"{self._path}: {error}; delete the file: every step then runs again, "
                "and nothing that was published is lost"
            ) from error
