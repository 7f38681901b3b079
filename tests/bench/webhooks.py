"""Webhooks: requests per second of connections that send one request after another.

    python -m tests.bench.webhooks [--connections 16] [--seconds 10] [--check]

Each request is durable when it is answered. With --check it is signed, and its signature checked.
"""

import argparse
import asyncio
import hashlib
import hmac
import tempfile
import time
from pathlib import Path

from tests.harness import Server, serving

BODY = b'{"user": 17, "event": "clicked", "at": "2024-02-29T12:00:00Z", "page": "/index.html"}'
CHECK = """CHECK (WITH (HEADERS, BODY AS b, SECRET k AS k)
    constant_time_eq(headers -> 'x-sign', encode(hmac(b, k, 'sha256'), 'hex')))"""


async def send(port: int, until: float) -> list[float]:
    """Return the seconds of each request of one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    sign = hmac.new(b"key", BODY, hashlib.sha256).hexdigest()
    request = (
        f"POST /api/webhook/foreshore/public/w HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Sign: {sign}\r\n"
        f"Content-Length: {len(BODY)}\r\n\r\n"
    ).encode() + BODY
    took = []
    while (began := time.monotonic()) < until:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        took.append(time.monotonic() - began)
    writer.close()
    return took


def measure(server: Server, connections: int, seconds: float, check: bool) -> None:
    """Print the rate and the latencies."""
    with server.connect() as session:
        session.execute("CREATE SECRET k AS 'key'")
        session.execute(f"CREATE SOURCE w FROM WEBHOOK BODY FORMAT JSON {CHECK if check else ''}")

        async def run() -> list[float]:
            until = time.monotonic() + seconds
            found = await asyncio.gather(
                *(send(server.http_port, until) for _ in range(connections))
            )
            return sorted(one for each in found for one in each)

        took = asyncio.run(run())
        (rows,) = session.execute("SELECT count(*) FROM w").fetchone() or (0,)
        assert rows == len(took), (rows, len(took))
    half, most = took[len(took) // 2] * 1000, took[len(took) * 99 // 100] * 1000
    print(
        f"{connections} connections: {len(took) / seconds:.0f} requests/s, "
        f"median {half:.1f} ms, 99% {most:.1f} ms"
    )


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, serving(Path(directory)) as server:
        measure(server, options.connections, options.seconds, options.check)


if __name__ == "__main__":
    main()
