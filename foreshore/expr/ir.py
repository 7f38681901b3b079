"""The intermediate representation: typed scalar and relational expressions.

Relational expressions denote multisets of rows with signed multiplicities; columns have positions,
not names. A scalar's `Column(i)` is the i-th column of the current row: of the input for Map,
Filter, FlatMap and Reduce, of all concatenated inputs for Join. Map appends its scalars, and each
may use earlier ones.

The nodes are immutable, hashable and can be sent between processes (msgspec). There are two forms.
The binder makes the *bound* form, which may contain `OuterColumn`, `Exists`, `ScalarSubquery`,
`AnySubquery` and `JoinOn`. Everything else works on the *lowered* form, which contains none of
these (`check_lowered`).

Errors: a scalar may fail for a row (a `Call` of a fallible function). `split_errors` turns a plan
into two that cannot fail, the rows and the errors: in them a failing call's value is NULL and
`ErrorOf(e)` is the error's text or NULL. Case, And and Or guard: an error in a branch not taken, or
beside a FALSE in And or a TRUE in Or, does not count. The predicates of a Filter are one
conjunction in this respect. A failing row is dropped where it fails, and counts as one error with
the row's multiplicity (its absolute value): the first of the node's errors in the order of its
scalars.
"""

import math
from itertools import chain
from typing import Any, Self, TypeAlias
from typing import Literal as OneOf

import msgspec

from foreshore.ids import GlobalId
from foreshore.types import BOOL, INT8, ColumnType, SqlType, Watermark, array_of


class Node(msgspec.Struct, frozen=True, tag=True, tag_field="node", cache_hash=True, gc=False):
    """A node of an expression; nodes with equal contents are equal."""

    def __deepcopy__(self, memo: object) -> Self:
        """Return itself, as it is immutable."""
        return self


_ALWAYS_PLAIN = frozenset((bool, int, str, bytes, type(None)))  # no lists and no NaN among these


def _is_plain(datum: Any) -> bool:
    return not isinstance(datum, list | tuple) and datum == datum


def _plain(value: Any) -> Any:
    """Return `value` with lists made tuples, since decoding yields lists where a type is Any.

    All NaNs become one object, because NaN equals only itself by identity.
    """
    if isinstance(value, list | tuple):
        if _ALWAYS_PLAIN.issuperset(map(type, value)):  # a long array takes no Python per element
            return tuple(value)
        return tuple(map(_plain, value))
    return value if value == value else math.nan


def _same_zeros(a: Any, b: Any) -> bool:
    """Whether data that Python considers equal have the same signs of zero."""
    if a is b:
        return True
    if isinstance(a, tuple):
        return _ALWAYS_PLAIN.issuperset(map(type, a)) or all(map(_same_zeros, a, b))
    return not isinstance(a, float) or math.copysign(1, a) == math.copysign(1, b)


# --- scalars -------------------------------------------------------------------------------


class Column(Node, frozen=True, cache_hash=True):
    """The `index`-th column of the current row, from 0."""

    index: int
    type: SqlType
    nullable: bool = True


class Literal(Node, frozen=True, cache_hash=True):
    """A constant; `value` is a datum (see `foreshore.types`)."""

    value: Any
    type: SqlType

    def __post_init__(self) -> None:
        if not _is_plain(self.value):
            msgspec.structs.force_setattr(self, "value", _plain(self.value))

    def __eq__(self, other: object) -> bool:
        """Whether `other` is the same constant: 0.0 differs from -0.0."""
        if not isinstance(other, Literal) or Node.__eq__(self, other) is not True:
            return False
        return _same_zeros(self.value, other.value)

    __hash__ = Node.__hash__


class Parameter(Node, frozen=True, cache_hash=True):
    """`$number` of a prepared statement, from 1; replaced by a Literal at execution."""

    number: int
    type: SqlType
    nullable: bool = True


