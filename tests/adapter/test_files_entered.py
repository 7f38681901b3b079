"""The number of the project's files that a statement enters."""

import asyncio
from pathlib import Path

from tests.files_entered import INSERT, SELECT, entered

# Of all layers, and of the adapter; the last ones that were added are `foreshore/layered_map.py`,
# `catalog/groups.py`, `foreshore/by_identity.py`, `foreshore/statement_history.py`,
# `foreshore/latencies.py`, `adapter/waits/recency.py`, `foreshore/tracing.py`, and for what a
# transaction has in memory `adapter/transaction/uncommitted.py` and `foreshore/sizes.py`.
MOST = {INSERT: (49, 18), SELECT: (46, 18)}


def _are_few(sql: str, files: frozenset[str]) -> bool:
    most, most_of_adapter = MOST[sql]
    of_adapter = sum(file.startswith("adapter/") for file in files)
    return len(files) <= most and of_adapter <= most_of_adapter


def test_statement_enters_few_files(tmp_path: Path) -> None:
    by_insert, by_select = asyncio.run(entered([INSERT, SELECT], tmp_path, _are_few))
    assert "adapter/write/insert.py" in by_insert
    assert "adapter/read/select.py" in by_select
    for sql, files in ((INSERT, by_insert), (SELECT, by_select)):
        assert _are_few(sql, files), (len(files), sorted(files))
