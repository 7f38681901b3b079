"""Relations as text: an indented tree, columns by position (`#0`), calls by their keys.

The form is stable: golden tests and EXPLAIN use it. `name_of` names collections, by default by id.
With `columns` the lines have names of columns where there are any (`column_names.py`). `title` may
replace the title of an operator's line, which engines use to print their plans.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import assert_never

from foreshore.expr.column_names import NamedColumns, Names, with_names
from foreshore.expr.ir import (
    Aggregate,
    And,
    AnySubquery,
    Arguments,
    Call,
    Case,
    Column,
    Constant,
    Environment,
    ErrorOf,
    Exists,
    Filter,
    FlatMap,
    Frame,
    FrameBound,
    Get,
    Join,
    JoinOn,
    Let,
    LetRec,
    Literal,
    LocalGet,
    Map,
    Negate,
    Once,
    Or,
    OrderKey,
    OuterColumn,
    Parameter,
    Project,
    Recursive,
    Reduce,
    Relation,
    Scalar,
    ScalarSubquery,
    TemporalFilter,
    Threshold,
    TopK,
    Union,
    Window,
    WindowFunction,
)
from foreshore.expr.plan_nodes import PlanNode
from foreshore.expr.traversal import inputs_of
from foreshore.ids import GlobalId
from foreshore.python_functions.definition import is_python, name_in
from foreshore.text import format_text
from foreshore.types import SqlType, format_type

MAX_ROWS = 20  # of a Constant
_COMPARISONS = {"lt": "<", "le": "<=", "ge": ">=", "gt": ">"}
_QUIET = frozenset(("bool", "int4", "text"))


NameOf = Callable[[GlobalId], str]
Title = Callable[[Relation], str | None]


def explain_relation(
    relation: Relation,
    name_of: NameOf = str,
    title: Title = lambda _: None,
    depth: int = 0,
    columns: NamedColumns | None = None,
) -> str:
    """Return `relation` as text, one operator per line, indented from `depth` on."""
    return "\n".join(explain_nodes(relation, name_of, title, columns).lines(depth))


def explain_nodes(
    relation: Relation,
    name_of: NameOf = str,
    title: Title = lambda _: None,
    columns: NamedColumns | None = None,
    outer: tuple[Names, ...] = (),
) -> PlanNode:
    """Return `relation` as nodes, one for each operator.

    With `columns`, subqueries of an operator are nodes before its inputs. They see the columns of
    the rows that `outer` names, the nearest first.
    """
    subqueries: list[PlanNode] = []
    if columns is None:
        head = title(relation) or _head(relation, name_of)
    else:
        found = _Subqueries(columns, (columns.read_by(relation), *outer), [])
        kept = _SUBQUERIES.set(found)
        try:
            head = columns.named(relation, _head(relation, name_of), outer)
        finally:
            _SUBQUERIES.reset(kept)
        for number, each in enumerate(found.relations, 1):
            inner = explain_nodes(each, name_of, title, columns, found.outer)
            subqueries.append(PlanNode("Subquery", str(number), inputs=(inner,)))
    kind, _, detail = head.partition(" ")
    rows = tuple(_rows(relation)) if isinstance(relation, Constant) else ()
    inputs = [explain_nodes(i, name_of, title, columns, outer) for i in inputs_of(relation)]
    return PlanNode(kind, detail, rows, (*subqueries, *inputs))


@dataclass(frozen=True, slots=True)
class _Subqueries:
    """The subqueries found in an operator's line, and the names of the columns that they see."""

    columns: NamedColumns
    outer: tuple[Names, ...]
    relations: list[Relation]


_SUBQUERIES: ContextVar[_Subqueries | None] = ContextVar("subqueries", default=None)


def explain_operator(relation: Relation, name_of: NameOf = str) -> str:
    """Return the line for the top operator."""
    return _head(relation, name_of)


def explain_scalar(scalar: Scalar) -> str:
    """Return `scalar` as text, with subqueries in brackets."""
    return _scalar(scalar)


def explain_order(order: Sequence[OrderKey]) -> str:
    """Return an ordering as text."""
    return ", ".join(map(_key, order))


