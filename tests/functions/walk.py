"""All declared signatures, each called with the edges of its types.

    for call in calls():
        findings(call, rows_of(call.types, most=200))   what no call may do, none if all is well

A signature with polymorphic types is called with several types in their place. The rows are all
combinations of edges if they are few; otherwise each edge once beside a mixture, then others.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice, product
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa

from foreshore.datum import from_array, to_array
from foreshore.enum_labels import first_values
from foreshore.errors import DatabaseError, Unavailable, UserError
from foreshore.expr.evaluate import outcome
from foreshore.expr.functions.apply import apply
from foreshore.expr.functions.casting import text_of
from foreshore.expr.functions.function import (
    BY_KEY,
    NO_LITERAL,
    ScalarFunction,
    Signature,
    parse_type,
)
from foreshore.expr.functions.registry import resolve, scalar_function
from foreshore.expr.ir import Call, Column
from foreshore.query_memory import room
from foreshore.types import (
    FLOAT8,
    INT4,
    JSON,
    JSONB,
    NUMBER,
    TEXT,
    TIMESTAMP,
    Datum,
    DefinedType,
    SqlType,
    array_of,
    arrow_type,
    list_of,
    map_of,
    numeric_of_scale,
    record_of,
    shaped_array,
)
from tests.functions.edges import edges

ROOM = 4 << 20  # bytes that results may take
ENUM = SqlType(
    "enum",
    defined=DefinedType(70_000, 70_001, ("mood",), first_values(("a", "é")), ("a", "é")),
)
# Functions without an SQL name that plans call with arguments of their own making only: states of
# aggregates, places in windows, keys that another function has found, values of known structure.
OF_PLANS = frozenset(
    [
        *("average(float8,int8)", "corr(float8,float8,float8)", "cume_dist(int8,int8)"),
        "number_sum(numeric,numeric,int4,number[])",  # of the largest scale of numbers
        *("regr_intercept(float8,float8,float8,float8,int8)", "stddev_samp(float8,int8)"),
        *("stddev_pop(float8,int8)", "ntile(int8,int8,int4)", "bytes_joined(anyarray)"),
        *(
            "arg_max(anyarray)",
            "arg_min(anyarray)",
            "least_row(anyarray)",
            "lists_joined(anyarray)",
        ),
        *("frame_start(anyelement)", "frame_end(anyelement)", "range_start(anyelement)"),
        *("range_end(anyelement)", "column(anyrecord,int4)", "only_record(anyarray)"),
        *("acl_grantor(text[],text)", "acl_grantee(text[],text)", "acl_privilege(text[],text)"),
        *("acl_is_grantable(text[],text)", "compared(text,timestamp)"),  # the session's zone
        *(
            f"{name}(text,timestamptz)"
            for name in ("first_date", "last_date", "before_local", "after_local")
        ),
        *("json_in_lines(json)", "json_of_members(text[])"),
        *("jsonb_of_members(jsonb[])", "json_record(any)", "json_recordset(any)", "shaped(any)"),
        *("shaped_agg(anyarray)", "shaped_subscript(any)", "shaped_slice(any)"),
        "shaped_slice_assigned(anyshaped,anyshaped,int4)",
        "reshaped(anyarray,anyshaped)",
        *("keyword_code(text)", "keyword_is_bare(text)", "keyword_kind(text)"),
        *("keyword_bare(text)", "map_of_records(anyarray)", "cast_to_shaped(anyarray)"),
    ]
)
ITEMS = (INT4, TEXT, TIMESTAMP, JSONB, NUMBER, FLOAT8, ENUM)
ELEMENTS = frozenset({"any", "anyelement", "anynonarray", "anycompatible"})
OF_ITEMS: dict[str, Callable[[SqlType], SqlType]] = {
    **dict.fromkeys(("anyarray", "anycompatiblearray"), array_of),
    **dict.fromkeys(("anylist", "anycompatiblelist", "list"), list_of),
    **dict.fromkeys(("anymap", "map"), map_of),
    **dict.fromkeys(("anyrecord", "record"), lambda item: record_of(("a", "b"), (item, TEXT))),
    **dict.fromkeys(("anyshaped", "anycompatibleshaped", "shaped"), shaped_array),
    **dict.fromkeys(("anyenum", "enum"), lambda item: ENUM),
}


PAIR = record_of(("key", "value"), (TEXT, INT4))
GIVEN = {  # signatures that do not follow from the patterns alone
    "row(any)": [Signature((TEXT, INT4), record_of(("f1", "f2"), (TEXT, INT4)))],
    "map(any)": [Signature((TEXT, INT4), map_of(INT4))],
    "map_build(anylist)": [Signature((list_of(PAIR),), map_of(INT4))],
    "cast(number,number)": [Signature((NUMBER,), SqlType("number", 50, 10))],
    "shaped_items(anyshaped)": [Signature((shaped_array(INT4),), array_of(INT4))],
    "_json_of_row(any)": [Signature((TEXT, INT4), JSON)],
    "enum_range(anyenum)": [Signature((ENUM,), array_of(ENUM))],
    "enum_range(anyenum,anyenum)": [Signature((ENUM, ENUM), array_of(ENUM))],
}


class Walked(NamedTuple):
    """A function with the exact types of a call."""

    function: ScalarFunction
    types: Signature

    @property
    def id(self) -> str:
        """Return the key with the types."""
        args = ", ".join(map(str, self.types.args))
        return f"{self.function.key}: ({args}) -> {self.types.result}"


def calls() -> Iterator[Walked]:
    """Yield the calls of each declared function."""
    for key in BY_KEY:
        if key in OF_PLANS:
            continue
        function = scalar_function(key)  # of the registry, which loads all families
        seen = set()
        for types in signatures(function):
            if types not in seen:
                seen.add(types)
                yield Walked(function, types)


def signatures(function: ScalarFunction) -> Iterator[Signature]:
    """Yield the types of calls, one for each type of items if the function is polymorphic."""
    if function.key in GIVEN:
        yield from GIVEN[function.key]
        return
    is_polymorphic = any(arg in ELEMENTS or arg in OF_ITEMS for arg in function.args)
    for item in ITEMS if is_polymorphic else ITEMS[:1]:
        args = tuple(_concrete(arg, item) for arg in function.args)
        try:
            yield Signature(args, _result(function, args, item))
        except UserError:  # there is no such call
            continue


def _concrete(pattern: str, item: SqlType) -> SqlType:
    if pattern in ELEMENTS:
        return item
    if pattern in OF_ITEMS:
        return OF_ITEMS[pattern](item)
    return parse_type(pattern)


def _result(function: ScalarFunction, args: tuple[SqlType, ...], item: SqlType) -> SqlType:
    if callable(function.result):
        return function.result(args, (NO_LITERAL,) * len(args))
    if function.result in ELEMENTS and args:
        return args[0] if function.result == "any" and len(args) == 1 else item
    if function.result == "numeric":
        return next((each for each in args if each.name == "numeric"), numeric_of_scale(0))
    return _concrete(function.result, item)


def rows_of(call: Walked, most: int) -> list[tuple[Any, ...]]:
    """Return rows of edges, at most so many, the same each time."""
    of = [edges(type) for type in call.types.args]
    if call.function.key.replace("_total(", "(", 1) in BY_KEY.keys() - {call.function.key}:
        of = _of_total(call, of)
    count = 1
    for each in of:
        count *= len(each)
    if count <= most:
        return list(product(*of))
    random = Random(36)
    rows = []
    for place, values in enumerate(of):
        for value in values:
            row = [random.choice(each) for each in of]
            row[place] = value
            rows.append(tuple(row))
    random.shuffle(rows)
    while len(rows) < most:
        rows.append(tuple(random.choice(each) for each in of))
    return rows[:most]


def _of_total(call: Walked, of: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the edges for the form of a function whose literal is known not to fail."""
    place = 0 if call.function.name in ("extract", "date_part", "date_trunc") else 1
    others = [NO_LITERAL] * len(of)

    def is_total(literal: Any) -> bool:
        literals = (*others[:place], literal, *others[place + 1 :])
        try:
            return resolve(call.function.name, call.types.args, literals).key == call.function.key
        except UserError:
            return False

    return [*of[:place], tuple(each for each in of[place] if is_total(each)), *of[place + 1 :]]


