"""What a transaction has written and not committed: many rows in a file, few in memory.

Columns of many bytes are mapped from a file of the transaction. Their keys, and rows that come in
small parts, are in memory, of which a transaction may keep as much as a setting says.
"""

from foreshore import blocking
from foreshore.adapter.statement.context import StatementContext
from foreshore.errors import OutOfMemory
from foreshore.spill import MappedFile
from foreshore.table_rows import TableRows

MAPPED_BYTES = 1 << 20  # of one part
ROW_BYTES = 100  # of a tuple, of a place in an index
DATUM_BYTES = 32


async def kept_in_transaction(
    context: StatementContext, rows: TableRows, keys: int
) -> tuple[TableRows, int]:
    """Return rows as the transaction keeps them, in a table with so many unique keys.

    Returns also about how many bytes of memory they take. Raises OutOfMemory if the transaction may
    not keep so much.
    """
    size = rows.num_rows * ROW_BYTES * keys
    if rows.are_tuples:
        size += rows.num_rows * (ROW_BYTES + DATUM_BYTES * len(rows.desc.columns))
        for row in rows.tuples:
            for datum in row:
                if isinstance(datum, str | bytes):
                    size += len(datum)
    elif (columns := int(rows.table.nbytes)) < MAPPED_BYTES:
        size += columns
    else:
        rows = await blocking.run(None, _mapped, context, rows)
    most = context.variables.settings.most_written
    if most and context.transaction.staged.kept + size > most:
        text = context.variables["max_transaction_size"]
        raise OutOfMemory(
            f"The transaction keeps in memory what it has written: more than {text}.",
            hint="Commit more often, write more rows by each statement, or raise"
            " max_transaction_size.",
        )
    return rows, size


def _mapped(context: StatementContext, rows: TableRows) -> TableRows:
    """Return the rows as they are in the transaction's file."""
    transaction, scratch = context.transaction, context.tables.storage.scratch
    if transaction.file is None:
        transaction.file = MappedFile(scratch)
    return TableRows.of_table(rows.desc, transaction.file.mapped(rows.table))
