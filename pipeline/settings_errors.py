"""pydantic's errors in our words: file, key, what was got, what is allowed, line."""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
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
        path, tagged = _clean(error, document.value)
        allowed = _allowed(error)
        if allowed is None:
            fixed.setdefault(path, _sentence(error, schema, tagged))
        else:
            found.setdefault(path, []).append(allowed)
    for path, choices in found.items():
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


def _clean(error: ErrorDetails, value: Any) -> tuple[Path, Path]:
    """Drop pydantic's union tags: keep only what is a key of the document."""
    location = error["loc"]
    path: list[str | int] = []
    for index, key in enumerate(location):
        last = index == len(location) - 1
        if isinstance(value, dict) and (
            key in value or (last and error["type"] == "missing")
        ):
            value = value.get(str(key))
        elif isinstance(value, list) and isinstance(key, int) and key < len(value):
            value = value[key]
        else:
            continue
        path.append(key)
    if error["type"].startswith("union_tag"):
        path.append(str(error["ctx"]["discriminator"]).strip("'"))
    return tuple(path), location


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


def _sentence(error: ErrorDetails, schema: JsonSchema, location: Path) -> str:
    match error["type"]:
        case "missing":
            return "is required and missing"
        case "union_tag_not_found":
            key = str(error["ctx"]["discriminator"]).strip("'")
            tags = _tags(schema, location)
            return f"{key} is required and missing, allowed: {', '.join(tags)}"
        case "extra_forbidden":
            known = sorted(_known_keys(schema, location[:-1]))
            word = str(location[-1])
            return (
                f"unknown key{suggestion(word, known)}; known here: {', '.join(known)}"
            )
        case "value_error":
            return error["msg"].removeprefix("Value error, ")
        case _:
            return error["msg"]


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


def _known_keys(schema: JsonSchema, location: Path) -> set[str]:
    return {
        key
        for part in _schemas_at(schema, location)
        for key in part.get("properties", {})
    }


def _tags(schema: JsonSchema, location: Path) -> list[str]:
    return [
        tag
        for part in _schemas_at(schema, location)
        for tag in part.get("discriminator", {}).get("mapping", {})
    ]


def _schemas_at(schema: JsonSchema, location: Path) -> list[JsonSchema]:
    """Return the schemas of a location, in which union tags may stand."""
    here = [schema]
    for key in location:
        here = [deeper for part in here for deeper in _step(schema, part, key)] or here
    return [resolved for part in here for resolved in _expand(schema, part)]


def _step(root: JsonSchema, part: JsonSchema, key: str | int) -> Iterator[JsonSchema]:
    for option in _expand(root, part):
        mapping = option.get("discriminator", {}).get("mapping", {})
        if key in mapping:
            yield {"$ref": mapping[key]}
        elif key in option.get("properties", {}):
            yield option["properties"][key]
        elif isinstance(option.get("additionalProperties"), dict):
            yield option["additionalProperties"]
        elif "items" in option and isinstance(key, int):
            yield option["items"]


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
