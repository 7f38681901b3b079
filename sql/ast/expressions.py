"""Syntax of expressions; `query.py` has the queries within them."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias
from typing import Literal as OneOf

import msgspec

from foreshore.sql.ast.constant_list import ConstantList, unquoted
from foreshore.sql.ast.form_rows import FormRows

if TYPE_CHECKING:
    from foreshore.sql.ast.query import Query


class Syntax(msgspec.Struct, gc=False):
    """A node of the tree."""


def nodes_of(tree: object) -> Iterator[Syntax]:
    """Yield the nodes of a tree, or of a tuple of trees, parents first."""
    if isinstance(tree, tuple | list):
        for each in tree:
            yield from nodes_of(each)
    elif isinstance(tree, Syntax):
        yield tree
        for name in tree.__struct_fields__:
            yield from nodes_of(getattr(tree, name))


class ColumnRef(Syntax):
    """`[[schema.]table.]column`."""

    parts: tuple[str, ...]
    at: int


class Star(Syntax):
    """`*` or `t.*`, without some columns, or with others in their place."""

    qualifier: tuple[str, ...]
    at: int
    excluded: tuple[tuple[str, int], ...] = ()  # names with offsets
    replaced: tuple[tuple[str, "Expression", int], ...] = ()


class Number(Syntax):
    """A number as written, with a sign if it was folded in; one with `+` is no constant."""

    text: str
    at: int


class String(Syntax):
    """A string constant, of unknown type."""

    value: str
    at: int


class Bits(Syntax):
    """A bit string constant."""

    text: str
    at: int


class Boolean(Syntax):
    """TRUE or FALSE."""

    value: bool
    at: int


class Null(Syntax):
    """NULL."""

    at: int


class ParameterRef(Syntax):
    """`$1`."""

    number: int
    at: int


class TypeName(Syntax):
    """A type as written: `numeric(10, 2)[]`."""

    name: tuple[str, ...]
    modifiers: tuple[int, ...]
    dimensions: int
    at: int
    fields: str | None = None  # fields of an interval: `day to second`
    item: "TypeName | None" = None  # of `item list` and `map[key => item]`
    key: "TypeName | None" = None


class SortKey(Syntax):
    """One expression of ORDER BY."""

    expr: "Expression"
    descending: bool
    nulls_first: bool | None
    at: int


class FrameBound(Syntax):
    """An end of a frame; UNBOUNDED if there is neither an offset nor `current`."""

    side: OneOf["preceding", "current", "following"]
    offset: "Expression | None"
    at: int


class FrameClause(Syntax):
    """ROWS, RANGE or GROUPS BETWEEN start AND end EXCLUDE ..."""

    unit: OneOf["rows", "range", "groups"]
    start: FrameBound
    end: FrameBound
    exclude: OneOf["nothing", "current row", "group", "ties"]


class WindowDefinition(Syntax):
    """`(base PARTITION BY ... ORDER BY ... frame)`, or the name after OVER without parentheses."""

    base: str | None
    partition_by: tuple["Expression", ...]
    order_by: tuple[SortKey, ...]
    frame: FrameClause | None
    at: int
    base_at: int = 0
    bare: bool = False


class FunctionCall(Syntax):
    """A call by name, of a function or an aggregate."""

    name: tuple[str, ...]
    args: tuple["Expression", ...]
    at: int
    star: bool = False
    distinct: bool = False
    variadic: bool = False
    names: tuple[str, ...] = ()  # of the last arguments, those given by name
    order_by: tuple[SortKey, ...] = ()
    filter: "Expression | None" = None
    over: WindowDefinition | None = None
    within_group: tuple[SortKey, ...] | None = None


class Special(Syntax):
    """COALESCE, NULLIF, GREATEST or LEAST, which are syntax, not functions."""

    kind: OneOf["coalesce", "nullif", "greatest", "least"]
    args: tuple["Expression", ...]
    at: int


class SqlValue(Syntax):
    """CURRENT_DATE and others that are called without parentheses."""

    name: str
    precision: int | None
    at: int


class Operation(Syntax):
    """A prefix (`left` is None) or infix operator."""

    operator: str
    left: "Expression | None"
    right: "Expression"
    at: int


class Connective(Syntax):
    """AND or OR over two or more operands."""

    kind: OneOf["and", "or"]
    args: tuple["Expression", ...]
    at: int


class Not(Syntax):
    """NOT."""

    arg: "Expression"
    at: int


class Is(Syntax):
    """IS [NOT] NULL, TRUE, FALSE, UNKNOWN."""

    arg: "Expression"
    what: OneOf["null", "true", "false", "unknown"]
    negated: bool
    at: int


class IsDistinct(Syntax):
    """IS [NOT] DISTINCT FROM."""

    left: "Expression"
    right: "Expression"
    negated: bool
    at: int


class Like(Syntax):
    """[NOT] LIKE, ILIKE, SIMILAR TO, with ESCAPE."""

    kind: OneOf["like", "ilike", "similar"]
    left: "Expression"
    right: "Expression"
    escape: "Expression | None"
    negated: bool
    at: int


class Between(Syntax):
    """[NOT] BETWEEN [SYMMETRIC]."""

    arg: "Expression"
    low: "Expression"
    high: "Expression"
    symmetric: bool
    negated: bool
    at: int


class InList(Syntax):
    """[NOT] IN (expressions), and further constants, or rows of them, if it is long."""

    arg: "Expression"
    items: tuple["Expression", ...]
    negated: bool
    at: int
    more: ConstantList | FormRows | None = None

    @property
    def whole(self) -> tuple["Expression", ...]:
        """All items as nodes."""
        if self.more is None:
            return self.items
        if isinstance(self.more, FormRows):
            return self.more.parse()
        return (*self.items, *nodes_of_list(self.more))


class InQuery(Syntax):
    """[NOT] IN (query)."""

    arg: "Expression"
    query: "Query"
    negated: bool
    at: int


class Quantified(Syntax):
    """`left operator ANY|ALL (array or query)`."""

    left: "Expression"
    operator: str
    kind: OneOf["any", "all"]
    right: "Expression | Query"
    at: int


class CastTo(Syntax):
    """`CAST(x AS type)`, `x::type`, `type 'x'`."""

    arg: "Expression"
    type: TypeName
    at: int


class CaseWhen(Syntax):
    """CASE, with or without an operand."""

    operand: "Expression | None"
    branches: tuple[tuple["Expression", "Expression"], ...]
    otherwise: "Expression | None"
    at: int


class Subquery(Syntax):
    """A query as a value, as EXISTS, or as ARRAY(...), LIST(...) or MAP(...)."""

    kind: OneOf["scalar", "exists", "array", "list", "map"]
    query: "Query"
    at: int


class ArrayOf(Syntax):
    """ARRAY[...], LIST[...], or MAP[...], whose items are keys and values by turns."""

    items: tuple["Expression", ...]
    at: int
    kind: OneOf["array", "list", "map"] = "array"


class Row(Syntax):
    """ROW(...), or `(a, b)`, which is several keys in GROUP BY."""

    items: tuple["Expression", ...]
    at: int
    named: bool = False  # with the word ROW


class Subscript(Syntax):
    """`a[i]`, `a[i:j]`."""

    arg: "Expression"
    lower: "Expression | None"
    upper: "Expression | None"
    slice: bool
    at: int


class Field(Syntax):
    """`(expression).name`; name None is `.*`."""

    arg: "Expression"
    name: str | None
    at: int


class Collate(Syntax):
    """COLLATE."""

    arg: "Expression"
    collation: tuple[str, ...]
    at: int


class GroupingCall(Syntax):
    """GROUPING(...): which of the expressions are left out of a row's grouping set."""

    args: tuple["Expression", ...]
    at: int


