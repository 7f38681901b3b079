"""PostgreSQL servers that sources of tests read."""

import time
from urllib.parse import urlparse

import psycopg


def options_of(url: str) -> str:
    """Return the options of a connection to a server, as CREATE CONNECTION has them."""
    where = urlparse(url)
    return (
        f"HOST '{where.hostname}', PORT {where.port}, "
        f"DATABASE '{where.path[1:] or 'postgres'}', USER '{where.username or 'postgres'}'"
    )


def drop_slots(url: str) -> None:
    """Drop the slots of tests before, as a server has room for ten; their sources have ended."""
    active = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active"
    with psycopg.connect(url, autocommit=True) as connection:
        while connection.execute(active).fetchall():
            time.sleep(0.05)
        connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