def explain_aggregate(aggregate: Aggregate) -> str:
    """Return an aggregate as text."""
    return _aggregate(aggregate)


def _rows(constant: Constant) -> Iterator[str]:
    for row, count in constant.rows[:MAX_ROWS]:
        values = ", ".join(
            _datum(value, column.type) for value, column in zip(row, constant.columns, strict=True)
        )
        yield f"({values})" + ("" if count == 1 else f" x {count}")
    if len(constant.rows) > MAX_ROWS:
        yield f"... {len(constant.rows) - MAX_ROWS} more"


def _head(relation: Relation, name_of: NameOf = str) -> str:
    match relation:
        case Constant(columns=columns):
            return f"Constant {_types(column.type for column in columns)}"
        case Get(id=id):
            return f"Get {name_of(id)}"
        case LocalGet(number=number):
            return f"Get l{number}"
        case Let(number=number):
            return f"Let l{number}"
        case Map(scalars=scalars):
            return f"Map ({_list(scalars)})"
        case Filter(predicates=predicates):
            return "Filter " + " AND ".join(map(_scalar, predicates))
        case Project(outputs=outputs):
            return f"Project ({', '.join(f'#{i}' for i in outputs)})"
        case FlatMap(function=function, args=args):
            numbered = " with ordinality" if relation.is_numbered else ""
            return f"FlatMap {function}({_list(args)}){numbered}"
        case Join(equivalences=equivalences, null_safe=null_safe):
            on = ", ".join(
                (" is " if i in null_safe else " = ").join(map(_scalar, each))
                for i, each in enumerate(equivalences)
            )
            return f"Join on=({on})" if on else "Join"
        case Reduce(group_key=group_key, aggregates=aggregates):
            if not aggregates:
                return f"Distinct ({_list(group_key)})"
            made = ", ".join(map(_aggregate, aggregates))
            return f"Reduce group_by=({_list(group_key)}) aggregates=[{made}]"
        case TopK(group_key=group, order_key=order, limit=limit, offset=offset):
            parts = []
            if group:
                parts.append(f"group_by=({', '.join(f'#{i}' for i in group)})")
            if order:
                parts.append(f"order_by=[{explain_order(order)}]")
            if limit is not None:
                parts.append(f"limit={_scalar(limit)}")
            if offset is not None:
                parts.append(f"offset={_scalar(offset)}")
            return " ".join(["TopK", *parts])
        case TemporalFilter(conditions=conditions):
            return "TemporalFilter " + " AND ".join(
                f"mz_now() {_COMPARISONS[operator]} #{i}" for operator, i in conditions
            )
        case Window(partition=partition, order_key=order, functions=functions):
            parts = []
            if partition:
                parts.append(f"partition_by=({', '.join(f'#{i}' for i in partition)})")
            if order:
                parts.append(f"order_by=[{explain_order(order)}]")
            parts.append(f"functions=[{', '.join(map(_window_function, functions))}]")
            return " ".join(["Window", *parts])
        case Negate():
            return "Negate"
        case Threshold():
            return "Threshold"
        case Union():
            return "Union"
        case LetRec(numbers=numbers, limit=limit, fails=fails):
            names = ", ".join(f"l{number}" for number in numbers)
            at = "error at" if fails else "return at"
            return f"LetRec {names}" + ("" if limit is None else f" {at} {limit}")
        case Recursive(number=number, all=all):
            return f"Recursive l{number}" + ("" if all else " distinct")
        case JoinOn(kind=kind, on=on, lateral=lateral):
            word = "LateralJoin" if lateral else "JoinOn"
            return f"{word} {kind} on={_scalar(on)}"
        case _:
            assert_never(relation)


def _types(types: Iterable[SqlType]) -> str:
    return "(" + ", ".join(map(format_type, types)) + ")"


def _list(scalars: Iterable[Scalar]) -> str:
    return ", ".join(map(_scalar, scalars))


def _key(key: OrderKey) -> str:
    text = _scalar(key.expr) + (" desc" if key.descending else "")
    if key.nulls_first != key.descending:
        text += " nulls first" if key.nulls_first else " nulls last"
    return text


