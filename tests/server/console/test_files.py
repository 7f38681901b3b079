"""The console's files: what they may do, and that nothing of them needs another server."""

import asyncio
import re
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from foreshore.server.http.console.pages import FILES, routes

OURS = sorted(path for path in FILES.rglob("*") if path.is_file() and "vendor" not in path.parts)


def test_pages_are_served_with_a_policy() -> None:
    async def ask() -> None:
        transport = httpx.ASGITransport(Starlette(routes=routes()))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            assert (await client.get("/")).headers["location"] == "console/"
            for path in OURS:
                place = f"/console/{path.relative_to(FILES)}"
                answer = await client.get(place)
                assert answer.status_code == 200, place
                policy = answer.headers["content-security-policy"]
                assert "default-src 'none'" in policy
                assert "script-src 'self';" in policy
                assert "frame-ancestors 'none'" in policy
            assert (await client.get("/console/../pages.py")).status_code == 404

    asyncio.run(ask())


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_file_has_no_markup_from_text_and_no_other_origin(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
    assert not re.findall(r"(?:src|href|import|from|url)[=(\s]*[\"']?https?://", text)
