"""Signed manifests: a server may insist on versions that a known key has signed.

Ed25519 (RFC 8032) over the manifest's bytes; the manifest holds the sha256 of every file,
so that the signature vouches for all of them. Keys are PEM files, as
`openssl genpkey -algorithm ed25519` writes them.
"""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

from serving import manifest as manifests
from serving.errors import RepositoryError
from serving.manifest import MANIFEST_FILE, SIGNATURE_FILE

Signer = Callable[[bytes], str]


def signer(key_file: Path) -> Signer:
    """Return what signs with a private key.

    Raises:
        RepositoryError: It is no private key of Ed25519 without a password.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = _load(key_file, lambda pem: load_pem_private_key(pem, password=None))
    if not isinstance(key, Ed25519PrivateKey):
        raise RepositoryError(f"{key_file}: no private key of Ed25519")
    return lambda content: base64.b64encode(key.sign(content)).decode()


def check_signed(folder: Path, key_file: Path) -> None:
    """Refuse a version that the key has not signed as it is; every file is read.

    Raises:
        RepositoryError: It is not signed, not by this key, or was changed since.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    key = _load(key_file, load_pem_public_key)
    if not isinstance(key, Ed25519PublicKey):
        raise RepositoryError(f"{key_file}: no public key of Ed25519")
    manifest = manifests.read_manifest(folder)
    try:
        signature = base64.b64decode(
            (folder / SIGNATURE_FILE).read_text(), validate=True
        )
        key.verify(signature, (folder / MANIFEST_FILE).read_bytes())
    except FileNotFoundError as error:
        raise RepositoryError(f"{folder}: the version is not signed") from error
    except OSError as error:
        raise RepositoryError(f"{folder}: {error.strerror}") from error
    except (InvalidSignature, ValueError) as error:
        raise RepositoryError(
            f"{folder}: the signature is not that of {key_file}"
        ) from error
    faults = manifests.differences(folder, manifest) if manifest else []
    if faults:
        raise RepositoryError(
            f"{folder}: changed since it was signed: {'; '.join(faults)}"
        )


def _load(file: Path, parse: Callable[[bytes], Any]) -> Any:
    try:
        return parse(file.read_bytes())
    except OSError as error:
        raise RepositoryError(f"{file} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        raise RepositoryError(
            f"{file}: no key in PEM without a password: {error}"
        ) from error