class Arguments(Node, frozen=True, cache_hash=True):
    """The array of the parameters `numbers`, from 1; replaced by a Literal at execution.

    A long list of parameters in a statement is one node.
    """

    numbers: tuple[int, ...]
    type: SqlType  # of the array


class Environment(Node, frozen=True, cache_hash=True):
    """A value that the adapter knows at execution and replaces by a Literal.

    `name` is one of now, mz_now, current_user, session_user, current_database, current_schema,
    current_schemas, current_setting, pg_backend_pid, version. Refused in maintained views.
    """

    name: str
    type: SqlType


class Call(Node, frozen=True, cache_hash=True):
    """A scalar function of the registry, by its key, over arguments of exactly its types.

    A call with side effects, such as nextval, has a `number` unique in its statement, so that it
    differs from other calls with the same text.
    """

    function: str
    args: tuple["Scalar", ...]
    type: SqlType
    number: int = 0


class And(Node, frozen=True, cache_hash=True):
    """Three-valued conjunction; an error counts only if no operand is FALSE."""

    args: tuple["Scalar", ...]


class Or(Node, frozen=True, cache_hash=True):
    """Three-valued disjunction; an error counts only if no operand is TRUE."""

    args: tuple["Scalar", ...]


class Case(Node, frozen=True, cache_hash=True):
    """The result of the first branch whose condition is TRUE, else `otherwise`."""

    branches: tuple[tuple["Scalar", "Scalar"], ...]
    otherwise: "Scalar"
    type: SqlType


class ErrorOf(Node, frozen=True, cache_hash=True):
    """The error of evaluating `expr` for this row (see `foreshore.errors.data_error`), or NULL."""

    expr: "Scalar"


class Once(Node, frozen=True, cache_hash=True):
    """The value of `expr`, which has no columns, computed once when a statement is bound.

    It fails for no row: an error is the statement's.
    """

    expr: "Scalar"
    type: SqlType


class OuterColumn(Node, frozen=True, cache_hash=True):
    """Bound form only: a column of the row `level` (from 1) subquery or LATERAL levels outside."""

    level: int
    index: int
    type: SqlType
    nullable: bool = True


class Exists(Node, frozen=True, cache_hash=True):
    """Bound form only: whether `relation` has a row."""

    relation: "Relation"


class ScalarSubquery(Node, frozen=True, cache_hash=True):
    """Bound form only: the single column of the single row of `relation`; NULL without a row.

    More than one row is the error 21000 `more than one row returned by a subquery used as an
    expression`.
    """

    relation: "Relation"
    type: SqlType


class AnySubquery(Node, frozen=True, cache_hash=True):
    """Bound form only: three-valued OR of `predicate` over the rows of `relation`.

    In `predicate`, `Column(i)` is the i-th column of `relation`, and the row containing the
    subquery is at `OuterColumn(level=1)`. IN uses equality; ALL is a double negation.
    """

    predicate: "Scalar"
    relation: "Relation"


Scalar: TypeAlias = (
    Column
    | Literal
    | Parameter
    | Arguments
    | Environment
    | Call
    | And
    | Or
    | Case
    | ErrorOf
    | Once
    | OuterColumn
    | Exists
    | ScalarSubquery
    | AnySubquery
)

TRUE = Literal(True, BOOL)
FALSE = Literal(False, BOOL)


class OrderKey(Node, frozen=True, cache_hash=True):
    """One key of an ordering. PostgreSQL's default is nulls last ascending, first descending."""

    expr: Scalar
    descending: bool = False
    nulls_first: bool = False


