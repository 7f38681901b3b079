"""Messages of pgoutput become updates of the relations that follow a table."""

import struct

from foreshore.ids import GlobalId
from foreshore.storage.ingest.postgres.changes import Gatherer
from foreshore.storage.ingest.postgres.details import Details
from foreshore.storage.ingest.postgres.layout import TableLayout
from foreshore.types import INT4, ColumnType, RelationDesc

NUMBER = 16_400  # of the table in messages
INT4_OID = 23


def described(*columns: str) -> bytes:
    told = b"".join(
        b"\0" + each.encode() + b"\0" + struct.pack(">Ii", INT4_OID, -1) for each in columns
    )
    return b"R" + struct.pack(">I", NUMBER) + b"up\0b\0f" + struct.pack(">H", len(columns)) + told


def transaction(commit: int, *messages: bytes) -> list[bytes]:
    begin = b"B" + struct.pack(">QQI", commit, 0, 1)
    return [begin, *messages, b"C\0" + struct.pack(">QQQ", commit, commit + 1, 0)]


def inserted(*values: int) -> bytes:
    texts = [str(each).encode() for each in values]
    row = b"".join(b"t" + struct.pack(">i", len(each)) + each for each in texts)
    return b"I" + struct.pack(">I", NUMBER) + b"N" + struct.pack(">H", len(values)) + row


def layout(reference: str) -> TableLayout:
    columns = (ColumnType(INT4), ColumnType(INT4))
    details = Details(NUMBER, (("id", INT4_OID, -1), ("v", INT4_OID, -1)), table="up.b")
    return TableLayout(reference, GlobalId(reference), RelationDesc(("id", "v"), columns), details)


def test_relation_that_joins_follows_the_table_as_it_was_described_last() -> None:
    """It is described before and after the place of joining, with columns in other places."""
    early, late = layout("up.b"), layout("up.b as late")
    gatherer = Gatherer([early, late], 1, since={late.reference: 100})
    messages = [
        *transaction(50, described("x", "id", "v"), inserted(9, 1, 10)),
        *transaction(150, described("id", "v", "y"), inserted(2, 20, 8)),
    ]
    for each in messages:
        gatherer.message(each)
    changes = gatherer.take()
    found = {
        reference: list(zip(*(rows.column(i).to_pylist() for i in (0, 1)), strict=True))
        for reference, rows in changes.rows.items()
    }
    assert found == {early.reference: [(1, 10), (2, 20)], late.reference: [(2, 20)]}
    assert not changes.stopped
