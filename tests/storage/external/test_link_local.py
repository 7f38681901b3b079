"""Endpoints of connections are not the addresses where a machine learns its own keys."""

import asyncio

import pytest

from foreshore.errors import InsufficientPrivilege
from foreshore.storage.external.access import Access
from foreshore.storage.external.aws import bucket_of
from foreshore.storage.external.dial import is_link_local
from foreshore.storage.external.kafka import configuration
from foreshore.storage.external.kafka_failures import Failures
from foreshore.storage.external.schema_registry import Registry

KEYS = {"access key id": "A", "secret access key": "S"}


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "2852039166", "0xa9fea9fe"]
)
def test_link_local_endpoints_are_refused(host: str) -> None:
    access = Access("aws", {**KEYS, "endpoint": f"http://{host}"})
    with pytest.raises(InsufficientPrivilege, match="is not for connections"):
        bucket_of("s3://latest/meta-data/iam", access)

    tokens = {"broker": "b:1", "oauth2 server url": f"http://{host}/token"}
    with pytest.raises(InsufficientPrivilege, match="is not for connections"):
        configuration(kafka := Access("kafka", tokens), Failures(kafka))

    async def ask() -> None:
        async with Registry(Access("confluent schema registry", {"url": f"http://{host}"})) as each:
            await each.check()

    with pytest.raises(InsufficientPrivilege, match="is not for connections"):
        asyncio.run(ask())


def test_other_addresses_are_taken() -> None:
    taken = ("127.0.0.1", "10.0.0.1", "192.168.1.1", "8.8.8.8", "::1", "fd00::1", "2001:db8::1")
    assert not any(map(is_link_local, taken))
    assert is_link_local("100.100.100.200")
    assert is_link_local("fe80::1%eth0")
