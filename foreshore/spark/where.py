"""Option `where`: which rows a DataFrame has, in SQL such as `cust = 77 AND day IN ('a', 'b')`.

It is part of `load()`, so it holds for every plan over the DataFrame. Filters that Spark pushes
down are not taken: Spark keeps the parts of the plan that was filtered last with the table, where
every other plan over the same `load()` finds them, and lacks rows.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from foreshore.errors import InvalidParameterValue
from foreshore.spark.conditions import Condition, Operator, is_comparable

_OPERATORS: dict[Any, Operator] = {
    exp.EQ: "=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_SWAPPED: dict[Operator, Operator] = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_HINT = (
    "Join conditions by AND, each of one column with integers or texts:"
    " =, <, <=, >, >=, BETWEEN, IN, IS NULL, IS NOT NULL."
)


def parse_where(text: str | None, schema: pa.Schema) -> tuple[Condition, ...]:
    """Return the conditions that the rows fulfil, all of them; none for None.

    Raises InvalidParameterValue if the text says more than such conditions can.
    """
    if text is None:
        return ()
    try:
        parsed = sqlglot.parse_one(text, read="postgres")
    except SqlglotError:
        raise InvalidParameterValue(
            f'option "where" has no condition: {text}', hint=_HINT
        ) from None
    return tuple(_conditions(parsed, schema))


def _conditions(node: Any, schema: pa.Schema) -> Iterator[Condition]:
    match node:
        case exp.Paren():
            yield from _conditions(node.this, schema)
        case exp.And():
            for side in (node.left, node.right):
                yield from _conditions(side, schema)
        case exp.Between() if not node.args.get("symmetric"):
            column = _column(node.this, schema)
            yield _comparison(schema, column, ">=", _value(node.args["low"]))
            yield _comparison(schema, column, "<=", _value(node.args["high"]))
        case exp.In() if node.expressions:
            column = _column(node.this, schema)
            values = tuple(_value(each) for each in node.expressions)
            yield _comparison(schema, column, "in", *values)
        case exp.Is() if isinstance(node.expression, exp.Null):
            column = _column(node.this, schema)
            yield _comparison(schema, column, "not null" if node.args.get("negate") else "null")
        case exp.EQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
            operator = _OPERATORS[type(node)]
            if isinstance(node.left, exp.Column):
                column = _column(node.left, schema)
                yield _comparison(schema, column, operator, _value(node.right))
            else:
                column = _column(node.right, schema)
                yield _comparison(schema, column, _SWAPPED[operator], _value(node.left))
        case _:
            raise _unsupported(node)


def _comparison(schema: pa.Schema, place: int, operator: Operator, *values: Any) -> Condition:
    """Return a condition; raises InvalidParameterValue for values of another type."""
    name, type = schema.names[place], schema.types[place]
    for value in values:
        if not is_comparable(type, value):
            raise InvalidParameterValue(
                f'option "where" cannot compare column "{name}" with {value!r}', hint=_HINT
            )
        try:
            pa.scalar(value, type)
        except (pa.ArrowInvalid, OverflowError):
            raise InvalidParameterValue(
                f'{value} is out of range for column "{name}" in option "where"'
            ) from None
    return Condition(place, name, operator, values if operator == "in" else (*values, None)[0])


def _column(node: Any, schema: pa.Schema) -> int:
    if not isinstance(node, exp.Column) or node.table:
        raise _unsupported(node)
    name = node.name if node.this.quoted else node.name.lower()
    if name not in (names := schema.names[:-2]):
        raise InvalidParameterValue(f'option "where": column "{name}" does not exist')
    place: int = names.index(name)
    return place


def _value(node: Any) -> int | str:
    """Return the integer or text of a literal; raises InvalidParameterValue."""
    if isinstance(node, exp.Literal) and node.is_string:
        return str(node.this)
    if isinstance(node, exp.Neg):
        return -_integer(node.this)
    return _integer(node)


def _integer(node: Any) -> int:
    if isinstance(node, exp.Literal) and not node.is_string and len(node.this) < 20:
        with suppress(ValueError):
            return int(node.this)
    raise _unsupported(node)


def _unsupported(node: Any) -> InvalidParameterValue:
    text = node.sql(dialect="postgres")
    return InvalidParameterValue(f'option "where" cannot have "{text}"', hint=_HINT)