def findings(call: Walked, rows: Sequence[tuple[Any, ...]]) -> list[str]:
    """Return what goes wrong when the kernel is run over `rows`."""
    columns = [to_array([row[i] for row in rows], t) for i, t in enumerate(call.types.args)]
    try:
        with room(ROOM):
            values, errors = apply(call.function, call.types, columns)
    except Unavailable:
        if len(rows) < 2:
            return []
        half = len(rows) // 2
        return findings(call, rows[:half]) + findings(call, rows[half:])
    except DatabaseError as error:
        return [_shown(call, f"raises {error.sqlstate} {error.message}")]
    except Exception as error:
        return [_shown(call, f"raises {error!r}")]
    return [*_errors_of(call, rows, errors), *_values_of(call, rows, values)]


def _errors_of(call: Walked, rows: Sequence[tuple[Any, ...]], errors: pa.Array | None) -> list[str]:
    if errors is None:
        return []
    only = call.function.only_error(call.types)
    found = []
    for row, error in zip(rows, errors.to_pylist(), strict=True):
        if error is not None and error.startswith("XX"):
            found.append(_shown(call, error, row))
        elif error is not None and only is not None and error != only:
            found.append(_shown(call, f"{error}, and not {only}", row))
    return found


def _values_of(call: Walked, rows: Sequence[tuple[Any, ...]], values: pa.Array) -> list[str]:
    if values.type != arrow_type(call.types.result):
        return [_shown(call, f"gives {values.type}")]
    if len(values) != max(len(rows), 1 if not call.types.args else 0) and call.types.args:
        return [_shown(call, f"gives {len(values)} values for {len(rows)} rows")]
    try:
        text_of(values, call.types.result)
    except Exception as error:
        return [_shown(call, f"gives values that cannot be shown: {error!r}")]
    return []


