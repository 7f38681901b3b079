"""Bind columns of tables: types, defaults, serial and identity columns.

A serial column has a sequence of its own, which its default uses. An identity column has one too,
as part of its definition. Both are kept in the resulting form, with the sequence's name. A column
that `is_new`, in a statement that is not `defined`, gets a new sequence.
"""

from dataclasses import replace

from foreshore.domain import Domain
from foreshore.errors import (
    DatatypeMismatch,
    FeatureNotSupported,
    SyntaxError_,
)
from foreshore.expr.columns import type_of
from foreshore.expr.ir import Literal, Scalar
from foreshore.item_view import Name
from foreshore.sequence import BOUNDS, Generated
from foreshore.sequence import Sequence as Numbers
from foreshore.sql import ast
from foreshore.sql.bind.binder import Clause
from foreshore.sql.bind.coerce import assign
from foreshore.sql.bind.definitions.sequence import identity_sequence, require_schema_of
from foreshore.sql.bind.expression import ExpressionBinder
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.bind.positions import at_of
from foreshore.sql.bind.reg_values import name_parts
from foreshore.sql.bind.scope import Scope
from foreshore.sql.bind.sequence_calls import FUNCTIONS, sequence_constant
from foreshore.sql.bind.subquery import check_no_subquery
from foreshore.sql.bind.type_names import domain_of_name, qualified_types, type_of_name
from foreshore.sql.parse.collations import check_collatable
from foreshore.sql.parse.keywords import quote_string
from foreshore.sql.parse.lexer import STRING, tokenize
from foreshore.sql.plan import ColumnSequence
from foreshore.sql.rewrite.full_names import dotted, is_regclass
from foreshore.sql.rewrite.text_edits import apply_edits
from foreshore.types import INT2, INT4, INT8, SqlType

SERIALS = {
    **dict.fromkeys(("serial", "serial4"), INT4),
    **dict.fromkeys(("bigserial", "serial8"), INT8),
    **dict.fromkeys(("smallserial", "serial2"), INT2),
}
MAX_BYTES = 63  # of a name


def has_sequence(column: ast.ColumnDefinition) -> bool:
    """Return whether a column takes values from its own sequence, and so is never NULL."""
    return column.identity is not None or _serial(column) is not None


def generated(column: ast.ColumnDefinition) -> Generated | None:
    """Return how a column's value is generated; None for ordinary columns."""
    if column.generated is not None:
        return "stored"
    if column.identity is None:
        return None
    return "always" if column.identity.always else "by default"


def _serial(column: ast.ColumnDefinition) -> SqlType | None:
    name = column.type.name
    return SERIALS.get(name[0]) if len(name) == 1 and not column.type.dimensions else None


