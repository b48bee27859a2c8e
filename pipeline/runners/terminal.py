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
        self._step = ""

    def waiting(self, pid: str) -> None:
        """Say that another process holds the project's store."""
        self._console.print(
            f"another run of this project (process {pid}) is at work; waiting for it"
        )

    def started(self, record: RunRecord) -> None:
        """Say that a run begins."""
        self._console.print(f"[bold]{record.project}[/]  run {record.run_id}")

    def loading(self) -> None:
        """Show that TFX is being imported."""
        self._spin("loading TFX, once for this run …")

    def loaded(self, seconds: float) -> None:
        """Print how long that took."""
        self._end_spin()
        self._console.print(f"    {'TFX is loaded':<17}{seconds:>6.1f} s")

    def running(self, step: StepRecord) -> None:
        """Show that a step is at work."""
        self._step = step.id
        self._spin(f"{step.id} …  log: {step.log}")

    def progress(self, text: str) -> None:
        """Show how far the step is."""
        if self._status is not None:
            self._status.update(f"{escape(self._step)} …  {escape(text)}")

    def finished(self, step: StepRecord) -> None:
        """Print the step's line."""
        self._end_spin()
        time = "cached" if step.state == "cached" else f"{step.seconds:.1f} s"
        first, *more = (step_words(step) or "").split("\n")
        self._console.print(
            f"  {MARKS[step.state]} {step.id:<17}{time:>8}   {escape(first)}",
            soft_wrap=True,
            emoji=False,  # the data's words are shown as they are
        )
        for line in more:
            self._console.print(f"{'':32}{escape(line)}", soft_wrap=True, emoji=False)

    def _spin(self, text: str) -> None:
        if self._console.is_terminal:
            self._status = self._console.status(escape(text))
            self._status.start()

    def _end_spin(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None
