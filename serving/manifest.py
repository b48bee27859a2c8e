"""A version's manifest: which files it holds, what they are, and where they come from.

`taxiway_manifest.json` lies in the version's folder; TensorFlow Serving ignores it. With
a signature beside it (Ed25519, RFC 8032, over the file's bytes) a server can insist on
versions that a known key has signed.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from serving.errors import RepositoryError
from serving.saved_model import Signature, TensorSpec

MANIFEST_FILE = "taxiway_manifest.json"
SIGNATURE_FILE = "taxiway_manifest.sig"
FORMAT = 1
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class FileEntry:
    """One file of a version."""

    size: int
    """Bytes."""
    sha256: str
    """In hexadecimal."""


@dataclass(frozen=True)
class Manifest:
    """What a version is made of."""

    model: str
    version: int
    files: Mapping[str, FileEntry]
    """By path within the version."""
    signatures: Mapping[str, Signature]
    created: str = ""
    """When, in ISO 8601, for humans: nothing is decided by it."""
    run: str = ""
    """The run that made it; empty: unknown."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """More that is known of it, metrics for example."""

    @property
    def digest(self) -> str:
        """What tells contents apart, whatever their version: sha256 over all files."""
        return digest_of(self.files)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.files.values())

    def to_json(self) -> str:
        """Write it; the same manifest gives the same text."""
        document = {
            "format": FORMAT,
            "model": self.model,
            "version": self.version,
            "created": self.created,
            "run": self.run,
            "digest": self.digest,
            "files": {
                path: {"size": entry.size, "sha256": entry.sha256}
                for path, entry in sorted(self.files.items())
            },
            "signatures": {
                name: {
                    "method": signature.method,
                    "inputs": _specs_json(signature.inputs),
                    "outputs": _specs_json(signature.outputs),
                }
                for name, signature in sorted(self.signatures.items())
            },
            "facts": self.facts,
        }
        return json.dumps(document, indent=1, sort_keys=False) + "\n"


def digest_of(files: Mapping[str, FileEntry]) -> str:
    """Return the sha256 over names, sizes and contents."""
    lines = [f"{p}\0{entry.size}\0{entry.sha256}\n" for p, entry in files.items()]
    return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()


def read_manifest(folder: Path) -> Manifest | None:
    """Return a version's manifest; None where it has none: it was copied by hand.

    Raises:
        RepositoryError: It is damaged.
    """
    file = folder / MANIFEST_FILE
    try:
        return parse(file.read_text())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RepositoryError(f"{file} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RepositoryError(f"{file}: damaged: {error}") from error


def parse(text: str) -> Manifest:
    """Read what `to_json` wrote.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: It is something else.
    """
    document = json.loads(text)
    if document["format"] != FORMAT:
        raise ValueError(f"format: got {document['format']}, allowed: {FORMAT}")
    manifest = Manifest(
        model=str(document["model"]),
        version=int(document["version"]),
        files={
            str(path): FileEntry(int(entry["size"]), str(entry["sha256"]))
            for path, entry in document["files"].items()
        },
        signatures={
            name: Signature(
                entry["method"], _specs(entry["inputs"]), _specs(entry["outputs"])
            )
            for name, entry in document["signatures"].items()
        },
        created=str(document["created"]),
        run=str(document["run"]),
        facts=dict(document["facts"]),
    )
    if manifest.digest != document["digest"]:
        raise ValueError("its digest is not that of the files that it lists")
    return manifest


def _specs_json(specs: Mapping[str, TensorSpec]) -> dict[str, Any]:
    return {
        name: {"dtype": spec.dtype, "shape": spec.shape}
        for name, spec in sorted(specs.items())
    }


def _specs(document: Mapping[str, Any]) -> dict[str, TensorSpec]:
    return {
        name: TensorSpec(
            spec["dtype"], None if spec["shape"] is None else tuple(spec["shape"])
        )
        for name, spec in document.items()
    }


def measure(file: Path) -> FileEntry:
    """Return a file's size and digest."""
    digest, size = hashlib.sha256(), 0
    with file.open("rb") as content:
        while chunk := content.read(CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return FileEntry(size, digest.hexdigest())


def paths(folder: Path) -> Iterator[str]:
    """Yield the paths of a version's files, without the manifest's own."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_dir() and name not in {MANIFEST_FILE, SIGNATURE_FILE}:
            yield name


def lacks(folder: Path, manifest: Manifest) -> list[str]:
    """Return what is obviously not as the manifest says, without reading a file."""
    found = []
    for path, entry in manifest.files.items():
        try:
            size = (folder / path).stat().st_size
        except OSError:
            found.append(f"{path}: missing")
            continue
        if size != entry.size:
            found.append(f"{path}: {size} bytes, the manifest says {entry.size}")
    return found


def differences(folder: Path, manifest: Manifest) -> list[str]:
    """Return all that is not as the manifest says; every file is read."""
    found = lacks(folder, manifest)
    faulty = {line.partition(":")[0] for line in found}
    for path in paths(folder):
        if path not in manifest.files:
            found.append(f"{path}: not in the manifest")
        elif path not in faulty:
            sha256 = measure(folder / path).sha256
            if sha256 != manifest.files[path].sha256:
                found.append(f"{path}: its contents are not those of the manifest")
    return found
