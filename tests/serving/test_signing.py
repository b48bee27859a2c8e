"""A server with a key loads what the key has signed, as it was signed, and nothing else."""

import shutil
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from saved_models import saved_model

from serving.errors import Code, RepositoryError, RequestError
from serving.manifest import MANIFEST_FILE, SIGNATURE_FILE
from serving.model_repository import ModelRepository
from serving.server.main import Loader
from serving.server.metrics import Metrics
from serving.server.options import ServerOptions
from serving.signing import check_signed, signer

HALF = Path(__file__).parents[1] / "data/conformance/models/half_plus_two/00000123"


class Keys:
    """A pair of keys in files."""

    def __init__(self, folder: Path, name: str) -> None:
        key = ed25519.Ed25519PrivateKey.generate()
        self.private, self.public = folder / f"{name}.pem", folder / f"{name}.pub"
        self.private.write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        )
        self.public.write_bytes(
            key.public_key().public_bytes(
                Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
            )
        )


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path, "ours")


@pytest.fixture
def version(tmp_path: Path, keys: Keys) -> Path:
    source = saved_model(tmp_path / "source", "v1")
    repository = ModelRepository(tmp_path / "models", "m", sign=signer(keys.private))
    return repository.path(repository.publish(source).version)


def test_what_was_signed_is_taken(version: Path, keys: Keys) -> None:
    check_signed(version, keys.public)


def test_copy_of_a_signed_version_is_signed_anew(
    tmp_path: Path, version: Path, keys: Keys
) -> None:
    other = ModelRepository(tmp_path / "other", "m")
    copied = other.path(other.publish(version).version)
    with pytest.raises(RepositoryError, match="the version is not signed"):
        check_signed(copied, keys.public)


def test_another_key_has_no_say(version: Path, tmp_path: Path) -> None:
    with pytest.raises(RepositoryError, match=r"is not that of .*theirs\.pub"):
        check_signed(version, Keys(tmp_path, "theirs").public)


@pytest.mark.parametrize("text", ["", "AAAA", "no base64!", "é"])
def test_signature_that_is_none_is_refused(
    version: Path, keys: Keys, text: str
) -> None:
    (version / SIGNATURE_FILE).write_text(text)
    with pytest.raises(RepositoryError, match="is not that of"):
        check_signed(version, keys.public)


def test_any_change_is_seen(version: Path, keys: Keys) -> None:
    index = version / "variables" / "variables.index"
    index.write_text("v9")  # as long as before
    with pytest.raises(RepositoryError, match="changed since it was signed: variables"):
        check_signed(version, keys.public)
    index.write_text("v1")
    (version / "more").write_text("x")
    with pytest.raises(RepositoryError, match="more: not in the manifest"):
        check_signed(version, keys.public)
    (version / "more").unlink()
    manifest = version / MANIFEST_FILE
    manifest.write_text(manifest.read_text() + " ")
    with pytest.raises(RepositoryError, match="is not that of"):
        check_signed(version, keys.public)


def test_keys_that_are_none_are_named(tmp_path: Path, version: Path) -> None:
    other = ec.generate_private_key(ec.SECP256R1())
    file = tmp_path / "ec.pem"
    file.write_bytes(
        other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    for check in (signer, lambda key: check_signed(version, key)):
        with pytest.raises(RepositoryError, match=r"missing\.pem cannot be read"):
            check(tmp_path / "missing.pem")
        (tmp_path / "text").write_text("no key")
        with pytest.raises(RepositoryError, match="text: no key in PEM"):
            check(tmp_path / "text")
    with pytest.raises(RepositoryError, match=r"ec\.pem: no private key of Ed25519"):
        signer(file)


@pytest.mark.integration
def test_server_with_a_key_loads_nothing_else(tmp_path: Path, keys: Keys) -> None:
    load = Loader(ServerOptions(public_key=keys.public), Metrics())
    repository = ModelRepository(tmp_path / "real", "m", sign=signer(keys.private))
    repository.publish(HALF)
    load("m", repository.path(1)).close()
    by_hand = tmp_path / "2"
    shutil.copytree(HALF, by_hand)
    with pytest.raises(RequestError, match="is not signed") as refused:
        load("m", by_hand)
    assert refused.value.code is Code.PERMISSION_DENIED
