"""Settings from the command line and the environment, laid over the file's."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.errors import SettingsError
from pipeline.yaml_source import Document, parse_value

PREFIX = "TAXIWAY__"


def apply_overrides(document: Document, overrides: Sequence[str]) -> None:
    """Set `key=value` pairs; the value is YAML: `trainer.hidden_units=[64, 32]`.

    Raises:
        SettingsError: A pair has no `=`, or its key goes through a plain value.
    """
    for override in overrides:
        key, separator, text = override.partition("=")
        if not separator or not all(key.split(".")):
            raise SettingsError(
                f"--set {override}: allowed: KEY=VALUE, for example trainer.epochs=3"
            )
        origin = f"from --set {key}"
        _set(document, key.split("."), parse_value(text, f"--set {key}"), origin)


def apply_environment(
    document: Document, environ: Mapping[str, str], schema: Mapping[str, Any]
) -> None:
    """Set what `TAXIWAY__SECTION__KEY` variables say; case does not matter.

    Raises:
        SettingsError: A variable's name has an empty part, or its value is not YAML.
    """
    sections = schema.get("properties", {})
    for name in sorted(environ):
        if not name.upper().startswith(PREFIX):
            continue
        words = name[len(PREFIX) :].split("__")
        if not all(words):
            raise SettingsError(
                f"{name}: no setting has this name, allowed: TAXIWAY__SECTION__KEY, "
                "for example TAXIWAY__TRAINER__EPOCHS"
            )
        keys = _as_written(document.value, words, sections)
        _set(document, keys, parse_value(environ[name], name), f"from {name}")


def _as_written(
    value: Any, words: Sequence[str], known: Mapping[str, Any]
) -> list[str]:
    """Spell the words as the file does, or else in lower case."""
    keys: list[str] = []
    for word in words:
        present = value if isinstance(value, dict) else {}
        candidates = [*present, *known]
        matching = [key for key in candidates if key.lower() == word.lower()]
        key = matching[0] if matching else word.lower()
        keys.append(key)
        value, known = present.get(key), {}
    return keys


def _set(document: Document, keys: Sequence[str], value: Any, origin: str) -> None:
    target = document.value
    for depth, key in enumerate(keys[:-1]):
        inner = target.get(key)
        if inner is None:
            inner = target[key] = {}
            document.origins[tuple(keys[: depth + 1])] = origin
        if not isinstance(inner, dict):
            where = ".".join(keys[: depth + 1])
            what = "a list, set it whole" if isinstance(inner, list) else "a value"
            raise SettingsError(f"{where} is {what}; it has no keys ({origin})")
        target = inner
    target[keys[-1]] = value
    path = tuple(keys)
    for other in [p for p in document.origins if p[: len(path)] == path]:
        del document.origins[other]
    document.origins[path] = origin
