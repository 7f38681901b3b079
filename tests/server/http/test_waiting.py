"""Requests that wait in WebSockets take a bounded part of memory, for a while."""

import json
import threading
from pathlib import Path

import pytest
from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from tests.harness import Server, until

MB = 1 << 20


def resident(server: Server) -> int:
    """Return the memory of a server's process, in bytes."""
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) << 10


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:connect:DeprecationWarning")
def test_clients_that_do_not_read_take_a_bounded_part_of_memory(tmp_path: Path) -> None:
    server = Server(tmp_path / "data").start()
    before, sockets = resident(server), []
    query = json.dumps({"query": "SELECT repeat('x', 1000) FROM generate_series(1, 20000)"})
    large = json.dumps({"query": f"SELECT '{'x' * MB}'"})

    def flood(socket: ClientConnection) -> None:
        try:
            for text in ('{"options": {}}', query, *[large] * 14):
                socket.send(text)
        except (OSError, WebSocketException):
            pass  # refused, which is what is to happen to most

    for _ in range(40):
        url = f"ws://127.0.0.1:{server.http_port}/api/experimental/sql"
        socket = connect(url, max_queue=1, close_timeout=0.1)
        sockets.append(socket)
        thread = threading.Thread(target=flood, args=(socket,), daemon=True)
        thread.start()
        thread.join(10)
    assert resident(server) - before < 400 * MB
    with server.connect() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    for socket in sockets:
        socket.socket.close()
    until(lambda: resident(server) - before < 200 * MB, "memory is given back")
    assert server.stop() == 0
