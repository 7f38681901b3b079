"""The number of the project's files that a statement enters."""

import asyncio
from pathlib import Path

from tests.files_entered import INSERT, SELECT, entered

# Of all layers, and of the adapter; the last ones that were added are `foreshore/layered_map.py`,
# `catalog/groups.py`, `foreshore/by_identity.py`, `foreshore/statement_history.py`,
# `foreshore/latencies.py`, `adapter/waits/recency.py` and `foreshore/tracing.py`.
MOST_BY_INSERT, MOST_BY_SELECT = (47, 17), (46, 18)


def test_statement_enters_few_files(tmp_path: Path) -> None:
    by_insert, by_select = asyncio.run(entered([INSERT, SELECT], tmp_path))
    assert "adapter/write/insert.py" in by_insert
    assert "adapter/read/select.py" in by_select
    for files, (most, most_of_adapter) in (
        (by_insert, MOST_BY_INSERT),
        (by_select, MOST_BY_SELECT),
    ):
        assert len(files) <= most, sorted(files)
        assert sum(file.startswith("adapter/") for file in files) <= most_of_adapter, sorted(files)
