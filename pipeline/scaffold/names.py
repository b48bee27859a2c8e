"""What a column's name says: its words, and a name that tensors can have."""

import keyword
import re
import unicodedata
from collections.abc import Container


def words(name: str) -> tuple[str, ...]:
    """Return the words of a name, lower case: `tripStart_hour` → trip, start, hour."""
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", _plain(name))
    return tuple(re.findall(r"[a-z]+|[0-9]+", spaced.lower()))


def safe_name(name: str, taken: Container[str]) -> str:
    """Return a Python name like this one that is not taken."""
    plain = re.sub(r"[^A-Za-z0-9_]+", "_", _plain(name)).strip("_") or "column"
    if plain[0].isdigit() or keyword.iskeyword(plain):
        plain = f"column_{plain}"
    made, number = plain, 2
    while made in taken:
        made, number = f"{plain}_{number}", number + 1
    return made


def project_name(text: str) -> str:
    """Return a name that the project's settings accept: `2013 flights` → flights."""
    plain = re.sub(r"[^A-Za-z0-9_\-]+", "-", _plain(text)).strip("-_")
    return re.sub(r"^[^A-Za-z]+", "", plain) or "project"


def _plain(text: str) -> str:
    """Write letters without their accents: `größe` → `grosse`."""
    parts = unicodedata.normalize("NFKD", text.replace("ß", "ss"))
    return "".join(part for part in parts if not unicodedata.combining(part))
