"""YAML as values, with where each value came from; by the rules of YAML 1.2.

PyYAML reads YAML 1.1, in which `no` is false, `12:30` is 750 and `1e-3` is text.
Column names and values of real data trip over each of these.
"""

import math
import re
import reprlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from pipeline.errors import SettingsError

Path = tuple[str | int, ...]
MAX_NODES = 100_000
"""Aliases of aliases grow without bound; no settings are this large."""
INT64 = range(-(2**63), 2**63)


class _Loader(yaml.SafeLoader):
    """A loader with the resolvers of YAML 1.2's core schema only."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}


def _resolve(tag: str, pattern: str, first: Iterable[str]) -> None:
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), list(first)
    )


_resolve("bool", "true|True|TRUE|false|False|FALSE", "tTfF")
_resolve("null", "~|null|Null|NULL|", ["~", "n", "N", ""])
_resolve("int", "[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789")
_resolve(
    "float",
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
    "-+0123456789.",
)


class _Dumper(yaml.SafeDumper):
    """A dumper that puts text in quotes where either YAML would not read text."""


for _letter, _resolvers in _Loader.yaml_implicit_resolvers.items():
    for _tag, _pattern in _resolvers:
        _Dumper.add_implicit_resolver(_tag, _pattern, [_letter])


def dump(value: Any) -> str:
    """Write plain values as YAML."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return text


@dataclass
class Document:
    """Values, and for each path where it was set."""

    value: Any
    origins: dict[Path, str] = field(default_factory=dict)
    """`at line 14`, `from --set`, `from TAXIWAY__TRAINER__EPOCHS`."""

    def origin(self, path: Path) -> str:
        """Return where the path, or the nearest thing around it, was set."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.origins:
                return self.origins[path[:length]]
        return ""


def parse(text: str, name: str) -> Document:
    """Parse one YAML document.

    Raises:
        SettingsError: The text is not YAML, repeats a key, or has a key that is not
            text; the message names file and line.
    """
    try:
        return _parse(text, name)
    except RecursionError as error:
        raise SettingsError(f"{name}: values are nested too deeply") from error


def parse_value(text: str, name: str) -> Any:
    """Parse the value of an override."""
    return parse(text, name).value


def _parse(text: str, name: str) -> Document:
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise SettingsError(f"{name}{where}: {error.problem}") from error
    except yaml.YAMLError as error:
        problem = str(error).splitlines()[0]
        raise SettingsError(f"{name}: not YAML: {problem}") from error
    document = Document(None)
    if node is not None:
        document.value = _Builder(name, document.origins).build(node, ())
    return document


class _Builder:
    """Builds plain values from nodes and notes their lines."""

    def __init__(self, name: str, origins: dict[Path, str]) -> None:
        self._name = name
        self._origins = origins
        self._open: set[int] = set()
        self._num_nodes = 0

    def build(self, node: yaml.Node, path: Path) -> Any:
        """Return the node's value."""
        self._origins.setdefault(path, f"at line {node.start_mark.line + 1}")
        if id(node) in self._open:
            raise self._refuse(node, "an alias inside the value that it names")
        self._num_nodes += 1
        if self._num_nodes > MAX_NODES:
            raise self._refuse(node, f"more than {MAX_NODES:,} values")
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return dict(self._entries(node, path))
            if isinstance(node, yaml.SequenceNode):
                return [self.build(n, (*path, i)) for i, n in enumerate(node.value)]
            return self._scalar(node)
        finally:
            self._open.discard(id(node))

    def _entries(self, node: yaml.MappingNode, path: Path) -> Iterator[tuple[str, Any]]:
        seen: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise self._refuse(key_node, "a key must be text")
            key = str(key_node.value)
            if key_node.tag.endswith(":str"):
                self._scalar(key_node)
            if key in seen:
                raise self._refuse(
                    key_node, f"{key!r} is given twice, first at line {seen[key]}"
                )
            seen[key] = line
            self._origins[(*path, key)] = f"at line {line}"
            yield key, self.build(value_node, (*path, key))

    def _scalar(self, node: yaml.Node) -> Any:
        try:
            return _construct(node)
        except (ValueError, yaml.YAMLError) as error:
            got = reprlib.repr(node.value)
            raise self._refuse(node, f"cannot read {got}: {error}") from error

    def _refuse(self, node: yaml.Node, problem: str) -> SettingsError:
        return SettingsError(f"{self._name}:{node.start_mark.line + 1}: {problem}")


def _construct(node: yaml.Node) -> Any:
    text: str = node.value
    match node.tag.rpartition(":")[2]:
        case "str":
            return _text(text)
        case "bool":
            return text.lower() == "true"
        case "null":
            return None
        case "int":
            return _whole_number(text)
        case "float":
            return _number(text)
        case _:
            raise ValueError(f"the tag {node.tag} is not allowed")


def _text(text: str) -> str:
    if not text.isascii():
        text.encode()  # half a surrogate pair, "\\ud800", is no text
    return text


def _whole_number(text: str) -> int:
    digits = text.lstrip("+-0")
    number = int(text, 0) if text[:2] in {"0o", "0x"} else int(digits[:20] or "0")
    if text.startswith("-"):
        number = -number
    if number not in INT64:
        raise ValueError("a whole number must fit 64 bits")
    return number


def _number(text: str) -> float:
    number = float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    if not math.isfinite(number):
        raise ValueError("a number must be finite")
    return number
