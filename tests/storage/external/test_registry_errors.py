"""What is told of a schema registry that is not reached."""

import asyncio

import pytest

from foreshore.errors import ConnectionFailure
from foreshore.storage.external.access import Access, Tunnel
from foreshore.storage.external.schema_registry import Registry


def error_of(url: str, tunnel: Tunnel | None = None) -> ConnectionFailure:
    """Return why a schema cannot be had."""

    async def ask() -> None:
        access = Access("confluent schema registry", {"url": url}, tunnel)
        async with Registry(access) as registry:
            await registry.latest("s", "AVRO")

    with pytest.raises(ConnectionFailure) as error:
        asyncio.run(ask())
    return error.value


def test_a_password_in_a_url_is_not_told() -> None:
    error = error_of("http://me:hidden@127.0.0.1:1/path")
    assert error.message.startswith("could not ask the schema registry at http://127.0.0.1:1/path:")
    assert "hidden" not in f"{error.message} {error.hint}"


def test_a_wrong_url_behind_a_tunnel_is_told() -> None:
    tunnel = Tunnel("127.0.0.1", 1, "me", None, "", ())
    assert "Invalid port: 'port'" in error_of("http://h:port", tunnel).message
