"""Pages of the documentation have lines of at most 120 columns, but for tables of the reference."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
COLUMNS = 120
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_has_no_line_over_120_columns(page: Path) -> None:
    lines = enumerate(page.read_text().splitlines(), 1)
    free = "|" if page.parent.name == "reference" else "||"
    long = [n for n, line in lines if len(line) > COLUMNS and not line.startswith(free)]
    assert long == []
