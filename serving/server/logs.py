"""The server's log: a line for each event, its name and key-values, as text or JSON."""

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

Format = Literal["text", "json"]
_VALUES = "values"


def event(
    log: logging.Logger, name: str, /, level: int = logging.INFO, **values: Any
) -> None:
    """Log what happened.

    Args:
        log: The module's logger.
        name: Of the event, `version_available`.
        level: As in logging.
        values: What is known of it.
    """
    log.log(level, name, extra={_VALUES: values})


def set_up(kind: Format) -> None:
    """Send events to standard error from now on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if kind == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)


class TextFormatter(logging.Formatter):
    """Writes `2026-12-01T09:34:17.939Z INFO version_available model=m version=3`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and a traceback after it where there is one."""
        parts = [_time(record), record.levelname, record.getMessage()]
        parts += [f"{key}={_quoted(value)}" for key, value in _values(record).items()]
        line = " ".join(parts)
        if record.exc_info:
            line += f"\n{self.formatException(record.exc_info)}"
        return line


class JsonFormatter(logging.Formatter):
    """Writes one JSON object a line: time, level, event, and the event's values."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        document = {
            "time": _time(record),
            "level": record.levelname,
            "event": record.getMessage(),
            **_values(record),
        }
        if record.exc_info:
            document["traceback"] = self.formatException(record.exc_info)
        return json.dumps(document, default=str)


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _values(record: logging.LogRecord) -> Mapping[str, Any]:
    values: Mapping[str, Any] = getattr(record, _VALUES, {})
    return values


def _quoted(value: Any) -> str:
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    is_plain = text and not set(text) & set(' "=\n')
    return text if is_plain else json.dumps(text, ensure_ascii=False)
