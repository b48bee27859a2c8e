"""The progress of a run on the terminal: one line for each step."""

from rich.console import Console
from rich.markup import escape
from rich.status import Status

from pipeline.runners.record import RunRecord, StepRecord
from pipeline.runners.words import step_words

MARKS = {
    "done": "[green]✓[/]",
    "cached": "[blue]=[/]",
    "failed": "[red]✗[/]",
    "not run": " ",
}


class Terminal:
    """Shows a run on a console; without a terminal, lines only and no spinner."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = None

    def waiting(self, pid: str) -> None:
        """Say that another process holds the project's store."""
        self._console.print(
            f"another run of this project (process {pid}) is at work; waiting for it"
        )

    def started(self, record: RunRecord) -> None:
        """Say that a run begins."""
        self._console.print(f"[bold]{record.project}[/]  run {record.run_id}")

    def loading(self) -> None:
        """Say that TFX is being imported."""
        self._console.print("  loading TFX, once for this run (10 to 30 s)")

    def running(self, step: StepRecord) -> None:
        """Show that a step is at work."""
        if self._console.is_terminal:
            self._status = self._console.status(f"{step.id} …  log: {step.log}")
            self._status.start()

    def finished(self, step: StepRecord) -> None:
        """Print the step's line."""
        if self._status is not None:
            self._status.stop()
            self._status = None
        time = "cached" if step.state == "cached" else f"{step.seconds:.1f} s"
        first, *more = (step_words(step) or "").split("\n")
        self._console.print(
            f"  {MARKS[step.state]} {step.id:<17}{time:>8}   {escape(first)}",
            soft_wrap=True,
        )
        for line in more:
            self._console.print(f"{'':31}{escape(line)}", soft_wrap=True)
