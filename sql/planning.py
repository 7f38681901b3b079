"""What planning one statement keeps: the catalog it asks, its parameters, what it depends on."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from foreshore.errors import (
    AmbiguousParameter,
    DatabaseError,
    IndeterminateDatatype,
    UndefinedParameter,
)
from foreshore.expr.ir import Parameter
from foreshore.ids import GlobalId
from foreshore.sql.bind.order import UNORDERED, RowOrder
from foreshore.sql.catalog_reader import CatalogReader
from foreshore.sql.rewrite.session_zone import SessionZone
from foreshore.types import NUMERIC, UNKNOWN, ColumnType, SqlType, array_of

if TYPE_CHECKING:
    from foreshore.sql import ast
    from foreshore.sql.plan import Changes, InitPlan

MAX_PARAMETERS = 65535


class ParameterTypes:
    """The types of a statement's parameters: declared, or learned from where they stand.

    A parameter whose type is not declared is of unknown type until something asks for a type of it;
    that type it has from then on, everywhere.
    """

    def __init__(self, declared: Sequence[SqlType | None] = ()) -> None:
        self._types: list[SqlType | None] = [
            None if type is None or type == UNKNOWN else type for type in declared
        ]

    def use(self, number: int, at: int) -> Parameter:
        """Return `$number` with what is known of its type."""
        if not 1 <= number <= MAX_PARAMETERS:
            raise UndefinedParameter(f"there is no parameter ${number}", position=at + 1)
        while len(self._types) < number:
            self._types.append(None)
        return Parameter(number, self._types[number - 1] or UNKNOWN)

    def learn(self, number: int, type: SqlType, at: int) -> Parameter:
        """Return `$number`, which stands where its type was unknown, as a `type`.

        Raises AmbiguousParameter if another place has given it another type since.
        """
        bare = without_modifiers(type)
        known = self._types[number - 1]
        if known is not None and known != bare:
            raise AmbiguousParameter(
                f"inconsistent types deduced for parameter ${number}",
                detail=f"{known} versus {bare}",
                position=at + 1,
            )
        self._types[number - 1] = bare
        return Parameter(number, bare)

    def resolved(self) -> tuple[SqlType, ...]:
        """Return the types of all parameters; raises IndeterminateDatatype if one is not known."""
        for i, type in enumerate(self._types, 1):
            if type is None:
                raise IndeterminateDatatype(f"could not determine data type of parameter ${i}")
        return tuple(type for type in self._types if type is not None)

    def known(self, number: int) -> SqlType:
        """Return the type of `$number`, unknown if it is not known."""
        return self._types[number - 1] or UNKNOWN

    @property
    def count(self) -> int:
        """How many parameters there are."""
        return len(self._types)


def without_modifiers(type: SqlType) -> SqlType:
    """Return the type as a parameter of it has it: without length, precision and scale."""
    if type.element is not None:
        return array_of(without_modifiers(type.element))
    return NUMERIC if type.name == "numeric" else SqlType(type.name)


@dataclass(frozen=True, slots=True)
class CommonTable:
    """A query of WITH, once bound: what `LocalGet` refers to."""

    number: int
    names: tuple[str, ...]
    columns: tuple[ColumnType, ...]
    order: RowOrder = UNORDERED


@dataclass
class Planning:
    """One statement being planned."""

    catalog: CatalogReader
    text: str  # all of the text that offsets count in
    parameters: ParameterTypes = field(default_factory=ParameterTypes)
    zone: SessionZone = field(default_factory=SessionZone)
    depends_on: set[GlobalId] = field(default_factory=set)
    # (start, end, what) for each name that is written qualified in the catalog
    qualified: list[tuple[int, int, str]] = field(default_factory=list)
    lets: int = 0
    calls: int = 0  # that act, and are told apart
    queries: int = 0  # that may have aggregates
    defined: bool = False  # a statement that is kept: what it makes beside itself is there
    in_view: bool = False  # a definition: no parameters
    keeps_text: bool = False  # and its text is kept, with the names in `qualified` written out
    changes: "list[Changes] | None" = None  # of CHANGES(...), where that may stand
    maintained: bool = False  # and nothing that depends on the session
    inlining: int = 0  # how many SQL-bodied functions deep
    locked: "ast.Query | None" = None  # the one whose FOR UPDATE is taken
    # Of subqueries with FOR UPDATE, by the identity of their syntax, where those may stand.
    init_plans: "dict[int, InitPlan] | None" = None
    common_tables: list[dict[str, "CommonTable"]] = field(default_factory=list)  # innermost last

    def new_let(self) -> int:
        """Return a number for a Let that no other in this plan has."""
        self.lets += 1
        return self.lets

    def new_call(self) -> int:
        """Return a number for a call that acts which no other in this plan has."""
        self.calls += 1
        return self.calls

    def new_query(self) -> int:
        """Return a number for the aggregates of a query that no other in this plan has."""
        self.queries += 1
        return self.queries

    def common_table(self, name: str) -> CommonTable | None:
        """Return the query of WITH that `name` means, if any does."""
        for tables in reversed(self.common_tables):
            if name in tables:
                return tables[name]
        return None


@contextmanager
def located(at: int) -> Iterator[None]:
    """Give errors that do not say where they are the position of the offset `at`."""
    try:
        yield
    except DatabaseError as error:
        if error.position is None:
            error.position = at + 1
        raise
