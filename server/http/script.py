"""The client in JavaScript: its module, its types, and both as a package for npm.

    /foreshore.js      import { live } from "http://127.0.0.1:6876/foreshore.js"
    /foreshore.d.ts    its types
    /foreshore.tgz     npm install http://127.0.0.1:6876/foreshore.tgz

All have an ETag, by which a browser asks whether they have changed.
"""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

FILES = Path(__file__).parent / "static"
_PUBLIC = {"cache-control": "no-cache", "access-control-allow-origin": "*"}


def public(path: str, data: bytes, media_type: str) -> Route:
    """Return a route for bytes that anybody may read, also pages of other origins."""
    tag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
    headers = {**_PUBLIC, "etag": tag}

    async def answer(request: Request) -> Response:
        known = request.headers.get("if-none-match", "")
        if tag in (each.strip().removeprefix("W/") for each in known.split(",")):
            return Response(status_code=304, headers=headers)
        return Response(data, media_type=media_type, headers=headers)

    return Route(path, answer)


def routes() -> Iterator[Route]:
    """Yield the routes."""
    yield public("/foreshore.js", (FILES / "foreshore.js").read_bytes(), "text/javascript")
    yield public("/foreshore.d.ts", (FILES / "foreshore.d.ts").read_bytes(), "text/plain")
    yield public("/foreshore.tgz", package(), "application/gzip")


def package() -> bytes:
    """Return the package, with the version of the server; equal files give equal bytes."""
    about = json.loads((FILES / "package.json").read_bytes())
    about["version"] = _semantic(version("foreshore"))
    members = {"package.json": json.dumps(about, indent=2).encode()}
    for name in about["files"]:
        members[name] = (FILES / name).read_bytes()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, data in members.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return gzip.compress(packed.getvalue(), mtime=0)


def _semantic(python: str) -> str:
    """Return a version of Python as npm wants it: three numbers."""
    numbers = [each for each in python.split("+")[0].split(".") if each.isdigit()]
    return ".".join([*numbers, "0", "0", "0"][:3])
