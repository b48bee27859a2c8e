"""What a run shows: one line for each step, and nothing that moves in a log."""

import io

import pytest
from rich.console import Console

from pipeline.runners.record import RunRecord, State, StepRecord
from pipeline.runners.terminal import Terminal

ODD = "[/x] [bold]loud[/] :smile: [1, 2]"
"""Text that a console would read as its own markup."""


class Screen:
    """A terminal that writes into memory."""

    def __init__(self, *, width: int = 100, moving: bool = False) -> None:
        self.file = io.StringIO()
        console = Console(
            file=self.file, width=width, force_terminal=moving, color_system=None
        )
        self.terminal = Terminal(console)

    @property
    def text(self) -> str:
        return self.file.getvalue()


@pytest.fixture
def screen() -> Screen:
    return Screen()


def pushed(state: State, seconds: float = 83.26) -> StepRecord:
    return StepRecord("Pusher", state, seconds, summary={"version": 7})


@pytest.mark.parametrize(
    ("step", "line"),
    [
        (pushed("done"), "  ✓ Pusher             83.3 s   version 7\n"),
        (pushed("cached"), "  = Pusher             cached   version 7\n"),
        (
            StepRecord("Trainer", "failed", 4.0, "Trainer.log", "no GPU"),
            "  ✗ Trainer             4.0 s   \n",
        ),
        (
            StepRecord("ExampleValidator", "cached", summary={"warnings": []}),
            "  = ExampleValidator   cached   no anomalies\n",
        ),
    ],
    ids=["done", "cached", "failed", "longest name"],
)
def test_a_finished_step_is_a_line(step: StepRecord, line: str, screen: Screen) -> None:
    screen.terminal.finished(step)
    assert screen.text == line


def test_each_warning_is_a_line_under_the_first(screen: Screen) -> None:
    warnings = {"warnings": ["a: new value", "b: gone"]}
    screen.terminal.finished(
        StepRecord("ExampleValidator", "done", 1.0, None, None, warnings)
    )
    first, second = screen.text.splitlines()
    assert first == "  ✓ ExampleValidator    1.0 s   warning: a: new value"
    assert second.index("warning") == first.index("warning")
    assert second.strip() == "warning: b: gone"


def test_a_long_line_is_left_to_the_terminal_to_break() -> None:
    """So that a log has one line for a step, and grep finds it whole."""
    screen = Screen(width=40)
    warnings = {"warnings": ["word " * 40]}
    screen.terminal.finished(
        StepRecord("ExampleValidator", "done", 1.0, None, None, warnings)
    )
    assert len(screen.text.splitlines()) == 1


def test_words_of_the_data_are_shown_as_they_are(screen: Screen) -> None:
    step = StepRecord("ExampleValidator", "done", summary={"warnings": [ODD, ODD]})
    screen.terminal.finished(step)
    assert [line[-len(ODD) :] for line in screen.text.splitlines()] == [ODD, ODD]


def test_a_run_begins_with_project_and_number(screen: Screen) -> None:
    screen.terminal.started(RunRecord("2026-01-31T12-00-00", "delays", "", []))
    assert screen.text == "delays  run 2026-01-31T12-00-00\n"


def test_a_run_that_waits_names_the_process_at_work(screen: Screen) -> None:
    screen.terminal.waiting("4711")
    assert screen.text == (
        "another run of this project (process 4711) is at work; waiting for it\n"
    )


def test_loading_is_told_once_it_is_over(screen: Screen) -> None:
    screen.terminal.loading()
    assert screen.text == ""
    screen.terminal.loaded(12.34)
    assert screen.text == "    TFX is loaded      12.3 s\n"


def test_nothing_is_printed_while_a_step_runs_without_a_terminal(
    screen: Screen,
) -> None:
    screen.terminal.running(StepRecord("Trainer", log="Trainer.log"))
    assert screen.text == ""


def test_a_terminal_shows_the_step_at_work_and_its_log() -> None:
    screen = Screen(moving=True)
    screen.terminal.running(StepRecord("Trainer", log="[/x].log"))
    screen.terminal.finished(pushed("done"))
    assert "Trainer …  log: [/x].log" in screen.text
    assert screen.text.endswith("  ✓ Pusher             83.3 s   version 7\n")


def test_a_step_that_was_never_shown_at_work_may_finish() -> None:
    """A cached step does not run."""
    screen = Screen(moving=True)
    screen.terminal.finished(pushed("cached"))
    assert "= Pusher" in screen.text
