"""Bind CREATE and ALTER SEQUENCE."""

from foreshore.errors import (
    InvalidParameterValue,
    ObjectNotInPrerequisiteState,
    SyntaxError_,
    UndefinedColumn,
    UndefinedTable,
    WrongObjectType,
)
from foreshore.ids import GlobalId
from foreshore.item_view import ItemView, Name
from foreshore.sequence import BOUNDS, Sequence
from foreshore.sql import ast
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.bind.type_names import type_of_name
from foreshore.sql.plan import AlterSequence, CreateSequence
from foreshore.sql.rewrite.full_names import dotted
from foreshore.types import (
    BOOL,
    INT8,
    ColumnType,
    RelationDesc,
    SqlType,
    format_type,
)

SEQUENCE_DESC = RelationDesc(
    ("last_value", "log_cnt", "is_called"),
    (ColumnType(INT8, False), ColumnType(INT8, False), ColumnType(BOOL, False)),
)


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