class Aggregate(Node, frozen=True, cache_hash=True):
    """A core aggregate over the rows of a group; never fails.

    `function` is one of
      count      number of rows (no args), or of those without a NULL in the args: int8, never NULL
      sum        of an integer or numeric argument, exactly: numeric of the argument's scale
      sum_float  of a float4/float8, correctly rounded once, whatever the order: float8
      comoment_float  of float8 pairs (x, y), the sum of (x - mean(x)) * (y - mean(y)), of the exact
                 values and rounded once: float8, NaN if one is not finite, infinite if too large
      min, max   by the type's SQL order
      array_agg  all values, NULLs too, ordered by `order_by`, then the same way everywhere
      string_agg (value, delimiter), NULL values left out; order as array_agg
    What SQL knows beyond these (avg, bool_and, sum of int4 as int8, ...) the binder composes of
    them and scalar functions. Rows for which `filter` is not TRUE do not count.
    """

    function: OneOf[
        "count", "sum", "sum_float", "comoment_float", "min", "max", "array_agg", "string_agg"
    ]
    args: tuple[Scalar, ...]
    type: SqlType
    distinct: bool = False
    filter: Scalar | None = None
    order_by: tuple[OrderKey, ...] = ()


class FrameBound(Node, frozen=True, cache_hash=True):
    """An end of a frame: the current row, or at the distance `offset`, which uses no column.

    `current` is the current row with `rows`, else its peers.
    """

    side: OneOf["preceding", "current", "following"]
    offset: Scalar | None = None


class Frame(Node, frozen=True, cache_hash=True):
    """The rows of its partition over which a window function is computed for a row.

    A start or end of None is the partition's. Offsets count rows, groups of peers (rows equal in
    the order's keys), or with `range` are a distance from the value of the order's only key.
    """

    unit: OneOf["rows", "range", "groups"] = "range"
    start: FrameBound | None = None
    end: FrameBound | None = FrameBound("current")
    exclude: OneOf["nothing", "current row", "group", "ties"] = "nothing"


class WindowFunction(Node, frozen=True, cache_hash=True):
    """A function of a row's place among the rows of its partition; never fails.

    `function` is a core aggregate, over the rows of the frame for which `filter` is TRUE, where
    array_agg and string_agg keep the order of the rows, or one of
      row_number      the number of the row in its partition, from 1: int8
      rank            one more than the number of rows before the first peer: int8
      dense_rank      the number of the group of peers, from 1: int8
      lag, lead       (value, rows, default): the value of the row as many rows before or after;
                      the default if there is no such row, NULL if `rows` is NULL
      nth_value       (value, n): the value of the n-th row of the frame, or NULL
      last_value      (value): the value of the last row of the frame, or NULL
      last_known      (value): the last value that is not NULL, from the first row to this one
    What SQL knows beyond these (ntile, percent_rank, ...) the binder composes.
    """

    function: OneOf[
        "row_number", "rank", "dense_rank", "lag", "lead", "nth_value", "last_value",
        "last_known", "count", "sum", "sum_float", "comoment_float", "min", "max", "array_agg",
        "string_agg",
    ]  # fmt: skip
    args: tuple[Scalar, ...]
    type: SqlType
    frame: Frame = Frame()
    filter: Scalar | None = None

    @property
    def nullable(self) -> bool:
        """Whether the value may be NULL."""
        return self.function not in ("row_number", "rank", "dense_rank", "count")


# --- relations -----------------------------------------------------------------------------


class Constant(Node, frozen=True, cache_hash=True):
    """Rows known from the statement, each with its multiplicity."""

    rows: tuple[tuple[tuple[Any, ...], int], ...]
    columns: tuple[ColumnType, ...]

    def __post_init__(self) -> None:
        types = set(map(type, chain.from_iterable([row for row, _ in self.rows])))
        if types <= _ALWAYS_PLAIN:
            return
        if not all(_is_plain(datum) for row, _ in self.rows for datum in row):
            msgspec.structs.force_setattr(self, "rows", _plain(self.rows))

    def __eq__(self, other: object) -> bool:
        """Whether `other` has the same rows, including the signs of zeros."""
        if self is other:
            return True
        if not isinstance(other, Constant) or Node.__eq__(self, other) is not True:
            return False
        return _same_zeros(self.rows, other.rows)

    __hash__ = Node.__hash__


