"""Why a tunnel led to no broker is forgotten when one answers, not when the connection ends."""

import asyncio
import struct

from foreshore.storage.external import kafka_tunnels
from foreshore.storage.external.access import Tunnel
from foreshore.storage.external.kafka_tunnels import failure_of

TUNNEL = Tunnel("127.0.0.1", 1, "me", None, "", ())


class Writer:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data

    async def drain(self) -> None:
        """Wait for nothing."""


def test_failure_is_forgotten_when_a_broker_answers() -> None:
    port, writer, answer = kafka_tunnels._Port(TUNNEL, None, "b", 1), Writer(), b"answer"

    async def pass_on() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(struct.pack(">ii", 4 + len(answer), 7) + answer)
        reader.feed_eof()
        await port._answers(reader, writer, {})  # type: ignore[arg-type]

    kafka_tunnels._PORTS.failures[TUNNEL] = "it was away"
    assert failure_of(TUNNEL) == "it was away"
    asyncio.run(pass_on())
    assert writer.data.endswith(answer)
    assert failure_of(TUNNEL) is None
