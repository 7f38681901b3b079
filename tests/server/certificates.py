"""Certificates for tests: an authority, and what it signs."""

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

_NOW = dt.datetime.now(dt.UTC)


@dataclass(frozen=True)
class Issued:
    """The files of a certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates into files of a directory."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self.directory = directory
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = (
            self._builder(self.name, self.key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self.key, hashes.SHA256())
        )
        self.file = directory / f"{name}.crt"
        self.file.write_bytes(made.public_bytes(Encoding.PEM))

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(_NOW - dt.timedelta(days=1))
            .not_valid_after(_NOW + dt.timedelta(days=1))
        )

    def issue(
        self,
        common_name: str,
        file: str | None = None,
        *,
        hash: hashes.SHA256 | hashes.SHA384 | None = None,
        host: str = "localhost",
    ) -> Issued:
        """Return a certificate for a client, or for a server at `host` and at 127.0.0.1."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName(host), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        made = (
            self._builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)]), key)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self.key, hash or hashes.SHA256())
        )
        stem = self.directory / (file or common_name)
        issued = Issued(stem.with_suffix(".crt"), stem.with_suffix(".key"))
        issued.certificate.write_bytes(made.public_bytes(Encoding.PEM))
        issued.key.touch(0o600)
        issued.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return issued
