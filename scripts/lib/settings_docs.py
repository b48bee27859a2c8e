"""Writes docs/settings.md from the JSON Schema of taxiway.yaml.

Run it through `scripts/renew-docs`.
"""

import json
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = ROOT / "docs" / "settings.md"
RENEW = "scripts/renew-docs"
HEAD = f"""<!-- Written by {RENEW} from the settings' own definition; do not edit. -->

# Settings

Every key of `taxiway.yaml`. A key without a default must be given. Any key can be
overridden for one command: `taxiway --set trainer.epochs=5 run`.
"""
LIMITS = {
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
    "minLength": "length at least",
    "maxLength": "length at most",
    "minItems": "items at least",
    "pattern": "matching",
}

Schema = Mapping[str, Any]


@dataclass
class Section:
    """One table of the page: the keys of one object of the settings file."""

    path: str
    """Where the object is, `data.split`; empty for the file itself."""
    variant: str
    """The key and value that choose it among others, `by: hash`; or empty."""
    schema: Schema

    @property
    def title(self) -> str:
        """Heading of the section."""
        name = f"`{self.path}`" if self.path else "The file"
        return f"{name} with `{self.variant}`" if self.variant else name


@dataclass
class Page:
    """The page as it is written: sections found so far wait their turn."""

    root: Schema
    found: list[Section] = field(default_factory=list)
    waiting: deque[Section] = field(default_factory=deque)
    seen: set[tuple[str, str]] = field(default_factory=set)

    def text(self) -> str:
        """Return the whole page."""
        self._add("", "", self.root)
        parts = [HEAD]
        while self.found:
            # What a section mentions comes right after it.
            self.waiting.extendleft(reversed(self.found))
            self.found.clear()
            while self.waiting and not self.found:
                parts.append("\n".join(self._section(self.waiting.popleft())))
        return "\n".join(parts)

    def _add(self, path: str, variant: str, schema: Schema) -> None:
        if (path, variant) not in self.seen:
            self.seen.add((path, variant))
            self.found.append(Section(path, variant, schema))

    def _section(self, section: Section) -> Iterator[str]:
        yield f"## {section.title}\n"
        if section.schema.get("description"):
            yield _cell(section.schema["description"]) + "\n"
        properties: Mapping[str, Schema] = section.schema.get("properties", {})
        chosen_by = section.variant.partition(":")[0]
        keys = [key for key in properties if key != chosen_by]
        if not keys:
            yield "Nothing more to say.\n"
            return
        yield "| Key | Value | Default | Meaning |\n|---|---|---|---|"
        for key in keys:
            value = properties[key]
            path = f"{section.path}.{key}" if section.path else key
            words = self._words(value, path)
            default = self._default(section.schema, key)
            meaning = _cell(self._describe(value))
            yield f"| `{key}` | {words} | {default} | {meaning} |"
        yield ""

    def _words(self, value: Schema, path: str) -> str:
        """Say what a value may be, and queue the sections of objects inside it."""
        value = self._resolved(value)
        if "discriminator" in value:
            return self._variants(value, path)
        if "anyOf" in value:
            options = [one for one in value["anyOf"] if one.get("type") != "null"]
            return " or ".join(self._words(one, path) for one in options)
        if "const" in value or "enum" in value:
            return ", ".join(
                f"`{one}`" for one in value.get("enum", [value.get("const")])
            )
        return self._plain_words(value, path)

    def _plain_words(self, value: Schema, path: str) -> str:
        match value.get("type"):
            case "array":
                return "list of " + self._words(value.get("items", {}), path)
            case "object" if "properties" in value:
                self._add(path, "", value)
                return "see below"
            case "object":
                inner = value.get("additionalProperties", {})
                return "by name: " + self._words(inner, f"{path}.<name>")
            case kind:
                return _with_limits(_KINDS.get(str(kind), "anything"), value)

    def _variants(self, value: Schema, path: str) -> str:
        key = value["discriminator"]["propertyName"]
        mapping: Mapping[str, str] = value["discriminator"]["mapping"]
        for name, reference in mapping.items():
            self._add(path, f"{key}: {name}", self._resolved({"$ref": reference}))
        return f"by `{key}`: " + ", ".join(f"`{name}`" for name in mapping)

    def _resolved(self, value: Schema) -> Schema:
        while "$ref" in value or len(value.get("allOf", ())) == 1:
            reference = value.get("$ref") or value["allOf"][0]["$ref"]
            value = self.root["$defs"][reference.removeprefix("#/$defs/")]
        return value

    def _describe(self, value: Schema) -> str:
        return str(value.get("description") or self._resolved(value).get("description"))

    def _default(self, schema: Schema, key: str) -> str:
        value = schema["properties"][key]
        if key in schema.get("required", ()):
            return "required"
        default = value.get("default")
        if default is None or isinstance(default, Mapping):
            return ""
        return f"`{json.dumps(default)}`"


_KINDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "`true`, `false`",
}


def _with_limits(words: str, value: Schema) -> str:
    limits = [
        f"{limit} `{value[key]}`" for key, limit in LIMITS.items() if key in value
    ]
    return " ".join([words, ", ".join(limits)]) if limits else words


def _cell(text: str) -> str:
    return "" if text == "None" else " ".join(text.split()).replace("|", "\\|")


def settings_page(schema: Schema) -> str:
    """Return the page for a JSON Schema."""
    return Page(schema).text().rstrip() + "\n"


def main() -> int:
    """Write the page."""
    # Imported here: the page can be made of any schema without the product.
    from pipeline.config import settings_json_schema

    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(settings_page(settings_json_schema()))
    print(f"written: {OUTPUT.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
