"""`taxiway predict`: ask the served model about rows of a file."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline.config import ProjectSettings, load_settings
from serving.client import Which, connect
from serving.client.names import tensor_name
from serving.client.protocol import Array, InputSpec
from serving.model_repository import parse_version
from serving.rows import Row, RowsError, parse_rows, to_columns

TIMEOUT_S = 60.0
MAX_TIMEOUT_S = 86400.0
MAX_SHOWN_COLUMNS = 5
EXAMPLES_INPUT = "examples"


@dataclass(frozen=True)
class _Dialect:
    """How a file is read where no settings say it."""

    encoding: str = "utf-8"
    delimiter: str = ","
    null_values: tuple[str, ...] = ("",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("rows", help="CSV or JSON file with raw columns; - is stdin")
    parser.add_argument("--api", choices=("rest", "grpc"), default="rest")
    parser.add_argument("--address", help="host:port of the server")
    parser.add_argument("--model", help="name of the model")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--version", type=_version, help="ask this version")
    which.add_argument("--label", default="", help="ask the version with this label")
    parser.add_argument("--signature", default="serving_columns")
    parser.add_argument(
        "--limit", type=_positive_int, help="ask about the first rows only"
    )
    parser.add_argument(
        "--timeout", type=_positive, default=TIMEOUT_S, help="in seconds"
    )
    parser.add_argument("--json", action="store_true", help="print one object a row")


def _positive_int(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"got {text}, allowed: 1 or more")
    return number


def _version(text: str) -> int:
    version = parse_version(text)
    if version is None:
        raise argparse.ArgumentTypeError(
            f"got {text}, allowed: the number of a version"
        )
    return version


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < MAX_TIMEOUT_S:
        raise argparse.ArgumentTypeError(
            f"got {text}, allowed: above 0 and below {MAX_TIMEOUT_S:g}"
        )
    return number


def run(args: argparse.Namespace) -> int:
    """Print the model's outputs for each row."""
    settings = _settings(args)
    data = settings.data if settings else _Dialect()
    text = _read(args.rows, data.encoding)
    rows = parse_rows(text, args.rows, data.delimiter)[: args.limit]
    which = Which(args.version, args.label)
    client = connect(args.api, _address(args, settings), _model(args, settings), which)
    try:
        specs = client.inputs(args.signature, args.timeout)
        _refuse_examples(specs, args.signature)
        used, unused = _sort_columns(rows[0], specs)
        if unused:
            print(f"columns not used: {', '.join(unused)}", file=sys.stderr)
        named = [{tensor_name(key): cell for key, cell in row.items()} for row in rows]
        columns = to_columns(named, specs, data.null_values)
        outputs = client.predict(columns, args.signature, args.timeout)
    finally:
        client.close()
    answers = by_row(outputs, len(rows))
    if args.json:
        for row, answer in zip(rows, answers, strict=True):
            print(json.dumps({**row, **answer}, ensure_ascii=False))
    else:
        Console().print(_table(rows, answers, used[:MAX_SHOWN_COLUMNS]))
    return 0


def _refuse_examples(specs: Sequence[InputSpec], signature: str) -> None:
    if [spec.name for spec in specs] == [EXAMPLES_INPUT]:
        raise RowsError(
            f"signature {signature!r} takes serialized tf.Examples, not columns; "
            "leave --signature out, or name one that takes columns"
        )


def _sort_columns(row: Row, specs: Sequence[InputSpec]) -> tuple[list[str], list[str]]:
    """Return the file's columns that the model reads, and the others, in order."""
    inputs = {spec.name for spec in specs}
    used = [column for column in row if tensor_name(column) in inputs]
    return used, [column for column in row if column not in used]


def by_row(outputs: Mapping[str, Array], num_rows: int) -> list[dict[str, Any]]:
    """Return a dict of outputs for each row; `[batch, 1]` outputs as single values."""
    return [
        {name: _plain(array[index]) for name, array in outputs.items()}
        for index in range(num_rows)
    ]


def _plain(value: Array) -> Any:
    values = np.ravel(value).tolist()
    texts = [v.decode(errors="replace") if isinstance(v, bytes) else v for v in values]
    return texts[0] if len(texts) == 1 else texts


def _settings(args: argparse.Namespace) -> ProjectSettings | None:
    """Read the settings, unless the command line says all that they would."""
    if args.config is None and args.address and args.model:
        return None
    return load_settings(args.config, args.overrides)


def _address(args: argparse.Namespace, settings: ProjectSettings | None) -> str:
    if args.address or settings is None:
        address: str = args.address
        return address
    serving = settings.serving
    port = serving.rest_port if args.api == "rest" else serving.grpc_port
    return f"{serving.host}:{port}"


def _model(args: argparse.Namespace, settings: ProjectSettings | None) -> str:
    model: str = args.model or (settings.push.model if settings else "")
    return model


def _read(name: str, encoding: str) -> str:
    if name == "-":
        return sys.stdin.read()
    try:
        return Path(name).read_text(encoding=encoding)
    except (OSError, UnicodeDecodeError, LookupError) as error:
        reason = getattr(error, "strerror", None) or f"not {encoding} text: {error}"
        raise RowsError(f"{name}: cannot be read: {reason}") from error


def _table(
    rows: Sequence[Row], answers: list[dict[str, Any]], shown: list[str]
) -> Table:
    table = Table(box=None, header_style="bold")
    for name in shown:
        table.add_column(_cell(name), overflow="ellipsis", max_width=16, no_wrap=True)
    for name in answers[0]:
        table.add_column(_cell(name), style="green")
    for row, answer in zip(rows, answers, strict=True):
        inputs = [_cell(row.get(name, "")) for name in shown]
        table.add_row(*inputs, *(_cell(_number(value)) for value in answer.values()))
    return table


def _cell(value: object) -> Text:
    """Return a cell as it is: no markup, and on one line."""
    return Text(" ".join(str(value).split()))


def _number(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_number, value))
    return f"{value:.4f}" if isinstance(value, float) else str(value)
