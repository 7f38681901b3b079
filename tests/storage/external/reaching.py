"""Reaches external systems for tests, in a process of its own whose environment is full of secrets.

Standard input has the accesses, as JSON; for each a line says what came of it.
"""

import asyncio
import json
import sys
from typing import Any

from foreshore.errors import DatabaseError
from foreshore.sinks.spec import PostgresTarget, SinkSpec
from foreshore.storage.export.messages import Export
from foreshore.storage.external.access import Access, Tunnel
from foreshore.storage.external.process import forget_identity
from foreshore.types import INT4, ColumnType, RelationDesc


async def reached(kind: Any, options: dict[str, str], how: str, *, by_superuser: bool) -> str:
    """Return what a user is told when a connection is used in a way."""
    from foreshore.storage.ingest.kinds import validate

    tunnel = None
    if kind == "ssh tunnel":
        port, user, kept = int(options["port"]), options["user"], options["kept"]
        tunnel, options = Tunnel(options["host"], port, user, None, kept, ()), {}
    access = Access(kind, options, tunnel, by_superuser)
    try:
        async with asyncio.timeout(25):
            match how:
                case "validate":
                    await validate(access)
                case "sink":
                    await _sink(access)
                case "stream":
                    await asyncio.to_thread(_stream, access)
                case "files":
                    await asyncio.to_thread(_files, access)
                case "delta":
                    await asyncio.to_thread(_delta, access)
                case _:
                    raise AssertionError(how)
    except (DatabaseError, OSError) as error:
        return f"{getattr(error, 'sqlstate', type(error).__name__)}: {error}"
    return "ok"


async def _sink(access: Access) -> None:
    from foreshore.storage.export.postgres.kind import KIND

    desc = RelationDesc(("a",), (ColumnType(INT4, nullable=True),))
    spec = SinkSpec(PostgresTarget("l1", "public.t"), "append", ())
    await KIND.check(Export("foreshore_x", spec, desc, {"l1": access}))


def _stream(access: Access) -> None:
    from foreshore.storage.external.libpq import ReplicationSession

    ReplicationSession(access).close()


def _files(access: Access) -> None:
    from foreshore.storage.external.aws import bucket_of

    bucket_of("s3://bucket/key", access).blob.create("key", b"data")


def _delta(access: Access) -> None:
    from foreshore.storage.external.aws import bucket_of
    from foreshore.storage.lake import delta

    delta.opened(bucket_of("s3://bucket/key", access))


def main() -> None:
    """Reach each of them."""
    forget_identity()
    for kind, options, how, by_superuser in json.load(sys.stdin):
        said = asyncio.run(reached(kind, options, how, by_superuser=by_superuser))
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