class Get(Node, frozen=True, cache_hash=True):
    """The collection `id`: a shard, an index's collection, a catalog relation.

    An `append_only` one never loses rows, and gains none below its `watermark`.
    """

    id: GlobalId
    columns: tuple[ColumnType, ...]
    keys: tuple[tuple[int, ...], ...] = ()
    append_only: bool = False
    watermark: Watermark | None = None


class LocalGet(Node, frozen=True, cache_hash=True):
    """The value that an enclosing `Let` binds to `number`."""

    number: int
    columns: tuple[ColumnType, ...]


class Let(Node, frozen=True, cache_hash=True):
    """`body`, with `LocalGet(number)` standing for `value`. Numbers are unique within a plan.

    A value not used in `body` is not computed, and so cannot fail.
    """

    number: int
    value: "Relation"
    body: "Relation"


class Map(Node, frozen=True, cache_hash=True):
    """Each row with `scalars` appended, each of which may use those before it."""

    input: "Relation"
    scalars: tuple[Scalar, ...]


class Filter(Node, frozen=True, cache_hash=True):
    """The rows for which all `predicates` are TRUE."""

    input: "Relation"
    predicates: tuple[Scalar, ...]


class Project(Node, frozen=True, cache_hash=True):
    """The columns at `outputs`, in that order, possibly repeated."""

    input: "Relation"
    outputs: tuple[int, ...]


IN_STEP = "rows_from"  # the function of a FlatMap whose arguments are arrays


class FlatMap(Node, frozen=True, cache_hash=True):
    """Each row combined with each row of a table function applied to it; none where it fails.

    It appends the function's value and, if `columns` has one more, the number of the row in this
    call, from 1, as int8. The function `IN_STEP` has a value for each argument, an array: the n-th
    row has the n-th element of each, NULL where an array is shorter than the longest.
    """

    input: "Relation"
    function: str  # key of a table function of the registry, or IN_STEP
    args: tuple[Scalar, ...]
    columns: tuple[ColumnType, ...]

    @property
    def arrays(self) -> tuple[Scalar, ...]:
        """The arrays whose elements are the values, one for each value column."""
        if self.function == IN_STEP:
            return self.args
        return (Call(self.function, self.args, array_of(self.columns[0].type)),)

    @property
    def is_numbered(self) -> bool:
        """Whether the rows of a call are numbered."""
        return len(self.columns) > (len(self.args) if self.function == IN_STEP else 1)


class Join(Node, frozen=True, cache_hash=True):
    """The product of `inputs`, where within each of `equivalences` all scalars are SQL-equal.

    NULL equals nothing, except in the equivalences at positions `null_safe`, where NULL equals NULL
    (IS NOT DISTINCT FROM). Without inputs: one row without columns. A scalar of an equivalence uses
    the columns of one input (`check_lowered`). If it fails for a row of that input, it fails
    regardless of the other inputs.
    """

    inputs: tuple["Relation", ...]
    equivalences: tuple[tuple[Scalar, ...], ...] = ()
    null_safe: tuple[int, ...] = ()


class Reduce(Node, frozen=True, cache_hash=True):
    """One row for each group: the key's scalars, then the aggregates.

    NULLs are grouped together. Without a key there is exactly one group, even without rows. Without
    aggregates it is DISTINCT.
    """

    input: "Relation"
    group_key: tuple[Scalar, ...]
    aggregates: tuple[Aggregate, ...]


class TopK(Node, frozen=True, cache_hash=True):
    """For each group of rows equal in `group_key`, the rows from `offset` on, at most `limit`.

    Rows are ordered by `order_key`, then by all columns (ascending, nulls last), so the result is
    deterministic. `limit` and `offset` use no column; a NULL limit is no limit.
    """

    input: "Relation"
    group_key: tuple[int, ...]
    order_key: tuple[OrderKey, ...]
    limit: Scalar | None = None
    offset: Scalar | None = None


