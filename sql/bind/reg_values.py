"""Convert names to values of regclass, regtype, ... and back.

Names are looked up at execution by functions such as `_regclass_of_text(text)` and
`_regclass_name(oid)`.
"""

from foreshore.errors import UndefinedTable
from foreshore.expr.columns import type_of
from foreshore.expr.ir import Call, Literal, Scalar
from foreshore.item_view import Name
from foreshore.sql.bind.sql_functions import function_named, inline
from foreshore.sql.parse.keywords import quote_string
from foreshore.sql.planning import Planning, located
from foreshore.sql.rewrite.full_names import dotted
from foreshore.types import OID, REGCLASS, TEXT, SqlType, array_of


def reg_constant(planning: Planning, text: str, target: SqlType, at: int) -> Scalar:
    """Return the oid that a `reg*` constant names, looked up at execution.

    A missing relation is an error of the statement, as in PostgreSQL. A view refers to the relation
    that had the name when the view was created, and depends on it.
    """
    from foreshore.sql.bind.coerce import literal_of

    if text == "-":
        return literal_of(planning, "0", target, "explicit", at)
    with located(at):
        if target.name != "regclass":
            return _looked_up(planning, Literal(text, TEXT), target)
        parts = name_parts(text)
        kept = planning.keeps_text and not planning.inlining
        try:
            item = planning.catalog.resolve_item(parts)
        except UndefinedTable:
            if kept or (len(parts) == 1 and planning.catalog.find_key(parts) is None):
                raise
            if planning.catalog.find_key(parts) is None:
                return _looked_up(planning, Literal(text, TEXT), target)
            return _relation_named(planning, parts)
        if kept and item.kind != "builtin":
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


def reg_of_text(planning: Planning, scalar: Scalar, target: SqlType, at: int) -> Scalar:
    """Return the oid of the object that a text names, NULL if there is none."""
    from foreshore.sql.bind.coerce import coerce

    text = coerce(planning, scalar, TEXT, "implicit", at)
    assert text is not None
    with located(at):
        return _looked_up(planning, text, target)


def _looked_up(planning: Planning, text: Scalar, target: SqlType) -> Scalar:
    function = function_named(f"_{target.name}_of_text")
    return inline(planning, function, (text,))


def reg_name(planning: Planning, scalar: Scalar, target: SqlType, at: int) -> Scalar:
    """Return the name of the object of a `reg*` value."""
    from foreshore.sql.bind.coerce import cast

    function = function_named(f"_{type_of(scalar).name}_name")
    with located(at):
        oid = Call("relabel", (scalar,), OID)
        return cast(planning, inline(planning, function, (oid,)), target, at)


def reg_names(planning: Planning, array: Scalar, target: SqlType, at: int) -> Scalar:
    """Return the names of the objects of an array of `reg*` values, as `target`."""
    from foreshore.sql.bind.coerce import cast

    element = type_of(array).element
    assert element is not None
    function = function_named(f"_{element.name}_names")
    with located(at):
        oids = Call("relabel", (array,), array_of(OID))
        return cast(planning, inline(planning, function, (oids,)), target, at)


def reg_of_texts(planning: Planning, array: Scalar, target: SqlType, at: int) -> Scalar:
    """Return the oids of the objects that an array of texts, or its text, names."""
    from foreshore.sql.bind.coerce import cast

    assert target.element is not None
    function = function_named(f"_{target.element.name}_of_texts")
    with located(at):
        return inline(planning, function, (cast(planning, array, array_of(TEXT), at),))


def name_parts(text: str) -> tuple[str, ...]:
    """Return the parts of a qualified name in a string, folded as in SQL."""
    from foreshore.sql.parse.cursor import Cursor
    from foreshore.sql.parse.lexer import tokenize

    cursor = Cursor(text, tokenize(text)[0])
    parts = [cursor.label()]
    while cursor.accept_symbol("."):
        parts.append(cursor.label())
    return tuple(parts)