class ColumnBinder:
    """Bind the columns of table `name` and collect the sequences to create."""

    def __init__(self, planning: Planning, name: Name) -> None:
        self._planning = planning
        self._table = name
        self.sequences: list[ColumnSequence] = []

    def type_of(self, column: ast.ColumnDefinition) -> SqlType:
        """Return the type of a column."""
        type = _serial(column) or type_of_name(column.type, self._planning)
        if column.collated_at is not None:
            check_collatable(type, column.collated_at)
        return type

    def domain_of(self, column: ast.ColumnDefinition) -> Domain | None:
        """Return the domain of a column, None if its type is no domain."""
        return None if _serial(column) else domain_of_name(column.type, self._planning)

    def default(
        self, place: int, column: ast.ColumnDefinition, type: SqlType
    ) -> tuple[Scalar, str]:
        """Return the default of the column at `place`, and the text of it in the definition."""
        identity = column.identity
        if identity is not None and column.default is not None:
            raise SyntaxError_(
                f'both default and identity specified for column "{column.name}" '
                f'of table "{self._table.item}"',
                position=column.at + 1,
            )
        if identity is not None:
            return self._identity(place, column, type)
        if _serial(column) is not None:
            if column.default is not None:
                raise SyntaxError_(
                    f'multiple default values specified for column "{column.name}" '
                    f'of table "{self._table.item}"',
                    position=column.at + 1,
                )
            numbers = Numbers(type, maximum=BOUNDS[type.name] - 1)
            name = quote_string(dotted(self._add_sequence(place, column, numbers, None).parts))
            return Literal(None, type), f" DEFAULT nextval({name}::regclass)"
        if column.default is None and column.generated is None:
            domain = self.domain_of(column)
            if domain is not None and domain.default is not None:
                return domain.default, ""
            return Literal(None, type), ""
        if column.default is None:
            return Literal(None, type), ""
        scalar = bind_default(self._planning, column.default, column.name, type)
        return scalar, f" DEFAULT {qualified_default(self._planning, column)}"

    def _identity(
        self, place: int, column: ast.ColumnDefinition, type: SqlType
    ) -> tuple[Scalar, str]:
        assert column.identity is not None
        options = column.identity.options
        named: ast.TableRef | None = options.given.get("sequence name")
        default: Scalar = Literal(None, type)
        if named is not None and (self._planning.defined or not column.is_new):
            item = self._planning.catalog.resolve_item(named.name)
            self._planning.depends_on.add(item.id)
            call = ast.FunctionCall(
                ("nextval",), (ast.String(dotted(item.name.parts), column.at),), column.at
            )
            default = bind_default(self._planning, call, column.name, type)
            sequence = item.name
        else:
            numbers = identity_sequence(options, type)
            sequence = self._add_sequence(place, column, numbers, named)
        when = "ALWAYS" if column.identity.always else "BY DEFAULT"
        return default, f" GENERATED {when} AS IDENTITY (SEQUENCE NAME {dotted(sequence.parts)})"

    def _add_sequence(
        self,
        place: int,
        column: ast.ColumnDefinition,
        numbers: Numbers,
        named: ast.TableRef | None,
    ) -> Name:
        """Add a sequence for the column, in the schema of its table; return its name."""
        table = self._table
        if named is None:
            name = self._free_name(column.name)
        elif len(named.name) == 1:
            name = replace(table, item=named.name[0])
        else:
            with located(named.at):
                name = self._planning.catalog.resolve_new(named.name, temporary=table.temporary)
                require_schema_of(table, name)
        identity = column.identity is not None
        self.sequences.append(ColumnSequence(place, name, numbers, identity))
        return name

    def _free_name(self, column: str) -> Name:
        table = self._table
        taken = {each.name for each in self.sequences}
        for number in range(1_000_000):
            item = object_name(table.item, column, f"seq{number or ''}")
            name = Name(table.database, table.schema, item)
            if name not in taken and not self._planning.catalog.is_taken(name):
                return name
        raise AssertionError


def bind_default(planning: Planning, expr: ast.Expression, column: str, type: SqlType) -> Scalar:
    """Return the default of a column of `type` as a scalar."""
    binder = ExpressionBinder(planning, Scope(), Clause("DEFAULT expressions"))
    if isinstance(expr, ast.ColumnRef):
        raise FeatureNotSupported(
            "cannot use column reference in DEFAULT expression", position=expr.at + 1
        )
    scalar = binder.bind(expr)
    check_no_subquery(scalar, "DEFAULT expression", at_of(expr))
    try:
        assigned = assign(planning, scalar, type, column, at_of(expr))
    except DatatypeMismatch:
        raise DatatypeMismatch(
            f'column "{column}" is of type {type} but default expression is of type '
            f"{type_of(scalar)}",
            hint="You will need to rewrite or cast the expression.",
            position=at_of(expr) + 1,
        ) from None
    check_no_subquery(assigned, "DEFAULT expression", at_of(expr))  # it may look up a name
    return assigned


def qualified_default(planning: Planning, column: ast.ColumnDefinition) -> str:
    """Return the text of a default with full names of the sequences and types that it uses."""
    text = column.default_text.rstrip()
    calls = (each for each in ast.nodes_of(column.default) if isinstance(each, ast.FunctionCall))
    named = {
        constant.at - column.default_at
        for call in calls
        if call.name[-1] in FUNCTIONS
        and call.args
        and (constant := sequence_constant(call.args[0])) is not None
    }
    tokens, _ = tokenize(text)
    edits = qualified_types(planning, text, column.default_at)
    for place, token in enumerate(tokens):
        if token.start in named:
            assert token.kind == STRING, (text, token)
            named.remove(token.start)
            item = planning.catalog.resolve_item(name_parts(token.value))
            name = quote_string(dotted(item.name.parts))
            if not is_regclass(tokens, place):  # so that renaming finds it
                name += "::regclass"
            edits.append((token.start, token.end, name))
    assert not named, (text, named)
    return apply_edits(text, edits)


def object_name(table: str, middle: str, label: str) -> str:
    """Return `table_middle_label`, with the longer of the first two cut to fit into 63 bytes."""
    room = MAX_BYTES - len(label) - 1 - bool(middle)
    first, second = table.encode(), middle.encode()
    while len(first) + len(second) > room:
        if len(first) > len(second):
            first = first[:-1]
        else:
            second = second[:-1]
    parts = [each.decode(errors="ignore") for each in (first, second) if each]
    return "_".join([*parts, label])
