"""Long texts are parsed without garbage collections, and leave no garbage behind."""

import gc
from collections.abc import Iterator

import pytest

from foreshore.errors import SyntaxError_
from foreshore.garbage import collection_paused
from foreshore.sql.parse.parse import parse

LONG = f"SELECT count(*) FROM (VALUES {', '.join(f'(abs({i}))' for i in range(1000))}) v"


@pytest.fixture(autouse=True)
def _collection_enabled() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_collection_is_enabled_again_after_failing_body() -> None:
    enabled = []

    @collection_paused()
    def fail() -> None:
        enabled.append(gc.isenabled())
        raise ValueError("body")

    with pytest.raises(ValueError, match="body"):
        fail()
    assert enabled == [False]
    assert gc.isenabled()


def test_overlapping_pauses_end_with_the_first() -> None:
    first, second = collection_paused(), collection_paused()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()


@pytest.mark.parametrize("text", [LONG, f"{LONG} WHERE GROUP"], ids=["valid", "invalid"])
def test_parsing_long_text_leaves_no_cycles(text: str) -> None:
    def parsed() -> None:
        try:
            parse(text)
        except SyntaxError_:
            assert text != LONG

    parsed()  # modules and caches
    gc.collect()
    gc.disable()
    parsed()
    assert gc.collect() < 500  # the tree has 20,000 objects
