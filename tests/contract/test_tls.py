"""gRPC with TLS and mTLS by `--ssl_config_file`, and over a Unix socket."""

import datetime as dt
import ipaddress
import json
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from contract_server import MODELS, Contracted, StatusError, running
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HALF = ("--model_name=half", f"--model_base_path={MODELS / 'half_plus_two'}")


@dataclass(frozen=True)
class Pair:
    """A key and its certificate, in PEM."""

    key: bytes
    certificate: bytes


@dataclass(frozen=True)
class Authority:
    """Signs certificates."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, name: str) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        certificate = (
            _builder(name, self.certificate.subject, key)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return Pair(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
            certificate.public_bytes(serialization.Encoding.PEM),
        )


def _builder(
    name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
    )


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


@pytest.fixture(scope="module")
def authority() -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder("authority", _name("authority"), key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Authority(key, certificate)


def ssl_config(folder: Path, pair: Pair, more: str = "") -> str:
    file = folder / "ssl.config"
    key, certificate = (
        json.dumps(pem.decode()) for pem in (pair.key, pair.certificate)
    )
    file.write_text(f"server_key: {key}\nserver_cert: {certificate}\n{more}")
    return f"--ssl_config_file={file}"


def ask(server: Contracted) -> list[float]:
    answer: list[float] = server.predict("half", {"x": [2.0]}, timeout_s=5)[
        "y"
    ].tolist()
    return answer


def test_encrypted_channel(tmp_path: Path, authority: Authority) -> None:
    flag = ssl_config(tmp_path, authority.issue("localhost"))
    credentials = grpc.ssl_channel_credentials(authority.pem)
    with running(tmp_path / "log", *HALF, flag, credentials=credentials) as server:
        assert ask(server) == [3.0]
        server.credentials, server.channel_ = None, None
        with pytest.raises(StatusError) as refused:
            ask(server)
        assert refused.value.code == "UNAVAILABLE"


def test_client_must_show_a_certificate_when_that_is_asked_for(
    tmp_path: Path, authority: Authority
) -> None:
    ca = json.dumps(authority.pem.decode())
    flag = ssl_config(
        tmp_path,
        authority.issue("localhost"),
        f"custom_ca: {ca}\nclient_verify: true\n",
    )
    client = authority.issue("client")
    known = grpc.ssl_channel_credentials(authority.pem, client.key, client.certificate)
    with running(tmp_path / "log", *HALF, flag, credentials=known) as server:
        assert ask(server) == [3.0]
        server.credentials = grpc.ssl_channel_credentials(authority.pem)
        server.channel_ = None
        with pytest.raises(StatusError) as refused:
            ask(server)
        assert refused.value.code == "UNAVAILABLE"


@pytest.mark.parametrize(
    "text", ["nonsense", 'server_key: "x"', 'server_key: "x" server_cert: "y"']
)
def test_configs_that_cannot_be_end_the_start(tmp_path: Path, text: str) -> None:
    file = tmp_path / "ssl.config"
    file.write_text(text)
    flag = f"--ssl_config_file={file}"
    with running(tmp_path / "log", *HALF, flag, waits=False) as server:
        assert server.process.wait(60) != 0


def test_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "grpc.sock"
    with (
        running(tmp_path / "log", *HALF, f"--grpc_socket_path={path}") as server,
        grpc.insecure_channel(f"unix:{path}") as channel,
    ):
        server.channel_ = channel
        assert ask(server) == [3.0]
