"""TLS: the server's certificate, and the layer that encrypts one connection.

A connection begins in plain text. `Wire.start_tls` puts a `TlsLayer` between the socket and the
wire, so connections without TLS do not pass through any of this. The layer is OpenSSL over two
buffers in memory, without I/O of its own.

    socket ── transport ── TlsLayer ── Wire

The files of the certificate are read again by `Tls.reload`. Connections that are open keep theirs.
"""

import asyncio
import contextlib
import hashlib
import ssl
import stat
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from foreshore.adapter.client import Encryption
from foreshore.errors import ConfigurationFileError
from foreshore.loop_watchdog import protocol_callback
from foreshore.server.message import Bytes

ALPN = "postgresql"
RECORD = 16 * 1024  # the most bytes of plain text in one record
HANDSHAKE_LIMIT = 256 * 1024  # bytes that a client may send before its handshake is complete


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files that TLS is configured by, in PEM."""

    certificate: Path
    key: Path
    ca: Path | None = None  # of the authorities that sign client certificates


@dataclass(frozen=True, slots=True)
class Credentials:
    """What new connections use: OpenSSL's context, and the data of SCRAM's channel binding."""

    context: ssl.SSLContext
    end_point: bytes | None  # None: the certificate's signature names no hash


class Tls:
    """The server's TLS configuration."""

    def __init__(self, files: TlsFiles) -> None:
        """Load the files; raises ConfigurationFileError."""
        self.files = files
        self.credentials = load(files)
        self._others: list[ssl.SSLContext] = []

    def reload(self) -> None:
        """Load the files again; raises ConfigurationFileError, and nothing has changed then."""
        self.credentials = load(self.files)
        for context in self._others:
            context.load_cert_chain(self.files.certificate, self.files.key)

    def https(self) -> ssl.SSLContext:
        """Return a context for HTTP, which asks for no client certificate and follows reloads."""
        context = _context()
        context.load_cert_chain(self.files.certificate, self.files.key)
        self._others.append(context)
        return context


