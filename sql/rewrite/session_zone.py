"""Write the session's time zone into the plan, as a constant, where a call depends on it.

Functions in plans are the same for every session, and read and print timestamptz in UTC.
PostgreSQL's use the session's time zone. So if the session has another zone, binding replaces each
such call by one that takes the zone as an argument:

    at::date             cast(timestamp,date)(timezone('Europe/Berlin', at))
    at + '1 day'         add(text,timestamptz,interval)('Europe/Berlin', at, ...)
    at::text             timestamptz_text('Europe/Berlin', at)

`RULES` holds every such call by its key. A plan is valid in every zone if `SessionZone.was_used` is
False after planning.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC

import msgspec

from foreshore.calendar import zone_named
from foreshore.datetime_text import ABBREVIATIONS
from foreshore.errors import FeatureNotSupported
from foreshore.expr.columns import type_of
from foreshore.expr.functions.casts import STRINGS
from foreshore.expr.functions.fields import unit_of
from foreshore.expr.functions.registry import Context, ResolvedTable, resolve_cast
from foreshore.expr.ir import Call, Column, Literal, Scalar
from foreshore.text import parse_text
from foreshore.types import (
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    Datum,
    SqlType,
    array_of,
    item_of,
    shaped_array,
)

_ANOTHER = "<+01>-01"


@dataclass
class SessionZone:
    """The zone in which a statement is planned, and whether the plan depends on it.

    Constants of a kept definition are read in the zone `of_constants`, whichever session reads the
    view.
    """

    name: str = "UTC"
    was_used: bool = False
    of_constants: str | None = None

    def applied(self, call: Call) -> Scalar:
        """Return the equivalent of `call`, which assumes UTC, in this zone."""
        types = (*map(type_of, call.args), call.type)
        if any(map(_has_ranges, types)) and _reads_or_prints(call.function):
            self.was_used = True
            if not self.is_utc:
                raise FeatureNotSupported(
                    "conversion between text and ranges of timestamptz is not supported in"
                    " another time zone than UTC"
                )
        if call.function in ZONED_PATHS:
            self.was_used = True
            return call if self.is_utc else _with_zone(_Zone(self.name), call)
        if not any(has_moments(type) or _has_clocks(type) for type in types):
            return call
        rule = RULES.get(call.function.replace("_total(", "("))
        if rule is None:
            return call
        result = rule(_Zone(self.name), call)
        if result is call:
            return call
        self.was_used = True
        return call if self.is_utc else result

    def applied_within(self, scalar: Scalar) -> Scalar:
        """Return `scalar` with each nested call replaced by its equivalent in this zone."""
        if not isinstance(scalar, Call):
            return scalar
        args = tuple(map(self.applied_within, scalar.args))
        return self.applied(msgspec.structs.replace(scalar, args=args))

    def applied_to_set(
        self, found: ResolvedTable, args: tuple[Scalar, ...]
    ) -> tuple[ResolvedTable, tuple[Scalar, ...]]:
        """Return the equivalent of a table function over its coerced arguments in this zone."""
        call = Call(found.key, args, found.result)
        result = self.applied(call)
        if result is call:
            return found, args
        assert isinstance(result, Call), result
        assert len(found.outputs) == 1, found  # the element column follows the arguments
        outputs = (Column(len(result.args), found.element.type),)
        return replace(found, key=result.function, outputs=outputs), result.args

    def read(self, text: str, type: SqlType) -> Datum:
        """Return the datum of a constant of `type`; raises DataError."""
        if self.of_constants is not None:
            return parse_text(text, type, zone=self.of_constants)
        value = parse_text(text, type, zone=self.name)
        if (has_moments(type) or _has_ranges(type) or _has_clocks(type)) and not self.was_used:
            # A text that names no zone has different values in any two zones.
            self.was_used = parse_text(text, type) != parse_text(text, type, zone=_ANOTHER)
        return value

    @property
    def is_utc(self) -> bool:
        """Return whether the zone is always equal to UTC."""
        return zone_named(self.name) is UTC


def has_moments(type: SqlType) -> bool:
    """Return whether values of `type` are timestamptz or arrays of it."""
    return _element_of(type).name == "timestamptz"


def _has_clocks(type: SqlType) -> bool:
    """Return whether values of `type` are timetz, or arrays of it."""
    return _element_of(type).name == "timetz"


def _has_ranges(type: SqlType) -> bool:
    """Return whether values of `type` are ranges of timestamptz, or arrays of them."""
    return _element_of(type).name in ("tstzrange", "tstzmultirange")


def _element_of(type: SqlType) -> SqlType:
    """Return the type of the elements of an array, or the type itself."""
    return item_of(type) if type.name == "shaped" else type.element or type


def _reads_or_prints(function: str) -> bool:
    return function in RULES or function.startswith(("cast(", "assign("))


class _Zone:
    """Build calls that take the zone `name`."""

    def __init__(self, name: str) -> None:
        # The colon prevents reading the name as an abbreviation, see `temporal.zone_of`.
        self.literal = Literal(f":{name}" if name.lower() in ABBREVIATIONS else name, TEXT)

    def call(self, stem: str, args: tuple[Scalar, ...], result: SqlType) -> Call:
        """Return a call with the zone before `args`; an array of any shape keeps its shape."""
        if type_of(args[0]).name == "shaped":
            (array,) = args
            items = Call("shaped_items(anyshaped)", args, array_of(item_of(type_of(array))))
            made = self.call(stem, (items,), array_of(item_of(result)))
            return Call("reshaped(anyarray,anyshaped)", (made, array), result)
        types = ",".join(_without_fields(type_of(arg)) for arg in args)
        return Call(f"{stem}(text,{types})", (self.literal, *args), result)

    def local(self, moment: Scalar) -> Scalar:
        """Return the local time of a timestamptz, or of each element of an array."""
        return self.call("timezone", (moment,), _of_kind(type_of(moment), TIMESTAMP))

    def moment(self, local: Scalar) -> Scalar:
        """Return the timestamptz of a local time."""
        return self.call("timezone", (local,), _of_kind(type_of(local), TIMESTAMPTZ))

    def text(self, scalar: Scalar, form: str = "timestamptz_text") -> Scalar:
        """Return a timestamptz or array of it as text, and any other value unchanged."""
        type = type_of(scalar)
        return self.call(form, (scalar,), _of_kind(type, TEXT)) if has_moments(type) else scalar


Rule = Callable[[_Zone, Call], Scalar]


def _without_fields(type: SqlType) -> str:
    """Return the type as it appears in function keys."""
    return f"{type.element.name}[]" if type.element is not None else type.name


def _of_kind(type: SqlType, element: SqlType) -> SqlType:
    """Return `element`, or an array of it if `type` is an array."""
    if type.name == "shaped":
        return shaped_array(element)
    return array_of(element) if type.element is not None else element


def _as(scalar: Scalar, target: SqlType, context: Context = "explicit") -> Scalar:
    """Return a cast that does not depend on the zone."""
    if type_of(scalar) == target:
        return scalar
    found = resolve_cast(type_of(scalar), target, context)
    assert found is not None, (scalar, target)
    return Call(found.key, (scalar,), target)


# --- casts -------------------------------------------------------------------------------------


def _cast(zone: _Zone, call: Call) -> Scalar:
    (arg,) = call.args
    source, target = type_of(arg), call.type
    context: Context = "assignment" if call.function.startswith("assign") else "explicit"
    name, other = (_element_of(type).name for type in (source, target))
    if name == "timestamptz" and other in ("timestamp", "date", "time"):
        return _as(zone.local(arg), target, context)
    if name == "timestamptz" and other in STRINGS:
        return _as(zone.text(arg), target, context)
    if other == "timestamptz" and name in ("timestamp", "date"):
        return _as(zone.moment(_as(arg, _of_kind(source, TIMESTAMP))), target, context)
    if other == "timetz" and target.name in ("array", "shaped") and name != "timetz":
        raise FeatureNotSupported(
            "casts to arrays of timetz are not supported in another time zone than UTC"
        )
    if other == "timetz" and name in ("time", "timestamptz"):
        return zone.call(f"timetz_of_{name}", (arg,), target)
    if other == "timetz" and name in STRINGS:
        return zone.call("timetz_of_text", (_as(arg, TEXT),), target)
    if other == "timestamptz" and name in STRINGS:
        return zone.call("timestamptz_of_text", (_as(arg, _of_kind(target, TEXT)),), target)
    return call


# --- functions ---------------------------------------------------------------------------------


def _with_zone(zone: _Zone, call: Call) -> Scalar:
    """Replace the call by the form that takes a zone."""
    return zone.call(call.function.partition("(")[0].removesuffix("_total"), call.args, call.type)


def _later(zone: _Zone, call: Call) -> Scalar:
    interval, moment = call.args
    return zone.call("add", (moment, interval), call.type)


def _trunc(zone: _Zone, call: Call) -> Scalar:
    key = "date_trunc(text,timestamptz,text)"
    return Call(key, (*call.args, zone.literal), call.type)


def _field(zone: _Zone, call: Call) -> Scalar:
    unit = call.args[0]
    if isinstance(unit, Literal) and unit_of(unit.value or "") == "epoch":
        return call
    return _with_zone(zone, call)


def _between(zone: _Zone, call: Call) -> Scalar:
    unit, *moments = call.args
    return Call("datediff(text,timestamp,timestamp)", (unit, *map(zone.local, moments)), call.type)


def _read(zone: _Zone, call: Call) -> Scalar:
    """Interpret the UTC result of the call as local time."""
    return zone.moment(Call("cast(timestamptz,timestamp)", (call,), TIMESTAMP))


def _shown(form: str) -> Rule:
    """Return the rule for functions that print arguments of any type."""

    def rule(zone: _Zone, call: Call) -> Scalar:
        args = tuple(zone.text(arg, form) for arg in call.args)
        return msgspec.structs.replace(call, args=args)

    return rule


# Paths into documents whose moments of a zone compare with local ones.
ZONED_PATHS = frozenset(
    f"jsonb_path_{name}_tz({args})"
    for name in ("exists", "match", "query", "query_array", "query_first")
    for args in ("jsonb,jsonpath", "jsonb,jsonpath,jsonb", "jsonb,jsonpath,jsonb,bool")
)

RULES: dict[str, Rule] = {
    **dict.fromkeys(
        (
            *(f"cast(timestamptz,{other})" for other in ("timestamp", "date", "time", *STRINGS)),
            *(f"cast({other},timetz)" for other in ("timestamptz", "time", *STRINGS)),
            *(f"cast({other},timestamptz)" for other in ("timestamp", "date", *STRINGS)),
            *(f"cast({array},{other})" for array in ("anyarray", "shaped") for other in STRINGS),
            *(f"cast({other},{array})" for array in ("anyarray", "shaped") for other in STRINGS),
            *(f"assign(timestamptz,{other})" for other in ("varchar", "bpchar")),
            *(f"assign(anyarray,{other})" for other in ("varchar", "bpchar")),
            *(f"assign(shaped,{other})" for other in ("varchar", "bpchar")),
            *("cast_array(anyarray)", "assign_array(anyarray)"),
            *("cast_shaped(anyshaped)", "assign_shaped(anyshaped)"),
        ),
        _cast,
    ),
    **dict.fromkeys(
        (
            "add(timestamptz,interval)",
            "subtract(timestamptz,interval)",
            "age(timestamptz,timestamptz)",
            "generate_series(timestamptz,timestamptz,interval)",
            "to_char(timestamptz,text)",
            "to_timestamp(text,text)",
        ),
        _with_zone,
    ),
    "add(interval,timestamptz)": _later,
    "date_trunc(text,timestamptz)": _trunc,
    "extract(text,timestamptz)": _field,
    "date_part(text,timestamptz)": _field,
    "datediff(text,timestamptz,timestamptz)": _between,
    "make_timestamptz(int4,int4,int4,int4,int4,float8)": _read,
    **dict.fromkeys(
        (
            "format(text,any)",
            "concat(any)",
            "quote_literal(anyelement)",
            "quote_nullable(anyelement)",
            "concat_ws(text,any)",
            "concatenate(text,anynonarray)",
            "concatenate(anynonarray,text)",
            "array_to_string(anyarray,text)",
            "array_to_string(anyarray,text,text)",
            "array_to_string(anyshaped,text)",
            "array_to_string(anyshaped,text,text)",
        ),
        _shown("timestamptz_text"),
    ),
    **dict.fromkeys(
        (
            *("to_jsonb(anyelement)", "jsonb_build_object(any)", "jsonb_build_array(any)"),
            *("to_json(anyelement)", "json_build_object(any)", "json_build_array(any)"),
            *(
                "array_to_json(anyarray)",
                "array_to_json(anyarray,bool)",
                "array_to_json(anyshaped)",
                "array_to_json(anyshaped,bool)",
                "json_member(any,any)",
                "_json_of_row(any)",
            ),
            "jsonb_member(any,any)",
        ),
        _shown("timestamptz_json_text"),
    ),
}
