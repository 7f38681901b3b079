"""`help(foreshore)` begins with what programs use."""

import pydoc

import foreshore


def test_help_shows_the_public_names_before_all_else() -> None:
    shown = pydoc.plain(pydoc.render_doc(foreshore))
    first = shown[: shown.index("PACKAGE CONTENTS")]
    assert "foreshore - A SQL database in Python" in first
    for name in foreshore.__all__:
        assert name in first.replace(",", " ").split(), name
    assert "internal" in first
