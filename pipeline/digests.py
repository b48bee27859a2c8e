"""Digests of what a step depends on: files, settings, code and libraries."""

import hashlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path

CHUNK_BYTES = 1 << 20


def of_value(value: object) -> str:
    """Return the digest of a JSON-like value, independent of the order of keys."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def of_file(path: Path) -> str:
    """Return the sha256 of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def of_files(paths: Iterable[Path]) -> dict[str, str]:
    """Return the digest of each file, by its path."""
    return {str(path): of_file(path) for path in paths}


def of_libraries() -> str:
    """Return the digest of the interpreter and of every installed distribution.

    Reads only the names of the `*.dist-info` folders, which hold the versions:
    importing or parsing metadata of 200 packages would cost more than it tells.
    """
    names = {
        folder.name
        for entry in sys.path
        if entry and Path(entry).is_dir()
        for folder in Path(entry).glob("*.dist-info")
        if not folder.name.startswith("taxiway-")
    }
    return of_value([sys.version, sorted(names)])
