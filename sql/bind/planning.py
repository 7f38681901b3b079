"""State of planning one statement: the catalog, the parameters and the dependencies found."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from foreshore.errors import (
    AmbiguousParameter,
    DatabaseError,
    IndeterminateDatatype,
    UndefinedParameter,
)
from foreshore.expr.functions.registry import Context
from foreshore.expr.ir import Parameter, Relation
from foreshore.ids import GlobalId
from foreshore.policy import Securing
from foreshore.sql.bind.needs import Needs
from foreshore.sql.bind.order import UNORDERED, RowOrder
from foreshore.sql.catalog_reader import CatalogReader
from foreshore.sql.rewrite.session_zone import SessionZone
from foreshore.types import (
    NUMBER,
    NUMERIC,
    UNKNOWN,
    ColumnType,
    ResultOrigin,
    SqlType,
    without_modifiers,
)

if TYPE_CHECKING:
    from foreshore.sql import ast
    from foreshore.sql.bind.binder import Binding
    from foreshore.sql.plan import Changes, InitPlan

MAX_PARAMETERS = 65535
_NUMERICS = (NUMBER, NUMERIC)  # a parameter that is one is cast to the other


class LiteralDecides(Exception):
    """No parameter can stand for a literal, as its value decides what the text means."""


class ParameterTypes:
    """The types of a statement's parameters: declared, or inferred from their use.

    An undeclared parameter has unknown type until an expression requires a type; from then on it
    has that type everywhere.
    """

    def __init__(self, declared: Sequence[SqlType | None] = ()) -> None:
        self._types: list[SqlType | None] = [
            None if type is None or type == UNKNOWN else type for type in declared
        ]

    def use(self, number: int, at: int) -> Parameter:
        """Return `$number` with its type as far as known."""
        if not 1 <= number <= MAX_PARAMETERS:
            raise UndefinedParameter(f"there is no parameter ${number}", position=at + 1)
        while len(self._types) < number:
            self._types.append(None)
        return Parameter(number, self._types[number - 1] or UNKNOWN)

    def learn(self, number: int, type: SqlType, at: int) -> Parameter:
        """Return `$number`, used where `type` is required, as a `type`.

        Raises AmbiguousParameter if another use requires another type.
        """
        bare = without_modifiers(type)
        known = self._types[number - 1]
        if known in _NUMERICS and bare in _NUMERICS:
            return Parameter(number, known)
        if known is not None and known != bare:
            raise AmbiguousParameter(
                f"inconsistent types deduced for parameter ${number}",
                detail=f"{known} versus {bare}",
                position=at + 1,
            )
        self._types[number - 1] = bare
        return Parameter(number, bare)

    def learn_all(self, numbers: Sequence[int], type: SqlType) -> bool:
        """Let all of `numbers` be a `type`; False, and nothing is learnt, if one is not."""
        if not numbers or min(numbers) < 1 or max(numbers) > MAX_PARAMETERS:
            return False
        types, bare = self._types, without_modifiers(type)
        types.extend([None] * (max(numbers) - len(types)))
        if any(types[number - 1] not in (None, bare) for number in set(numbers)):
            return False
        for number in numbers:
            types[number - 1] = bare
        return True

    def resolved(self) -> tuple[SqlType, ...]:
        """Return the types of all parameters; raises IndeterminateDatatype if one is unknown."""
        for i, type in enumerate(self._types, 1):
            if type is None:
                raise IndeterminateDatatype(f"could not determine data type of parameter ${i}")
        return tuple(type for type in self._types if type is not None)

    def read_as(
        self, planning: "Planning", parameter: Parameter, target: SqlType, context: Context, at: int
    ) -> Parameter | None:
        """Return the parameter that has the value as a `target`; None if a call converts it."""
        return None

    def list_of(self, planning: "Planning", parameter: Parameter) -> Parameter:
        """Return the list that a parameter is the first value of; raises LiteralDecides."""
        raise LiteralDecides

    def known(self, number: int) -> SqlType:
        """Return the type of `$number`, unknown if not yet inferred."""
        return self._types[number - 1] or UNKNOWN

    @property
    def count(self) -> int:
        """Return the number of parameters."""
        return len(self._types)


Reference = tuple[GlobalId, int]  # to a table or view, at an offset of the text


@dataclass(frozen=True, slots=True)
class CommonTable:
    """A bound query of WITH, which `LocalGet` refers to."""

    number: int
    names: tuple[str, ...]
    columns: tuple[ColumnType, ...]
    order: RowOrder = UNORDERED
    returns: bool = True  # no, if it changes rows without RETURNING
    origins: tuple[ResultOrigin, ...] = ()


class BindsChange(Protocol):
    """Binds a query of WITH that changes rows, which is a statement of its own."""

    def __call__(
        self,
        planning: "Planning",
        common: "ast.ChangingTable",
        before: "tuple[ast.CommonTable | ast.ChangingTable, ...]",
        names: dict[str, CommonTable],
    ) -> tuple[int, Relation]:
        """Add the query to `names`; return its number and its rows.

        `before` are the queries of WITH that it may read.
        """
        ...


@dataclass
class Planning:
    """The state of planning one statement."""

    catalog: CatalogReader
    text: str  # the whole text, in which offsets count
    binding: "Binding" = field(kw_only=True)  # binds expressions and queries within others
    parameters: ParameterTypes = field(default_factory=ParameterTypes)
    zone: SessionZone = field(default_factory=SessionZone)
    depends_on: set[GlobalId] = field(default_factory=set)
    needs: Needs = field(default_factory=Needs)  # the rights that the statement needs
    # (start, end, name) for each name that the catalog keeps in qualified form
    qualified: list[tuple[int, int, str]] = field(default_factory=list)
    planned_numerics: bool = False  # a numeric without a scale has a planned one, as it once had
    let_count: int = 0
    call_count: int = 0  # calls with side effects so far, to number them
    query_count: int = 0  # queries so far, to number their aggregates
    defined: bool = False  # the statement is the kept definition of an item whose sequences exist
    in_view: bool = False  # a definition, which has no parameters
    defining: bool = False  # expressions are bound to be kept, without row-level security
    as_role: str | None = None  # the id of the role whose policies count, None: the current one
    names_views: bool = False  # a view's own text is bound, in which views stand for themselves
    securing: Securing = field(default_factory=Securing)
    keeps_text: bool = False  # and its text is kept, with the names in `qualified` replaced
    changes: "list[Changes] | None" = None  # of CHANGES(...), where allowed
    maintained: bool = False  # the result is maintained, so it must not depend on the session
    inlining: int = 0  # depth of nested SQL-bodied functions
    in_function: str = ""  # the user's function whose body is being bound: `$1` is its parameter
    function_depth: int = 0
    function_calls: int = 0  # calls of users' functions that were replaced by their bodies
    locking: frozenset[Reference] = frozenset()  # whose rows the query being bound locks
    locked: "ast.Query | None" = None  # the query whose FOR UPDATE is being bound
    # Subqueries with FOR UPDATE by the identity of their syntax, where allowed.
    init_plans: "dict[int, InitPlan] | None" = None
    changing: frozenset[int] = frozenset()  # the identities of queries of WITH that may change rows
    bind_change: BindsChange | None = None  # by which these are bound: changes stand above queries
    written: "dict[int, InitPlan]" = field(default_factory=dict)  # their plans, by identity
    common_tables: list[dict[str, "CommonTable"]] = field(default_factory=list)  # innermost last

    @property
    def keeps_digits(self) -> bool:
        """Return whether a numeric without a scale keeps the digits of each value."""
        return self.catalog.keeps_digits and not self.planned_numerics

    @contextmanager
    def apart_from_locks(self) -> Iterator[None]:
        """Bind a query whose rows the query around it does not lock."""
        before, self.locking = self.locking, frozenset()
        try:
            yield
        finally:
            self.locking = before

    def new_let(self) -> int:
        """Return a new number for a Let."""
        self.let_count += 1
        return self.let_count

    def new_call(self) -> int:
        """Return a new number for a call with side effects."""
        self.call_count += 1
        return self.call_count

    def new_query(self) -> int:
        """Return a new number for the aggregates of a query."""
        self.query_count += 1
        return self.query_count

    def common_table(self, name: str) -> CommonTable | None:
        """Return the query of WITH that `name` refers to, if any."""
        for tables in reversed(self.common_tables):
            if name in tables:
                return tables[name]
        return None


@contextmanager
def located(at: int) -> Iterator[None]:
    """Add the position of offset `at` to errors that have none."""
    try:
        yield
    except DatabaseError as error:
        if error.position is None:
            error.position = at + 1
        raise