def _aggregate(aggregate: Aggregate) -> str:
    inside = _list(aggregate.args) or "*"
    if aggregate.distinct:
        inside = f"distinct {inside}"
    if aggregate.order_by:
        inside += f" order by {explain_order(aggregate.order_by)}"
    text = f"{aggregate.function}({inside})"
    if aggregate.filter is not None:
        text += f" filter ({_scalar(aggregate.filter)})"
    return text


def _window_function(function: WindowFunction) -> str:
    inside = _list(function.args) or ("*" if function.function == "count" else "")
    text = f"{function.function}({inside})"
    if function.filter is not None:
        text += f" filter ({_scalar(function.filter)})"
    frame = function.frame
    if frame != Frame():
        start = "unbounded preceding" if frame.start is None else _bound(frame.start)
        end = "unbounded following" if frame.end is None else _bound(frame.end)
        text += f" {frame.unit} between {start} and {end}"
        if frame.exclude != "nothing":
            text += f" exclude {frame.exclude}"
    return text


def _bound(bound: FrameBound) -> str:
    return "current row" if bound.offset is None else f"{_scalar(bound.offset)} {bound.side}"


def _datum(value: object, type: SqlType) -> str:
    if value is None:
        return "null"
    text = format_text(value, type)  # type: ignore[arg-type]
    if type.name in ("bool",):
        return "true" if value else "false"
    if type.name in ("int2", "int4", "int8", "numeric", "number", "float4", "float8"):
        return text
    return "'" + text.replace("'", "''") + "'"


def _scalar(scalar: Scalar) -> str:
    match scalar:
        case Column(index=index):
            return f"#{index}"
        case OuterColumn(level=level, index=index):
            return f"{'^' * level}#{index}"
        case Literal(value=value, type=type):
            text = _datum(value, type)
            return text if type.name in _QUIET else f"{text}::{format_type(type)}"
        case Parameter(number=number):
            return f"${number}"
        case Arguments(numbers=numbers):
            return f"{{{', '.join(f'${number}' for number in numbers)}}}"
        case Environment(name=name):
            return f"{name}()"
        case Call(function=function, args=args) if is_python(function):
            return f"{name_in(function)}({_list(args)})"
        case Call(function=function, args=args):
            return f"{function}({_list(args)})" if "(" not in function else _call(function, args)
        case And(args=args):
            return "(" + " AND ".join(map(_scalar, args)) + ")"
        case Or(args=args):
            return "(" + " OR ".join(map(_scalar, args)) + ")"
        case Case(branches=branches, otherwise=otherwise):
            whens = " ".join(f"when {_scalar(c)} then {_scalar(r)}" for c, r in branches)
            return f"case {whens} else {_scalar(otherwise)} end"
        case ErrorOf(expr=expr):
            return f"error_of({_scalar(expr)})"
        case Once(expr=expr):
            return _scalar(expr)
        case Exists(relation=relation):
            return f"exists{_inline(relation)}"
        case ScalarSubquery(relation=relation):
            return f"subquery{_inline(relation)}"
        case AnySubquery(predicate=predicate, relation=relation):
            test, found = _scalar(predicate), _SUBQUERIES.get()
            if found is not None:
                test = with_names(test, found.columns.names(relation), found.outer)
            return f"any({test}){_inline(relation)}"
        case _:
            assert_never(scalar)


def _call(function: str, args: tuple[Scalar, ...]) -> str:
    """Return a call: the name and types of the key, then the arguments."""
    name, _, types = function.partition("(")
    return f"{name}<{types[:-1]}>({_list(args)})"


def _inline(relation: Relation) -> str:
    """Return a subquery's relation in one line, or its number where it is a node of its own."""
    found = _SUBQUERIES.get()
    if found is not None:
        found.relations.append(relation)
        return f"[{len(found.relations)}]"
    inputs = inputs_of(relation)
    head = _head(relation)
    if isinstance(relation, Constant):
        head += f" [{len(relation.rows)} rows]"
    if not inputs:
        return f"[{head}]"
    return f"[{head} <- {'; '.join(_inline(i)[1:-1] for i in inputs)}]"
