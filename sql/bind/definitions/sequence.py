"""Bind CREATE and ALTER SEQUENCE, and calls of nextval, currval, lastval and setval.

A call names its sequence by oid. Calls of nextval and setval are numbered (`Call.number`), so that
two equal calls remain distinct.
"""

from collections.abc import Mapping

from foreshore.digits import is_digits
from foreshore.errors import (
    FeatureNotSupported,
    InvalidParameterValue,
    ObjectNotInPrerequisiteState,
    SyntaxError_,
    UndefinedColumn,
    UndefinedTable,
    WrongObjectType,
)
from foreshore.expr.columns import type_of
from foreshore.expr.ir import TRUE, Call, Environment, Join, Literal, Map, Relation, Scalar
from foreshore.ids import GlobalId
from foreshore.item_view import ItemView, Name
from foreshore.privileges import Privilege, of_oid
from foreshore.sequence import BOUNDS, Sequence
from foreshore.sql import ast
from foreshore.sql.bind.coerce import coerce
from foreshore.sql.bind.expression import ExpressionBinder, undefined_function
from foreshore.sql.bind.positions import at_of
from foreshore.sql.bind.reg_values import name_parts
from foreshore.sql.bind.type_names import type_of_name
from foreshore.sql.plan import AlterSequence, CreateSequence
from foreshore.sql.planning import Planning, located
from foreshore.sql.rewrite.full_names import dotted
from foreshore.types import (
    BOOL,
    INT8,
    REGCLASS,
    UNKNOWN,
    ColumnType,
    RelationDesc,
    SqlType,
    format_type,
)

SEQUENCE_DESC = RelationDesc(
    ("last_value", "log_cnt", "is_called"),
    (ColumnType(INT8, False), ColumnType(INT8, False), ColumnType(BOOL, False)),
)
FUNCTIONS = {"nextval": (1, 1), "currval": (1, 1), "lastval": (0, 0), "setval": (2, 3)}
_IN_DEFAULTS = "DEFAULT expressions"

# --- statements ----------------------------------------------------------------------------


def bind_create_sequence(
    planning: Planning, statement: ast.CreateSequenceStatement
) -> CreateSequence:
    """Return the plan of CREATE SEQUENCE."""
    with located(statement.name.at):
        name = planning.catalog.resolve_new(statement.name.name, temporary=statement.temporary)
    given = statement.options.given
    for option in ("sequence name", "restart"):
        if option in given:
            raise SyntaxError_(
                f'invalid sequence option "{option}"', position=statement.options.at[option] + 1
            )
    owner = _owner(planning, name, given["owned by"]) if "owned by" in given else None
    return new_sequence(name, sequence_of(statement.options), owner, statement.if_not_exists)


def new_sequence(
    name: Name,
    sequence: Sequence,
    owned_by: tuple[GlobalId, str] | None = None,
    if_not_exists: bool = False,
) -> CreateSequence:
    """Return the plan of a CREATE SEQUENCE in kept form."""
    return CreateSequence(name, sequence, owned_by, if_not_exists, definition(name, sequence))


def definition(name: Name, sequence: Sequence) -> str:
    """Return the statement that creates a sequence."""
    return (
        f"CREATE SEQUENCE {dotted(name.parts)} AS {format_type(sequence.type)}"
        f" START WITH {sequence.start} INCREMENT BY {sequence.increment}"
        f" MINVALUE {sequence.minimum} MAXVALUE {sequence.maximum}"
        f" CACHE {sequence.cache}{'' if sequence.cycle else ' NO'} CYCLE"
    )


def bind_alter_sequence(planning: Planning, statement: ast.AlterSequenceStatement) -> AlterSequence:
    """Return the plan of ALTER SEQUENCE; its id is None if IF EXISTS finds no sequence."""
    try:
        with located(statement.name.at):
            item = planning.catalog.resolve_item(statement.name.name)
    except UndefinedTable as error:
        if not statement.if_exists:
            raise
        return AlterSequence(None, Sequence(), None, None, "", (f"{error.message}, skipping",))
    return altered_sequence(planning, item, statement.options)


