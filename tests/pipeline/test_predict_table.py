"""What `taxiway predict` shows of rows and answers."""

import argparse
import io

import pytest
from rich.console import Console

from pipeline.commands.predict import _sort_columns, _table, add_arguments
from serving.client import InputSpec

SPECS = [InputSpec("ticket_class", "DT_STRING", (-1, 1))]


def shown(row: dict[str, object]) -> str:
    console = Console(file=io.StringIO(), width=80)
    console.print(_table([row], [{"probability": 0.25}], list(row)))
    output = console.file
    assert isinstance(output, io.StringIO)
    return output.getvalue()


def test_cells_are_shown_as_they_are() -> None:
    assert "[bold]Be[/x]" in shown({"[red]city": "[bold]Be[/x]"})
    assert "[red]city" in shown({"[red]city": "a"})


def test_a_cell_with_a_newline_stays_on_its_line() -> None:
    assert "two lines" in shown({"note": "two\nlines"})


def test_columns_keep_the_names_and_the_order_of_the_file() -> None:
    row = {"z": 1, "ticket class": "first", "a": 2}
    assert _sort_columns(row, SPECS) == (["ticket class"], ["z", "a"])


@pytest.mark.parametrize(
    "option", ["--limit=0", "--limit=-1", "--limit=x", "--timeout=-1", "--timeout=inf"]
)
def test_options_out_of_range_are_refused(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    with pytest.raises(SystemExit) as caught:
        parser.parse_args(["rows.csv", option])
    assert caught.value.code == 2
    assert option.partition("=")[0] in capsys.readouterr().err