def load(files: TlsFiles) -> Credentials:
    """Return the credentials in `files`; raises ConfigurationFileError."""
    context = _context()
    context.set_alpn_protocols([ALPN])
    _check_private(files.key)
    try:
        context.load_cert_chain(files.certificate, files.key, _no_passphrase)
        end_point = _end_point(files.certificate.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigurationFileError(
            f'could not load server certificate "{files.certificate}" with private key '
            f'"{files.key}": {_reason(error)}'
        ) from None
    if files.ca is not None:
        try:
            context.load_verify_locations(files.ca)
        except OSError as error:
            raise ConfigurationFileError(
                f'could not load root certificate file "{files.ca}": {_reason(error)}'
            ) from None
        context.verify_mode = ssl.CERT_OPTIONAL
    return Credentials(context, end_point)


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_NO_TICKET
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    context.num_tickets = 0  # sessions are not resumed
    return context


def _no_passphrase() -> str:
    raise ValueError("the private key is protected by a passphrase")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    return getattr(error, "strerror", None) or str(error)


def _check_private(key: Path) -> None:
    """Refuse a key that others may read, by PostgreSQL's rules: a key of root may have a group."""
    try:
        found = key.stat()
    except OSError as error:
        raise ConfigurationFileError(
            f'could not access private key file "{key}": {error.strerror}'
        ) from None
    open_to = stat.S_IRWXO | (stat.S_IWGRP | stat.S_IXGRP if found.st_uid == 0 else stat.S_IRWXG)
    if found.st_mode & open_to:
        raise ConfigurationFileError(
            f'private key file "{key}" has group or world access',
            detail="File must have permissions u=rw (0600) or less if owned by the database user, "
            "or permissions u=rw,g=r (0640) or less if owned by root.",
        )


def _end_point(pem: bytes) -> bytes | None:
    """Return the data of tls-server-end-point (RFC 5929) for the first certificate in `pem`.

    It is the certificate's hash by the algorithm of its signature, SHA-256 in place of MD5 and
    SHA-1. Signatures such as Ed25519 have no hash, and no channel binding.
    """
    certificate = x509.load_pem_x509_certificate(pem)
    algorithm = certificate.signature_hash_algorithm
    if algorithm is None:
        return None
    name = "sha256" if algorithm.name in ("md5", "sha1") else algorithm.name
    return hashlib.new(name, certificate.public_bytes(Encoding.DER)).digest()


class TlsLayer(asyncio.Protocol):
    """The encryption of one connection: the protocol of its transport, a transport to its wire."""

    def __init__(
        self, transport: asyncio.Transport, wire: asyncio.Protocol, credentials: Credentials
    ) -> None:
        self._transport = transport
        self._wire = wire
        self.end_point = credentials.end_point
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = credentials.context.wrap_bio(
            self._incoming, self._outgoing, server_side=True
        )

    # --- the handshake ---------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Add encrypted bytes that have arrived."""
        self._incoming.write(data)

    def step(self) -> bool:
        """Continue the handshake, and return whether it is complete; raises SSLError.

        This computes a signature, which takes up to some milliseconds.
        """
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def send(self) -> None:
        """Send what OpenSSL has to send."""
        if self._outgoing.pending and not self._transport.is_closing():
            self._transport.write(self._outgoing.read())

    @property
    def protocol(self) -> str | None:
        """The protocol that client and server have agreed on by ALPN."""
        return self._object.selected_alpn_protocol()

    def described(self) -> Encryption:
        """Return what client and server have agreed on."""
        cipher, _, bits = self._object.cipher() or ("", "", 0)
        certificate = self.client_certificate()
        names: tuple[str | None, str | None] = (None, None)
        if certificate is not None:
            names = (certificate.subject.rfc4514_string(), certificate.issuer.rfc4514_string())
        return Encryption(self._object.version() or "", cipher, bits, *names)

    def client_certificate(self) -> x509.Certificate | None:
        """Return the client's certificate, which has been verified; None if it sent none."""
        der = self._object.getpeercert(binary_form=True)
        return None if der is None else x509.load_der_x509_certificate(der)

    # --- the protocol of the transport -----------------------------------------------------

    @protocol_callback
    def data_received(self, data: bytes) -> None:
        """Give the wire what the bytes decrypt to."""
        self._incoming.write(data)
        self.deliver()

    def deliver(self) -> None:
        """Give the wire what has arrived and is not read yet."""
        pieces: list[bytes] = []
        ended = False
        try:
            while self._incoming.pending or self._object.pending():
                piece = self._object.read(RECORD)
                if not piece:
                    ended = True
                    break
                pieces.append(piece)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:  # nothing that follows can be trusted
            self._transport.abort()
            return
        if self._outgoing.pending:
            self.send()
        if pieces:
            self._wire.data_received(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if ended:
            self._wire.eof_received()

    def eof_received(self) -> bool:
        """Pass on the end of input."""
        return bool(self._wire.eof_received())

    def connection_lost(self, error: Exception | None) -> None:
        """Pass on the end of the connection."""
        self._wire.connection_lost(error)

    def pause_writing(self) -> None:
        """Pass on that the client reads too slowly."""
        self._wire.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that the client has read enough."""
        self._wire.resume_writing()

    # --- the transport of the wire ---------------------------------------------------------

    def write(self, data: Bytes) -> None:
        """Encrypt bytes and send them."""
        sent = self._object.write(data)
        while sent < len(data):
            sent += self._object.write(memoryview(data)[sent:])
        self._transport.write(self._outgoing.read())

    def is_closing(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        """Read no more from the socket."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read from the socket again."""
        self._transport.resume_reading()

    def get_write_buffer_size(self) -> int:
        """Return the bytes that the socket has not taken yet."""
        return self._transport.get_write_buffer_size()

    def abort(self) -> None:
        """Close the connection at once."""
        self._transport.abort()

    def close(self) -> None:
        """Send the end of TLS, and close the connection once all is sent."""
        if not self._transport.is_closing():
            with contextlib.suppress(ssl.SSLError):  # the client has not ended TLS from its side
                self._object.unwrap()
            self.send()
        self._transport.close()