def altered_sequence(
    planning: Planning, item: ItemView, options: ast.SequenceOptions
) -> AlterSequence:
    """Return the plan that gives a sequence new options."""
    old = item.sequence
    if item.kind != "sequence" or old is None:
        raise WrongObjectType(f'"{item.name.item}" is not a sequence')
    given = options.given
    if "sequence name" in given:
        raise SyntaxError_(
            "invalid sequence option SEQUENCE NAME", position=options.at["sequence name"] + 1
        )
    owner: tuple[GlobalId, str] | tuple[()] | None = None
    if "owned by" in given:
        owner = _owner(planning, item.name, given["owned by"]) or ()
    new = sequence_of(options, old)
    restart = None
    if "restart" in given:
        restart = new.start if given["restart"] is None else int(given["restart"])
        within(new, restart, "RESTART")
    return AlterSequence(item.id, new, restart, owner, definition(item.name, new), ())


def _owner(planning: Planning, name: Name, parts: tuple[str, ...]) -> tuple[GlobalId, str] | None:
    if not parts:
        return None
    if len(parts) == 1:
        raise SyntaxError_(
            "invalid OWNED BY option", hint="Specify OWNED BY table.column or OWNED BY NONE."
        )
    table = planning.catalog.resolve_item(parts[:-1])
    if table.kind != "table":
        raise WrongObjectType(f'sequence cannot be owned by relation "{table.name.item}"')
    if parts[-1] not in table.desc.names:
        raise UndefinedColumn(
            f'column "{parts[-1]}" of relation "{table.name.item}" does not exist'
        )
    require_schema_of(table.name, name)
    return table.id, parts[-1]


def require_schema_of(table: Name, sequence: Name) -> None:
    """Raise an error if an owned sequence would be in another schema than its table."""
    if (table.database, table.schema) != (sequence.database, sequence.schema):
        raise ObjectNotInPrerequisiteState(
            "sequence must be in same schema as table it is linked to"
        )


def sequence_of(
    options: ast.SequenceOptions, old: Sequence | None = None, type: SqlType = INT8
) -> Sequence:
    """Return the sequence with `options`, based on `old` if given, otherwise of `type`."""
    given = options.given
    type = old.type if old is not None else type
    if isinstance(given.get("as"), ast.TypeName):
        type = type_of_name(given["as"], None)
    if type.name not in BOUNDS:
        raise InvalidParameterValue("sequence type must be smallint, integer, or bigint")
    bound = BOUNDS[type.name]
    increment = int(given.get("increment", old.increment if old is not None else 1))
    if increment == 0:
        raise InvalidParameterValue("INCREMENT must not be zero")
    up = increment > 0
    maximum, minimum = (bound - 1, 1) if up else (-1, -bound)
    if old is not None:  # keep the old values; a limit of the old type becomes that of the new type
        before = BOUNDS[old.type.name]
        typed = isinstance(given.get("as"), ast.TypeName)  # also if it names the same type
        if typed and old.maximum == before - 1:
            maximum = bound - 1
        elif "maxvalue" not in given:
            maximum = old.maximum
        if typed and old.minimum == -before:
            minimum = -bound
        elif "minvalue" not in given:
            minimum = old.minimum
    if given.get("maxvalue") is not None:
        maximum = int(given["maxvalue"])
    if given.get("minvalue") is not None:
        minimum = int(given["minvalue"])
    for word, value in (("MAXVALUE", maximum), ("MINVALUE", minimum)):
        if not -bound <= value < bound:
            raise InvalidParameterValue(
                f"{word} ({value}) is out of range for sequence data type {type}"
            )
    if minimum >= maximum:
        raise InvalidParameterValue(f"MINVALUE ({minimum}) must be less than MAXVALUE ({maximum})")
    default = old.start if old is not None else minimum if up else maximum
    start = int(given.get("start", default))
    cache = int(given.get("cache", old.cache if old is not None else 1))
    cycle = bool(given.get("cycle", old.cycle if old is not None else False))
    found = Sequence(type, start, increment, minimum, maximum, cache, cycle)
    within(found, start, "START")
    if cache <= 0:
        raise InvalidParameterValue(f"CACHE ({cache}) must be greater than zero")
    return found


def within(sequence: Sequence, value: int, word: str) -> None:
    """Raise an error if `value` is out of the sequence's range; `word` names it in messages."""
    if value < sequence.minimum:
        raise InvalidParameterValue(
            f"{word} value ({value}) cannot be less than MINVALUE ({sequence.minimum})"
        )
    if value > sequence.maximum:
        raise InvalidParameterValue(
            f"{word} value ({value}) cannot be greater than MAXVALUE ({sequence.maximum})"
        )


