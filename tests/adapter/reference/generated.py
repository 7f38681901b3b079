"""Tables of reference pages that are generated: what stands between their markers."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"
BEGIN, END = "<!-- generated: {} -->", "<!-- end of {} -->"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a table's lines."""
    lines = [header, ["---"] * len(header), *rows]
    return [
        f"| {' | '.join(each.replace('|', chr(92) + '|') for each in line)} |" for line in lines
    ]


def check_generated(page: str, part: str, lines: Sequence[str]) -> None:
    """Assert that a part of a page has these lines; `GOLDEN=rewrite` writes them."""
    file = REFERENCE / page
    before, rest = file.read_text().split(BEGIN.format(part) + "\n")
    found, after = rest.split(END.format(part))
    if os.environ.get("GOLDEN") == "rewrite":
        marked = [before + BEGIN.format(part), *lines, END.format(part) + after]
        file.write_text("\n".join(marked))
    else:
        assert found.splitlines() == [*lines]
