"""A line for each event: its name and what is known of it."""

import json
import logging
import sys
from typing import Any

import pytest

from serving.server.logs import JsonFormatter, TextFormatter, event, set_up


def record(**values: Any) -> logging.LogRecord:
    made = logging.LogRecord("m", logging.WARNING, "f", 1, "version_failed", (), None)
    made.created = 1_800_000_000.5
    made.values = values
    return made


def test_text_is_time_level_event_and_pairs() -> None:
    line = TextFormatter().format(record(model="m", version=3, seconds=0.12345))
    assert line == (
        "2027-01-15T08:00:00.500Z WARNING version_failed model=m version=3 "
        "seconds=0.123"
    )


def test_values_with_spaces_quotes_and_line_ends_stay_on_one_line() -> None:
    line = TextFormatter().format(record(error='no "x"\nhere', nothing=""))
    assert line.endswith(r'error="no \"x\"\nhere" nothing=""')


def test_json_is_one_object() -> None:
    document = json.loads(JsonFormatter().format(record(model="m", path=object)))
    assert document["event"] == "version_failed"
    assert (document["level"], document["model"]) == ("WARNING", "m")
    assert document["path"] == "<class 'object'>"


def test_traceback_goes_with_its_event() -> None:
    made = record()
    try:
        raise ValueError("a fault of ours")
    except ValueError:
        made.exc_info = sys.exc_info()
    assert "a fault of ours" in TextFormatter().format(made)
    assert "a fault of ours" in json.loads(JsonFormatter().format(made))["traceback"]


def test_events_go_to_standard_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    set_up("text")
    event(logging.getLogger("serving"), "version_available", model="m")
    assert capsys.readouterr().err.endswith("INFO version_available model=m\n")
