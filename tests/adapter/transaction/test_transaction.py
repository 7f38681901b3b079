"""The transaction as a value: few fields, and savepoints that are references."""

from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any, get_args, get_type_hints

from foreshore.adapter.transaction.transaction import Transaction, Written
from foreshore.ids import GlobalId
from foreshore.table_rows import TableRows
from foreshore.types import INT4, ColumnType, RelationDesc

DESC = RelationDesc(("k",), (ColumnType(INT4),))
TABLE = GlobalId("u1")


def test_transaction_has_at_most_twelve_fields() -> None:
    names = [*leaves(Transaction)]
    assert len(names) <= 12, names


def leaves(type: Any) -> Iterator[str]:
    """Yield the fields of a dataclass or struct, those of nested dataclasses in their place."""
    for name, hint in get_type_hints(type).items():
        nested = [inner for inner in parts_of(hint) if is_ours(inner)]
        for inner in nested:
            yield from leaves(inner)
        if not nested:
            yield f"{type.__name__}.{name}"


def parts_of(hint: Any) -> Iterator[Any]:
    yield hint
    for inner in get_args(hint):
        yield from parts_of(inner)


def is_ours(type: Any) -> bool:
    return is_dataclass(type) and type.__module__.startswith("foreshore.adapter.")


def test_savepoint_keeps_what_was_staged() -> None:
    transaction = Transaction(0, 0)
    transaction.write(TABLE, written(1))
    savepoint = transaction.staged.fork()
    transaction.write(TABLE, written(2))
    assert [*keys(transaction)] == [1, 2]
    transaction.staged = savepoint.fork()
    assert [*keys(transaction)] == [1]
    transaction.write(TABLE, written(3))
    assert [*keys(transaction)] == [1, 3]
    transaction.staged = savepoint.fork()
    assert [*keys(transaction)] == [1]
    transaction.unwrite(TABLE)
    assert not transaction.has_effects


def written(key: int) -> Written:
    return Written(TableRows(DESC, [(key,)]), {})


def keys(transaction: Transaction) -> Iterator[int]:
    for part in transaction.rows(TABLE):
        yield from part.rows.table.column(0).to_pylist()
