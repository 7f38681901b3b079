"""Edits of SQL text."""

import pytest

from foreshore.sql.rewrite.text_edits import Edit, apply_edits


@pytest.mark.parametrize(
    ("text", "edits", "edited"),
    [
        ('FROM "t"AS x', [(5, 8, "t")], "FROM t AS x"),
        ('NOT"c".a', [(3, 8, "a")], "NOT a"),
        ('NOT"c".a', [(3, 7, "")], "NOT a"),
        ('TABLE"t"', [(0, 5, "SELECT * FROM"), (5, 8, "t")], "SELECT * FROM t"),
        ('1"t"$1', [(1, 4, "t")], "1 t $1"),
        ('é"t"é', [(1, 4, "t")], "é t é"),
        ('t"x"', [(0, 1, '"T"')], '"T" "x"'),
        ('("t",a)', [(1, 4, "u")], "(u,a)"),
        ("a.b.c", [(4, 5, "d"), (0, 2, "")], "b.d"),
    ],
)
def test_edit_beside_word_inserts_space(text: str, edits: list[Edit], edited: str) -> None:
    assert apply_edits(text, edits) == edited


def test_edits_outside_range_are_ignored() -> None:
    assert apply_edits("a b c", [(0, 1, "x"), (2, 3, "y"), (4, 5, "z")], 2, 4) == "y "