class TemporalFilter(Node, frozen=True, cache_hash=True):
    """Lowered form of maintained relations only: the rows that are there at the current time.

    At time t a row is there if `t op column` is TRUE for each of `conditions`, pairs of an operator
    and a column of type mz_timestamp. So a row is there from one time on and until another.
    """

    input: "Relation"
    conditions: tuple[tuple[OneOf["lt", "le", "ge", "gt"], int], ...]


class Window(Node, frozen=True, cache_hash=True):
    """Each row with the values of `functions` over its partition appended.

    A partition has the rows equal in `partition`, ordered by `order_key`, then by all columns
    (ascending, nulls last), so the result is deterministic. A row of multiplicity n is n rows.
    """

    input: "Relation"
    partition: tuple[int, ...]
    order_key: tuple[OrderKey, ...]
    functions: tuple[WindowFunction, ...]


class Negate(Node, frozen=True, cache_hash=True):
    """The rows with their multiplicities negated."""

    input: "Relation"


class Threshold(Node, frozen=True, cache_hash=True):
    """The rows whose multiplicity is positive."""

    input: "Relation"


class Union(Node, frozen=True, cache_hash=True):
    """The sum of `inputs`, at least one; UNION ALL."""

    inputs: tuple["Relation", ...]


class JoinOn(Node, frozen=True, cache_hash=True):
    """Bound form only: SQL's binary join.

    `on` uses the columns of both sides. If `lateral`, `right` may use the row of `left` as
    `OuterColumn(level=1)`; a join that is not lateral adds no level.
    """

    left: "Relation"
    right: "Relation"
    kind: OneOf["inner", "left", "right", "full"]
    on: Scalar
    lateral: bool = False


class LetRec(Node, frozen=True, cache_hash=True):
    """`body`, with `LocalGet(numbers[i])` standing for `values[i]`, which may use all of them.

    First all values are empty. Then they are computed one after the other, each from the latest
    ones, again and again until a round changes none of them, or for at most `limit` rounds. If
    `fails`, it is an error (54000) if the last round allowed has still changed some. `columns[i]`
    are the columns of `values[i]`, but all of them nullable. If `body` uses no value, none is
    computed, and none can fail.
    """

    numbers: tuple[int, ...]
    columns: tuple[tuple[ColumnType, ...], ...]
    values: tuple["Relation", ...]
    body: "Relation"
    limit: int | None = None
    fails: bool = True


class Recursive(Node, frozen=True, cache_hash=True):
    """Bound form only: WITH RECURSIVE, the rows of `base` and of repeated applications of `step`.

    In `step`, `LocalGet(number)` is the previous result; iteration ends when that is empty. If not
    `all`, rows are distinct, and only new rows are passed on.
    """

    number: int
    base: "Relation"
    step: "Relation"
    all: bool


Relation: TypeAlias = (
    Constant
    | Get
    | LocalGet
    | Let
    | Map
    | Filter
    | Project
    | FlatMap
    | Join
    | Reduce
    | TopK
    | TemporalFilter
    | Window
    | Negate
    | Threshold
    | Union
    | JoinOn
    | LetRec
    | Recursive
)


class Finishing(msgspec.Struct, frozen=True):
    """The operations on a result's rows before they are sent to the client, in this order."""

    order_by: tuple[OrderKey, ...]  # over the relation's columns
    limit: int | None
    offset: int
    project: tuple[int, ...]


def single_input(relation: Relation) -> Get | None:
    """Return the collection if `relation` is Map, Filter and Project over one."""
    while isinstance(relation, Map | Filter | Project):
        relation = relation.input
    return relation if isinstance(relation, Get) else None


def count_all() -> Aggregate:
    """Return count(*)."""
    return Aggregate("count", (), INT8)
