"""A server that is killed while clients are at work."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psycopg

from tests.harness import Server, until


def kill_amid(
    server: Server, clients: int, work: Callable[[int], None], got_on: Callable[[], bool]
) -> None:
    """Kill the server once its clients have `got_on`, and start it again.

    Each client, by its number, does its `work` until it loses its connection; what else ends one is
    raised.
    """

    def run(client: int) -> None:
        with suppress(psycopg.OperationalError):  # the server was killed
            work(client)

    with ThreadPoolExecutor(clients) as executor:
        running = [executor.submit(run, client) for client in range(clients)]
        try:
            until(lambda: got_on() or any(each.done() for each in running), "the clients get on")
            enough = got_on()
        finally:
            server.kill()
    for each in running:
        each.result()
    assert enough, "a client lost its connection before"
    server.start()
