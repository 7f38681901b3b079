"""A proxy between a client and a server that loses connections, perhaps amid a message."""

import socket
import threading
from contextlib import suppress


class Proxy:
    """Forwards connections to a port of this machine until they are cut."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._links: list[socket.socket] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                return
            with self._lock:
                self._links += [client, server]
            for a, b in ((client, server), (server, client)):
                threading.Thread(target=self._forward, args=(a, b), daemon=True).start()

    def _forward(self, a: socket.socket, b: socket.socket) -> None:
        with suppress(OSError):
            while data := a.recv(997):
                b.sendall(data)
        for each in (a, b):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """Lose all connections; new ones may be made."""
        with self._lock:
            links, self._links = self._links, []
        for each in links:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Take no more connections, and lose all."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
