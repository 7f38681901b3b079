"""Rows of COPY that arrive in pieces of a few bytes take no more than their bytes."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from foreshore.adapter.client import CopyIn, CopyOptions
from foreshore.server.arrow_copy import ArrowCopyParser
from foreshore.server.binary_copy import BinaryCopyParser
from foreshore.server.copy_in import CopyParser
from foreshore.types import TEXT
from tests.server.fake import FakeClient, FakeTarget, desc_of

BYTES = 200_000
PARSERS: dict[str, Callable[[CopyIn], Any]] = {
    "text": lambda copy: CopyParser(copy, "UTC"),
    "binary": BinaryCopyParser,
    "arrow": ArrowCopyParser,
}


@pytest.mark.parametrize("format", PARSERS)
def test_small_pieces_take_no_more_than_their_bytes(format: str) -> None:
    copy = CopyIn("t", desc_of(a=TEXT), CopyOptions(), FakeTarget(FakeClient()))
    parser, data = PARSERS[format](copy), bytes(BYTES)
    tracemalloc.start()
    try:
        for at in range(0, BYTES, 2):
            parser.feed(data[at : at + 2])
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert parser.unparsed_bytes == BYTES
    assert held < 2 * BYTES