def _shown(call: Walked, what: str, row: tuple[Any, ...] | None = None) -> str:
    given = "" if row is None else f" for {', '.join(repr(each)[:60] for each in row)}"
    return f"{call.id}: {what[:200]}{given}"


# --- other engines -------------------------------------------------------------------------


def sampled(every: int) -> Iterator[tuple[Walked, Call, list[tuple[Datum, ...]]]]:
    """Yield calls over columns, with rows that the kernels take."""
    for call in islice(calls(), 0, None, every):
        if not call.types.args or call.function.volatility == "volatile":
            continue
        scalar = Call(
            call.function.key,
            tuple(Column(i, type) for i, type in enumerate(call.types.args)),
            call.types.result,
        )
        rows = [row for row in rows_of(call, 12) if not _is_long(row)]
        yield call, scalar, rows


def _is_long(row: Sequence[object]) -> bool:
    """Whether a result may be long: engines have no room that bounds it."""
    return any(isinstance(each, int) and abs(each) >= 1 << 30 for each in row)


def wanted(call: Walked, scalar: Call, rows: list[tuple[Datum, ...]]) -> tuple[Any, Any]:
    """Return the values and the errors that the kernels give."""
    arrays = [to_array([row[i] for row in rows], t) for i, t in enumerate(call.types.args)]
    with room(16 * ROOM):
        values, errors = outcome(scalar, arrays, len(rows))
    return (
        from_array(values, call.types.result),
        [None] * len(rows) if errors is None else errors.to_pylist(),
    )


def different(
    call: Walked, found: tuple[Any, Any], wanted: tuple[Any, Any], rows: Any
) -> list[str]:
    """Return the rows for which another value or error was found."""
    return [
        f"{call.id} {str(row)[:80]}: {str(have)[:80]}, and not {str(want)[:80]}"
        for row, have, want in zip(
            rows, zip(*found, strict=True), zip(*wanted, strict=True), strict=True
        )
        if repr(have) != repr(want)
    ]
