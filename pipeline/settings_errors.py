"""pydantic's errors in our words: file, key, what was got, what is allowed, line."""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import ErrorDetails

from pipeline.yaml_source import Document, Path

JsonSchema = Mapping[str, Any]


def explain(
    errors: Iterable[ErrorDetails], document: Document, schema: JsonSchema
) -> list[tuple[Path, str]]:
    """Return `(path, sentence)` for each key that is wrong, unions put together."""
    found: dict[Path, list[str]] = {}
    fixed: dict[Path, str] = {}
    for error in errors:
        place = _place(error, document.value, schema)
        allowed = _allowed(error)
        if allowed is None or place.is_key:
            path, sentence = _sentence(error, place)
            fixed.setdefault(path, sentence)
        else:
            found.setdefault(place.path, []).append(allowed)
    deepest = [*found, *fixed]
    for path, choices in found.items():
        # An entry that is wrong explains the list around it.
        if any(other[: len(path)] == path and other != path for other in deepest):
            continue
        got = _quote(value_at(document.value, path))
        options = " or ".join(dict.fromkeys(choices))
        fixed.setdefault(path, f"got {got}, allowed: {options}{_hint(got, choices)}")
    return list(fixed.items())


def value_at(value: Any, path: Path) -> Any:
    """Return what stands at a path; None when nothing does."""
    for key in path:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def suggestion(word: str, choices: Iterable[str]) -> str:
    """Return ` (did you mean "…"?)` for the closest choice, or nothing."""
    close = difflib.get_close_matches(word, list(choices), n=1, cutoff=0.6)
    return f' (did you mean "{close[0]}"?)' if close else ""


@dataclass(frozen=True)
class _Place:
    """Where an error is: a path of the document, and what the schema allows there."""

    path: Path
    schemas: tuple[JsonSchema, ...]
    is_key: bool = False
    """The key itself is wrong, not its value."""

    def known_keys(self) -> list[str]:
        """Return the keys of a mapping that may stand here."""
        keys: set[str] = set()
        for schema in self.schemas:
            keys |= set(schema.get("properties", {}))
            keys |= set(schema.get("propertyNames", {}).get("enum", ()))
        return sorted(keys)

    def tags(self) -> list[str]:
        """Return the values of the key that says which kind this is."""
        return [
            tag
            for schema in self.schemas
            for tag in schema.get("discriminator", {}).get("mapping", {})
        ]


def _place(error: ErrorDetails, value: Any, root: JsonSchema) -> _Place:
    """Follow the error's location, in which pydantic puts tags of unions, too.

    The schemas are those of the value; for a key that is unknown or missing, those of
    the mapping around it.
    """
    around = schemas = tuple(_expand(root, root))
    path: list[str | int] = []
    for key in error["loc"]:
        deeper = tuple(_step(root, schemas, key))
        if _is_tag(schemas, key):
            schemas = deeper
        elif _is_in(value, key) or key in _Place((), schemas).known_keys():
            value = value[key] if _is_in(value, key) else None
            around, schemas = schemas, deeper
            path.append(key)
    if error["type"].startswith("union_tag"):
        path.append(str(error["ctx"]["discriminator"]).strip("'"))
    is_key = error["loc"][-1:] == ("[key]",)
    of_mapping = is_key or error["type"] == "extra_forbidden"
    return _Place(tuple(path), around if of_mapping else schemas, is_key)


def _is_tag(schemas: Iterable[JsonSchema], key: str | int) -> bool:
    return any(
        key in part.get("discriminator", {}).get("mapping", {}) for part in schemas
    )


def _is_in(value: Any, key: str | int) -> bool:
    if isinstance(value, dict):
        return key in value
    return isinstance(value, list) and isinstance(key, int) and key < len(value)


def _allowed(error: ErrorDetails) -> str | None:
    """Return what would have been right, where that can be listed or described."""
    kind = error["type"]
    context = error.get("ctx", {})
    if kind == "literal_error":
        return ", ".join(_quoted_words(str(context["expected"])))
    if kind == "union_tag_invalid":
        return ", ".join(_quoted_words(str(context["expected_tags"])))
    describe = _DESCRIPTIONS.get(kind)
    return None if describe is None else describe(context)


def _sentence(error: ErrorDetails, place: _Place) -> tuple[Path, str]:
    path = place.path
    match error["type"]:
        case "missing":
            return path, "is required and missing"
        case "union_tag_not_found":
            return path, f"is required and missing, allowed: {', '.join(place.tags())}"
        case "extra_forbidden" | "literal_error":
            known = place.known_keys()
            hint = suggestion(str(path[-1]), known)
            return path, f"unknown key{hint}; known here: {', '.join(known)}"
        case "value_error":
            message = error["msg"].removeprefix("Value error, ")
            key, separator, rest = message.partition(": ")
            if separator and key in place.known_keys():
                return (*path, key), rest
            return path, message
        case _:
            return path, error["msg"]


def _quoted_words(text: str) -> list[str]:
    return re.findall(r"'([^']*)'", text)


def _quote(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "nothing"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _hint(got: str, choices: list[str]) -> str:
    words = [word for choice in choices for word in choice.split(", ")]
    return suggestion(got.strip('"'), words) if got.startswith('"') else ""


def _fixed(text: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda _: text


_DESCRIPTIONS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "int_type": _fixed("a whole number"),
    "int_parsing": _fixed("a whole number"),
    "int_from_float": _fixed("a whole number"),
    "float_type": _fixed("a number"),
    "float_parsing": _fixed("a number"),
    "finite_number": _fixed("a finite number"),
    "bool_type": _fixed("true, false"),
    "bool_parsing": _fixed("true, false"),
    "string_type": _fixed("text"),
    "path_type": _fixed("a path"),
    "none_required": _fixed("nothing"),
    "tuple_type": _fixed("a list"),
    "list_type": _fixed("a list"),
    "dict_type": _fixed("a mapping"),
    "model_type": _fixed("a mapping"),
    "model_attributes_type": _fixed("a mapping"),
    "greater_than": lambda c: f"a number above {c['gt']:g}",
    "greater_than_equal": lambda c: f"a number of at least {c['ge']:g}",
    "less_than": lambda c: f"a number below {c['lt']:g}",
    "less_than_equal": lambda c: f"a number of at most {c['le']:g}",
    "string_pattern_mismatch": lambda c: f"text that matches {c['pattern']}",
    "string_too_short": lambda c: f"text of at least {c['min_length']} characters",
    "string_too_long": lambda c: f"text of at most {c['max_length']} characters",
    "too_short": lambda c: f"at least {c['min_length']} entries",
    "too_long": lambda c: f"at most {c['max_length']} entries",
}


def _step(
    root: JsonSchema, schemas: Iterable[JsonSchema], key: str | int
) -> Iterator[JsonSchema]:
    for part in schemas:
        mapping = part.get("discriminator", {}).get("mapping", {})
        if key in mapping:
            yield from _expand(root, {"$ref": mapping[key]})
        elif key in part.get("properties", {}):
            yield from _expand(root, part["properties"][key])
        elif isinstance(part.get("additionalProperties"), dict):
            yield from _expand(root, part["additionalProperties"])
        elif "items" in part and isinstance(key, int):
            yield from _expand(root, part["items"])


def _expand(root: JsonSchema, part: JsonSchema) -> Iterator[JsonSchema]:
    """Yield a schema with its references followed and its options laid out."""
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        yield from _expand(root, root["$defs"][name])
        return
    yield part
    if "discriminator" not in part:
        for option in part.get("anyOf", ()):
            yield from _expand(root, option)
