"""Convert names to values of regclass, regtype, ... and back.

Names are looked up at execution by functions such as `_regclass_of_text(text)` and
`_regclass_name(oid)`.
"""

from foreshore.errors import InvalidName, UndefinedTable
from foreshore.expr.columns import type_of
from foreshore.expr.functions.rows import Failure
from foreshore.expr.functions.system import parts_of_name
from foreshore.expr.ir import Call, Literal, Scalar
from foreshore.item_view import Name
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.bind.sql_functions import function_named, inline
from foreshore.sql.parse.keywords import quote_string
from foreshore.sql.rewrite.full_names import dotted
from foreshore.types import OID, REGCLASS, TEXT, SqlType, array_of


def reg_constant(planning: Planning, text: str, target: SqlType, at: int) -> Scalar:
    """Return the oid that a `reg*` constant names, of the user's objects looked up at execution.

    A missing relation is an error of the statement, as in PostgreSQL. A view refers to the relation
    that had the name when the view was created, and depends on it.
    """
    with located(at):
        if target.name != "regclass":
            return reg_of_text(planning, Literal(text, TEXT), target)
        parts = name_parts(text)
        kept = planning.keeps_text and not planning.inlining
        try:
            item = planning.catalog.resolve_item(parts)
        except UndefinedTable:
            if kept or (len(parts) == 1 and planning.catalog.find_key(parts) is None):
                raise
            if planning.catalog.find_key(parts) is None:
                return reg_of_text(planning, Literal(text, TEXT), target)
            return _relation_named(planning, parts)
        if item.kind == "builtin":
            return Literal(item.oid, REGCLASS)  # which no statement changes
        if kept:
            planning.depends_on.add(item.id)
            _qualify_text(planning, at, item.name)
            return Literal(item.oid, REGCLASS)
        return _relation_named(planning, parts)


def _relation_named(planning: Planning, parts: tuple[str, ...]) -> Scalar:
    schema = Literal(parts[-2] if len(parts) > 1 else None, TEXT)
    function = function_named("_relation_in")
    return inline(planning, function, (schema, Literal(parts[-1], TEXT)))


def _qualify_text(planning: Planning, at: int, name: Name) -> None:
    """Record that the constant at `at` becomes a full name in kept text."""
    from foreshore.sql.parse.lexer import STRING, tokenize

    for token in tokenize(planning.text)[0]:
        if token.start == at and token.kind == STRING:
            planning.qualified.append((at, token.end, quote_string(dotted(name.parts))))


def reg_of_text(planning: Planning, text: Scalar, target: SqlType) -> Scalar:
    """Return the oid of the object that a text names, NULL if there is none."""
    function = function_named(f"_{target.name}_of_text")
    return inline(planning, function, (text,))


def reg_name(planning: Planning, scalar: Scalar) -> Scalar:
    """Return the name of the object of a `reg*` value."""
    function = function_named(f"_{type_of(scalar).name}_name")
    return inline(planning, function, (Call("relabel", (scalar,), OID),))


def reg_names(planning: Planning, array: Scalar) -> Scalar:
    """Return the names of the objects of an array of `reg*` values."""
    element = type_of(array).element
    assert element is not None
    function = function_named(f"_{element.name}_names")
    return inline(planning, function, (Call("relabel", (array,), array_of(OID)),))


def reg_of_texts(planning: Planning, texts: Scalar, target: SqlType) -> Scalar:
    """Return the oids of the objects that an array of texts names."""
    assert target.element is not None
    return inline(planning, function_named(f"_{target.element.name}_of_texts"), (texts,))


def name_parts(text: str) -> tuple[str, ...]:
    """Return the parts of a qualified name in a string, folded as in SQL; raises InvalidName."""
    try:
        return parts_of_name(text)
    except Failure as error:
        raise InvalidName("invalid name syntax") from error
