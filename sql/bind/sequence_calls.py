"""Sequences in expressions and FROM: calls of nextval, currval, lastval and setval, and their rows.

A call names its sequence by oid. Calls of nextval and setval are numbered (`Call.number`), so that
two equal calls remain distinct.
"""

from collections.abc import Mapping

from foreshore.digits import is_digits
from foreshore.errors import FeatureNotSupported, WrongObjectType
from foreshore.expr.columns import type_of
from foreshore.expr.ir import TRUE, Call, Environment, Join, Literal, Map, Relation, Scalar
from foreshore.item_view import ItemView
from foreshore.privileges import Privilege, of_oid
from foreshore.sql import ast
from foreshore.sql.bind.binder import Binder
from foreshore.sql.bind.coerce import coerce
from foreshore.sql.bind.near_functions import undefined_function
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.bind.positions import at_of
from foreshore.sql.bind.reg_values import name_parts
from foreshore.types import BOOL, INT8, REGCLASS, UNKNOWN

FUNCTIONS = {"nextval": (1, 1), "currval": (1, 1), "lastval": (0, 0), "setval": (2, 3)}
_IN_DEFAULTS = "DEFAULT expressions"


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


def bind_sequence_call(binder: Binder, expr: ast.FunctionCall) -> Scalar:
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


def _named_sequence(binder: Binder, text: ast.String) -> Scalar:
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
