"""The rows that a statement will stage."""

from dataclasses import dataclass

from foreshore.adapter.plans.target import Target
from foreshore.table_rows import TableRows


@dataclass(frozen=True, slots=True)
class Staging:
    """Rows to stage, maybe later; see `stage_rows`."""

    target: Target
    deleted: TableRows | None
    inserted: TableRows | None
    updated: tuple[TableRows, TableRows] | None = None  # old and new rows, in one order
