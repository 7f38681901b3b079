"""PostgreSQL's bounds on the width of things. Each function raises its error beyond one of them.

What was `defined` before there was a bound may be wider: a kept definition is planned again.
"""

from collections.abc import Sequence
from typing import Final

from foreshore.errors import DuplicateColumn, TooManyArguments, TooManyColumns

TARGETS: Final = 1664  # of a query, with what it sorts and groups by
COLUMNS: Final = 1600  # of a table, a view or a type
KEYS: Final = 32  # columns of an index or a foreign key
ARGUMENTS: Final = 100  # of a function


def check_targets(count: int, *, defined: bool) -> None:
    """Check the entries of a query's target list."""
    if count > TARGETS and not defined:
        raise TooManyColumns(f"target lists can have at most {TARGETS} entries")


def check_columns(names: Sequence[str], *, defined: bool) -> None:
    """Check the columns of a new table, view or type."""
    if len(names) > COLUMNS and not defined:
        raise TooManyColumns(f"tables can have at most {COLUMNS} columns")
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DuplicateColumn(f'column "{name}" specified more than once')
        seen.add(name)


def check_column_definitions(count: int, at: int, *, defined: bool) -> None:
    """Check the columns that a call in FROM is said to return."""
    if count > COLUMNS and not defined:
        raise TooManyColumns(
            f"column definition lists can have at most {COLUMNS} entries", position=at + 1
        )


def check_row(count: int, at: int, *, defined: bool) -> None:
    """Check the fields of a row that is written out."""
    if count > TARGETS and not defined:
        raise TooManyColumns(f"ROW expressions can have at most {TARGETS} entries", position=at + 1)


def check_index_columns(count: int, *, defined: bool) -> None:
    """Check the columns of an index, a primary key or a unique constraint."""
    if count > KEYS and not defined:
        raise TooManyColumns(f"cannot use more than {KEYS} columns in an index")


def check_foreign_key(count: int, *, defined: bool) -> None:
    """Check the columns of a foreign key."""
    if count > KEYS and not defined:
        raise TooManyColumns(f"cannot have more than {KEYS} keys in a foreign key")


def check_arguments(count: int, at: int, *, defined: bool) -> None:
    """Check the arguments of a call."""
    if count > ARGUMENTS and not defined:
        raise TooManyArguments(
            f"cannot pass more than {ARGUMENTS} arguments to a function", position=at + 1
        )


def check_parameters(count: int, *, defined: bool) -> None:
    """Check the parameters of a new function."""
    if count > ARGUMENTS and not defined:
        raise TooManyArguments(f"functions cannot have more than {ARGUMENTS} arguments")