class Default(Syntax):
    """DEFAULT, in VALUES of an INSERT and in SET."""

    at: int


Expression: TypeAlias = (
    ColumnRef
    | Star
    | Number
    | String
    | Bits
    | Boolean
    | Null
    | ParameterRef
    | FunctionCall
    | Special
    | SqlValue
    | Operation
    | Connective
    | Not
    | Is
    | IsDistinct
    | Like
    | Between
    | InList
    | InQuery
    | Quantified
    | CastTo
    | CaseWhen
    | Subquery
    | ArrayOf
    | Row
    | Subscript
    | Field
    | Collate
    | GroupingCall
    | Default
)


def node_of_constant(text: str, at: int) -> Number | String | Boolean | Null:
    """Return the node of a literal of a `ConstantList`, as written at an offset."""
    if text[0] == "'":
        return String(unquoted(text), at)
    if text[0] in "nN":
        return Null(at)
    if text[0] in "tTfF":
        return Boolean(text[0] in "tT", at)
    return Number(text.removeprefix("+"), at)


def node_of_parameter(text: str, at: int, types: Mapping[str, TypeName]) -> Expression:
    """Return the node of a parameter of a `ConstantList`, perhaps cast to one of `types`."""
    number, cast, type = text.partition("::")
    parameter = ParameterRef(int(number[1:]), at)
    if not cast:
        return parameter
    colons = at + len(number)
    return CastTo(parameter, msgspec.structs.replace(types[type], at=colons + 2), colons)


def nodes_of_list(constants: ConstantList) -> Iterator[Expression]:
    """Yield constants as nodes."""
    for text, at in constants.placed():
        if text[0] == "$":
            yield node_of_parameter(text, at, constants.types)
        else:
            yield node_of_constant(text, at)
