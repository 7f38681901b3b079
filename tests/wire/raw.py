"""A client that sends and receives raw bytes."""

import socket
import struct


class Raw:
    """A connection, by default after its startup."""

    def __init__(self, port: int, *, start: bool = True) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._buffer = b""
        if start:
            self.startup(user="foreshore", database="foreshore")
            self.greeting = self.until("Z")

    def startup(self, version: int = 3 << 16, **parameters: str) -> None:
        body = b"".join(f"{k}\0{v}\0".encode() for k, v in parameters.items()) + b"\0"
        self.opening(struct.pack("!i", version) + body)

    def opening(self, body: bytes) -> None:
        self.socket.sendall(struct.pack("!i", len(body) + 4) + body)

    def send(self, code: str, body: bytes = b"") -> None:
        self.socket.sendall(code.encode() + struct.pack("!i", len(body) + 4) + body)

    def exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            data = self.socket.recv(65536)
            if not data:
                raise EOFError
            self._buffer += data
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data

    def receive(self) -> tuple[str, bytes]:
        header = self.exactly(5)
        return header[:1].decode(), self.exactly(struct.unpack("!i", header[1:])[0] - 4)

    def until(self, code: str) -> list[tuple[str, bytes]]:
        got = [self.receive()]
        while got[-1][0] != code:
            got.append(self.receive())
        return got

    def closed(self) -> bool:
        """Whether the server has closed the connection; reads the rest of its output."""
        try:
            while data := self.socket.recv(65536):
                self._buffer += data
        except ConnectionError:
            pass
        except TimeoutError:
            return False
        return True


def fields(body: bytes) -> dict[str, str]:
    """Return the fields of an ErrorResponse."""
    parts = body.rstrip(b"\0").split(b"\0")
    return {part[:1].decode(): part[1:].decode() for part in parts}
