"""Servers that are killed again and again while a thread makes changes."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlparse

from tests.harness import Server

BETWEEN_S = 1.5  # a start and the next kill


@contextmanager
def loading(load: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run `load` on a thread for the length of the block; its event says when it is to end."""
    ends = threading.Event()
    thread = threading.Thread(target=load, args=(ends,))
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def kill_and_start(server: Server, times: int) -> None:
    """Kill a server and start it again, some times."""
    for _ in range(times):
        time.sleep(BETWEEN_S)
        server.kill()
        server.start()


def options_of(url: str) -> str:
    """Return the options of CREATE CONNECTION ... TO POSTGRES that reach a URL."""
    where = urlparse(url)
    database, user = where.path[1:] or "postgres", where.username or "postgres"
    return f"HOST '{where.hostname}', PORT {where.port}, DATABASE '{database}', USER '{user}'"
