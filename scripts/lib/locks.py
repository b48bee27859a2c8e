"""The locks: how each is resolved, and the digest that tells when one is stale.

Run it through `scripts/renew-locks`; it needs only the standard library.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "requirements"
EXTRAS: Mapping[str, str] = {
    "dev": "dev",
    "full": "kubeflow",
    "serving": "serving",
    "gpu": "gpu",
}
"""Extra of pyproject.toml that each lock holds; the first one constrains the rest."""
OPTIONS = (
    "--python-version=3.11",
    "--python-platform=x86_64-manylinux_2_36",
    "--generate-hashes",
    "--no-emit-index-url",
    "--no-annotate",
    "--no-header",
    "--quiet",
)
NETWORK_VARIABLES = (
    "UV_DEFAULT_INDEX",
    "UV_INDEX_URL",
    "UV_CACHE_DIR",
    "UV_HTTP_TIMEOUT",
    "UV_SYSTEM_CERTS",
    "UV_INSECURE_HOST",
)
"""Settings of uv that say where packages come from, not which are chosen."""
RENEW = "scripts/renew-locks"
DIGEST = re.compile(
    r"^# Inputs in pyproject\.toml: sha256:([0-9a-f]{64})$", re.MULTILINE
)
PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)((?:[^\n]*\\\n)*[^\n]*)$", re.MULTILINE)


@dataclass(frozen=True)
class Lock:
    """One exported lock, as read from its text."""

    digest: str | None
    """Digest of the inputs that it was resolved from; None when it names none."""
    pins: Mapping[str, str]
    """Version of each distribution, by its name."""
    unhashed: tuple[str, ...]
    """Distributions without a hash."""


def parse(text: str) -> Lock:
    """Read the text of a lock."""
    found = DIGEST.search(text)
    pins = PIN.findall(text)
    return Lock(
        digest=found[1] if found else None,
        pins={name: version for name, version, _ in pins},
        unhashed=tuple(name for name, _, rest in pins if "--hash=sha256:" not in rest),
    )


def inputs_digest(pyproject: str) -> str:
    """Return the digest of all in pyproject.toml that decides what is locked."""
    content = tomllib.loads(pyproject)
    project = content["project"]
    inputs = [
        project["requires-python"],
        project["dependencies"],
        project["optional-dependencies"],
        content["tool"]["uv"],
        EXTRAS,
        OPTIONS,
    ]
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def header(digest: str) -> str:
    """Return the comment that a lock begins with."""
    return (
        f"# Written by {RENEW}; edit pyproject.toml instead.\n"
        f"# Inputs in pyproject.toml: sha256:{digest}\n"
    )


def resolve(uv: Path, folder: Path, more_options: Sequence[str] = ()) -> None:
    """Resolve every lock into a folder, starting from the pins that are there.

    Raises:
        CalledProcessError: uv found no solution; it has said why.
    """
    digest = inputs_digest((ROOT / "pyproject.toml").read_text())
    first = folder / f"{next(iter(EXTRAS))}.txt"
    for name, extra in EXTRAS.items():
        path = folder / f"{name}.txt"
        constraint = [] if path == first else ["--constraint", str(first)]
        subprocess.run(
            [
                *(str(uv), "pip", "compile", "pyproject.toml", "--extra", extra),
                *OPTIONS,
                *constraint,
                *more_options,
                *("-o", str(path)),
            ],
            cwd=ROOT,
            env=clean_environment(os.environ),
            stdout=subprocess.DEVNULL,
            check=True,
        )
        path.write_text(header(digest) + _without_comments(path.read_text()))


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Leave out what would change which versions uv chooses, or what it writes."""
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(("UV_", "PIP_")) or name in NETWORK_VARIABLES
    }


def _without_comments(text: str) -> str:
    return "".join(
        line for line in text.splitlines(keepends=True) if not line.startswith("#")
    )


def main(arguments: Sequence[str]) -> int:
    """Renew the locks in place, all or none."""
    parser = argparse.ArgumentParser(prog=RENEW, description=main.__doc__)
    parser.add_argument("--uv", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument(
        "--upgrade", action="store_true", help="take the newest versions allowed"
    )
    options = parser.parse_args(arguments)
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
        for name in EXTRAS:
            old = FOLDER / f"{name}.txt"
            if old.exists():
                (Path(scratch) / old.name).write_text(old.read_text())
        resolve(options.uv, Path(scratch), ["--upgrade"] if options.upgrade else [])
        for name in EXTRAS:
            os.replace(Path(scratch) / f"{name}.txt", FOLDER / f"{name}.txt")
    print("renewed: " + ", ".join(f"requirements/{name}.txt" for name in EXTRAS))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