def identity_sequence(options: ast.SequenceOptions, type: SqlType) -> Sequence:
    """Return the sequence of an identity column of `type`."""
    if type.name not in BOUNDS:
        raise InvalidParameterValue("identity column type must be smallint, integer, or bigint")
    kept = {key: value for key, value in options.given.items() if key != "sequence name"}
    return sequence_of(ast.SequenceOptions(kept, options.at), type=type)


# --- reading -------------------------------------------------------------------------------


def sequence_relation(planning: Planning, view: ItemView) -> Relation:
    """Return the one-row relation of a sequence."""
    if planning.in_view:
        raise FeatureNotSupported("a view over a sequence is not supported")
    return Map(
        Join(()),
        tuple(
            Environment(f"sequence:{view.id}:{name}", column.type)
            for name, column in zip(view.desc.names, view.desc.columns, strict=True)
        ),
    )


# --- calls ---------------------------------------------------------------------------------


def bind_sequence_call(binder: ExpressionBinder, expr: ast.FunctionCall) -> Scalar:
    """Return a call of nextval, currval, lastval or setval."""
    name, planning = expr.name[-1], binder.planning
    fewest, most = FUNCTIONS[name]
    if not fewest <= len(expr.args) <= most:
        types = [type_of(binder.bind(arg)) for arg in expr.args]
        raise undefined_function(name, types, expr.at)
    if planning.in_view and binder.clause.name != _IN_DEFAULTS:
        raise FeatureNotSupported(
            f"{name} cannot be used in a view, an index or a constraint, "
            "because each call returns another value",
            position=expr.at + 1,
        )
    text = sequence_constant(expr.args[0]) if expr.args else None
    given = [binder.bind(each) for each in expr.args[text is not None :]]
    if text is not None:
        given.insert(0, Literal(None, UNKNOWN))
    args: list[Scalar] = []
    for scalar, target, arg in zip(given, (REGCLASS, INT8, BOOL), expr.args, strict=False):
        taken: Scalar | None = scalar  # a name that is not constant is looked up by the call
        if target != REGCLASS or type_of(scalar).name not in ("text", "varchar"):
            taken = coerce(planning, scalar, target, "implicit", at_of(arg))
        if taken is None:
            raise undefined_function(name, list(map(type_of, given)), expr.at)
        args.append(taken)
    if text is not None:
        args[0] = _named_sequence(binder, text)
    if args and type_of(args[0]).name not in ("text", "varchar"):  # a name is checked by the call
        need_sequence(planning, name, args[0])
    if name == "setval" and len(args) == 2:
        args.append(TRUE)
    return Call(name, tuple(args), INT8, planning.new_call())


# The rights of which one suffices for each function.
RIGHTS_OF_CALLS: Mapping[str, tuple[Privilege, ...]] = {
    "nextval": ("USAGE", "UPDATE"),
    "currval": ("USAGE", "SELECT"),
    "lastval": ("USAGE", "SELECT"),
    "setval": ("UPDATE",),
}


def need_sequence(planning: Planning, function: str, sequence: Scalar) -> None:
    """Note which right on a sequence a call needs; it is known by its oid."""
    first, *others = RIGHTS_OF_CALLS[function]
    oid = sequence.value if isinstance(sequence, Literal) else None
    if oid is not None or not isinstance(sequence, Literal):
        planning.needs.add(of_oid(oid), first, instead=tuple(others))


def _named_sequence(binder: ExpressionBinder, text: ast.String) -> Scalar:
    with located(text.at):
        item = binder.planning.catalog.resolve_item(name_parts(text.value))
    if item.kind != "sequence":
        raise WrongObjectType(f'"{item.name.item}" is not a sequence')
    binder.planning.depends_on.add(item.id)
    return Literal(item.oid, REGCLASS)


def sequence_constant(expr: ast.Expression) -> ast.String | None:
    """Return the regclass constant by which an argument names a sequence, or None."""
    text = expr
    if isinstance(expr, ast.CastTo) and expr.type.name[-1] == "regclass":
        text = expr.arg
    return text if isinstance(text, ast.String) and not is_digits(text.value) else None
