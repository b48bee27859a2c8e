"""The JSON Schema that editors use agrees with what loading accepts and refuses.

Held with a reading of the few keywords that our schema uses, after
https://json-schema.org/draft/2020-12/json-schema-validation; a keyword that it does
not know is an error, so that none goes unheeded.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline import yaml_source
from pipeline.config import load_settings, settings_json_schema
from pipeline.errors import SettingsError

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = [EXAMPLES / name / "taxiway.yaml" for name in ("flights", "taxi")]
BASE = """\
project: delays
data: {files: flights.csv}
label: {column: late, kind: binary}
features:
  delay: {kind: numeric}
  origin: {kind: categorical}
"""
ROOT = settings_json_schema()
Schema = Mapping[str, Any]
NOTES = {
    "$defs",
    "$schema",
    "default",
    "description",
    "discriminator",
    "format",
    "title",
}
"""Keywords that accept every value."""
TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda v: isinstance(v, int | float) and not isinstance(v, bool),
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
}


def is_valid(value: Any, schema: Schema = ROOT) -> bool:
    return all(
        KEYWORDS[key](value, argument, schema)
        for key, argument in schema.items()
        if key not in NOTES
    )


def matching(value: Any, options: list[Schema]) -> int:
    return sum(is_valid(value, option) for option in options)


def of(kind: str, holds: Callable[[Any, Any], bool]) -> Callable[..., bool]:
    """Make a keyword that says nothing about values of another type."""
    return lambda value, argument, _: not TYPES[kind](value) or holds(value, argument)


def referred(value: Any, pointer: str, _: Schema) -> bool:
    assert pointer.startswith("#/$defs/")
    return is_valid(value, ROOT["$defs"][pointer.removeprefix("#/$defs/")])


def additional(value: Any, allowed: bool | Schema, around: Schema) -> bool:
    if not isinstance(value, dict):
        return True
    others = [v for k, v in value.items() if k not in around.get("properties", {})]
    if isinstance(allowed, bool):
        return allowed or not others
    return all(is_valid(other, allowed) for other in others)


KEYWORDS: Mapping[str, Callable[..., bool]] = {
    "$ref": referred,
    "additionalProperties": additional,
    "anyOf": lambda value, options, _: matching(value, options) > 0,
    "oneOf": lambda value, options, _: matching(value, options) == 1,
    "const": lambda value, only, _: value == only,
    "enum": lambda value, choices, _: value in choices,
    "type": lambda value, name, _: TYPES[name](value),
    "minimum": of("number", lambda value, bound: value >= bound),
    "maximum": of("number", lambda value, bound: value <= bound),
    "exclusiveMinimum": of("number", lambda value, bound: value > bound),
    "exclusiveMaximum": of("number", lambda value, bound: value < bound),
    "minLength": of("string", lambda text, least: len(text) >= least),
    "maxLength": of("string", lambda text, most: len(text) <= most),
    "pattern": of("string", lambda text, pattern: bool(re.search(pattern, text))),
    "items": of("array", lambda many, item: all(is_valid(one, item) for one in many)),
    "minItems": of("array", lambda many, least: len(many) >= least),
    "minProperties": of("object", lambda value, least: len(value) >= least),
    "propertyNames": of("object", lambda v, name: all(is_valid(k, name) for k in v)),
    "required": of("object", lambda value, keys: set(keys) <= value.keys()),
    "properties": of(
        "object",
        lambda value, known: all(
            is_valid(value[k], known[k]) for k in value if k in known
        ),
    ),
}


def load(folder: Path, text: str) -> None:
    (folder / "taxiway.yaml").write_text(text)
    load_settings(folder, environ={})


def parsed(text: str) -> Any:
    return yaml_source.parse(text, "x").value


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_the_examples_are_valid(file: Path) -> None:
    assert is_valid(parsed(file.read_text()))


ACCEPTED = {
    "least": BASE,
    "number for a missing value": BASE.replace("numeric", "numeric, missing: -1.5"),
    "slices": f"{BASE}evaluator: {{slices: [origin, [origin, delay]]}}\n",
    "list of files": BASE.replace("files: flights.csv", "files: [a.csv, b.csv]"),
    "text as positive": BASE.replace("binary", "binary, positive: yes"),
    "threshold": f"{BASE}evaluator: {{thresholds: {{auc: {{min: 0.5}}}}}}\n",
    "split": BASE.replace("flights.csv", "a.csv, split: {by: hash, eval_percent: 9}"),
    "nothing for something optional": f"{BASE}weight: null\n",
}


@pytest.mark.parametrize("text", ACCEPTED.values(), ids=ACCEPTED)
def test_what_loads_is_valid(text: str, tmp_path: Path) -> None:
    load(tmp_path, text)
    assert is_valid(parsed(text))


REFUSED = {
    "unknown section": f"{BASE}traner: {{}}\n",
    "unknown key": f"{BASE}trainer: {{epoch: 3}}\n",
    "key of another kind": BASE.replace("numeric", "numeric, period: 24"),
    "attribute's name": f"{BASE}schema_: {{}}\n",
    "below the least": f"{BASE}trainer: {{epochs: 0}}\n",
    "number as text": f'{BASE}trainer: {{epochs: "3"}}\n',
    "truth for a number": f"{BASE}trainer: {{epochs: true}}\n",
    "empty section": f"{BASE}trainer:\n",
    "unknown metric": f"{BASE}evaluator: {{metrics: [auk]}}\n",
    "unknown metric with a threshold": (
        f"{BASE}evaluator: {{thresholds: {{auk: {{min: 0.5}}}}}}\n"
    ),
    "unknown kind": BASE.replace("numeric", "numric"),
    "no kind": BASE.replace("kind: numeric", "scale: log"),
    "neither word nor number": BASE.replace("numeric", "numeric, missing: men"),
    "missing section": BASE.replace("project: delays\n", ""),
    "name of no form": BASE.replace("delays", "9 lives"),
    "whole split": BASE.replace(
        "flights.csv", "a.csv, split: {by: hash, eval_percent: 100}"
    ),
    "one to cross": f"{BASE}  both: {{kind: crossed, of: [origin]}}\n",
    "no features": f"{BASE.partition('features')[0]}features: {{}}\n",
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_what_is_invalid_does_not_load(text: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        load(tmp_path, text)
    assert not is_valid(parsed(text))
