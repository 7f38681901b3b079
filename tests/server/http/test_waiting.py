"""Requests that wait in WebSockets have a bound for each and for all, and clients that read none."""

import asyncio
import json
import threading
from pathlib import Path

import pytest
from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from foreshore.server.http.waiting import ALL_BYTES, ALWAYS_BYTES, EACH_BYTES, Waiting, WaitingHere
from tests.harness import Server, until

MB = 1 << 20


def test_one_socket_has_a_bound() -> None:
    here = WaitingHere(Waiting())
    assert here.add(EACH_BYTES)
    assert not here.add(1)


def test_socket_that_adds_too_much_to_all_is_refused_and_others_keep_a_little() -> None:
    every = Waiting()
    full = [WaitingHere(every) for _ in range(ALL_BYTES // EACH_BYTES)]
    assert all(each.add(EACH_BYTES) for each in full)
    other = WaitingHere(every)
    assert other.add(ALWAYS_BYTES)
    assert not other.add(1)
    asyncio.run(full[0].close())
    other.remove(1)
    assert other.add(MB)
    assert every.bytes == sum(each.bytes for each in (*full, other))


@pytest.mark.parametrize("waited", [MB, 17 * MB])
def test_memory_is_given_back_after_much_has_waited(
    waited: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []
    monkeypatch.setattr("foreshore.server.http.waiting.give_back", lambda: given.append(1))
    every = Waiting()
    sockets = WaitingHere(every), WaitingHere(every)
    sockets[0].add(waited)
    sockets[1].add(1)
    asyncio.run(sockets[0].close())
    assert given == []
    asyncio.run(sockets[1].close())
    assert given == [1] * (waited > 16 * MB)


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
