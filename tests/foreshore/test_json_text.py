"""Long JSON documents are decoded in pieces, with the same values and errors as short ones."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore import json_text
from foreshore.deep_trees import DeepThreads, allow_depth
from foreshore.errors import DatabaseError
from foreshore.json_text import canonical_json
from tests.effort import examples

DOCUMENTS = (
    '{"a": 1, "bb": [true, null, 1.50, "x\\n"], "b": {}, "a": 2}',
    '[[], {} , [1e2, -0], "a,b", ",", "]"]',
    '["x", 1, 2, 3, 4, "y", {"k": [1, 2]}, 5, 6, false]',
    '"\\ud800"',
    " 12 ",
    "[NaN]",
)
CHARACTERS = '{}[],:" 1e-.tfn\\u\t\n\x01'


def outcome(text: str) -> object:
    try:
        return canonical_json(text)
    except DatabaseError as error:
        return error.sqlstate, error.message, error.detail


@settings(max_examples=examples(2000))
@given(
    st.sampled_from(DOCUMENTS),
    st.lists(
        st.tuples(st.integers(0, 80), st.integers(0, 2), st.sampled_from(CHARACTERS)), max_size=3
    ),
    st.sampled_from([3, 8, 20, 4096]),
)
def test_long_document_is_decoded_like_a_short_one(
    document: str, edits: list[tuple[int, int, str]], piece: int
) -> None:
    for place, width, character in edits:
        document = document[:place] + character[:width] + document[place + 2 - width :]
    expected = outcome(document)
    kept = json_text.LONG, json_text.PIECE
    json_text.LONG, json_text.PIECE = 1, piece
    try:
        assert outcome(document) == expected
    finally:
        json_text.LONG, json_text.PIECE = kept


def test_depth_limit_is_the_same_for_long_documents() -> None:
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        for depth in (100, 300, 5000):
            short = opening * depth + "1" + closing * depth
            long = opening * depth + "1" + " " * (2 * json_text.LONG) + closing * depth
            assert outcome(long) == outcome(short)


def test_levels_of_a_deep_document_do_not_read_the_same_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []
    piece = json_text._piece

    def counted(text: str) -> tuple[Any, int] | None:
        sizes.append(len(text))
        return piece(text)

    monkeypatch.setattr(json_text, "_piece", counted)
    allow_depth()
    with DeepThreads(1) as threads:
        refused = threads.submit(outcome, "[" * 200_000 + "]" * 200_000).result()
    assert isinstance(refused, tuple)
    assert refused[0] == "54001"
    assert len(sizes) > 10_000
    assert sum(sizes) < 50 * len(sizes)


def test_members_of_a_large_object_are_in_order() -> None:
    keys = [f"{i * 7919 % 50_021:x}" for i in range(50_021)]
    document = canonical_json("{" + ",".join(f'"{key}":0' for key in keys) + "}")
    ordered = sorted(set(keys), key=lambda key: (len(key), key))
    assert document == "{" + ", ".join(f'"{key}": 0' for key in ordered) + "}"
