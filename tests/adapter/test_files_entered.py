"""The number of the project's files that a statement enters."""

import asyncio
from pathlib import Path

from tests.files_entered import INSERT, SELECT, entered

# Of the adapter, as many as today. They may only shrink.
MOST_BY_INSERT, MOST_BY_SELECT = 14, 16


def test_statement_enters_few_files_of_the_adapter(tmp_path: Path) -> None:
    by_insert, by_select = asyncio.run(entered([INSERT, SELECT], tmp_path))
    assert "adapter/write/insert.py" in by_insert
    assert "adapter/read/select.py" in by_select
    assert in_adapter(by_insert) <= MOST_BY_INSERT, sorted(by_insert)
    assert in_adapter(by_select) <= MOST_BY_SELECT, sorted(by_select)


def in_adapter(files: frozenset[str]) -> int:
    return sum(file.startswith("adapter/") for file in files)
