"""Kernels of casts between numbers, and between every type and text.

`foreshore.text` reads and writes text, as for values of clients.
"""

import decimal
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.datum import from_array, numeric_datum
from foreshore.errors import data_error
from foreshore.expr.functions import single_byte_casts  # noqa: F401 - declares before this
from foreshore.expr.functions.apply import apply
from foreshore.expr.functions.casts import REGS, STRINGS, Context, exact_cast, resolve_cast
from foreshore.expr.functions.conditional import template
from foreshore.expr.functions.decimals import (
    divide_half_up,
    errors_where,
    limit_of,
    pack,
    rescale,
    scale_of,
    text_where,
    unscaled,
    valid_of,
)
from foreshore.expr.functions.floats import floats
from foreshore.expr.functions.function import (
    BY_KEY,
    Kernel,
    Outcome,
    Renderer,
    Resolved,
    Signature,
    hidden,
)
from foreshore.expr.functions.numeric import decimal_name
from foreshore.expr.functions.quotients import either_error, with_errors
from foreshore.expr.functions.rows import (
    Failure,
    WithSingle,
    collect,
    out_of_range,
    rowwise,
    single,
    unchanged,
)
from foreshore.network import address_of, address_text
from foreshore.text import format_text, limit_length, parse_text
from foreshore.types import BIT_TYPES, NUMERIC_DIGITS, TYPES, Datum, SqlType, array_of, arrow_type

INTEGERS = ("int2", "int4", "int8")
_WIDE = decimal.Context(prec=4 * NUMERIC_DIGITS)
_BITS = {"int2": 16, "int4": 32, "int8": 64}
_BOUNDS = {n: (-(1 << (b - 1)), (1 << (b - 1)) - 1) for n, b in _BITS.items()} | {
    "oid": (0, 2**32 - 1),
    "mz_timestamp": (0, 2**63 - 1),
}
FIELD_OVERFLOW = data_error("22003", "numeric field overflow")


def _range_error(types: Signature) -> str:
    return out_of_range(types.result)


def native(dialect: Renderer, types: Signature, args: Sequence[str]) -> str:
    """Render as the engine's own cast, NULL if it fails."""
    return f"TRY_CAST({args[0]} AS {dialect.type_name(types.result)})"


def plain(dialect: Renderer, types: Signature, args: Sequence[str]) -> str:
    """Render as the engine's own cast, which cannot fail."""
    return f"CAST({args[0]} AS {dialect.type_name(types.result)})"


# --- numbers ---------------------------------------------------------------------------------


def _bounded(types: Signature, values: Any, valid: pa.Array | None) -> Outcome:
    """Return integers of `values` (NumPy, int64 or objects), with errors where out of range."""
    low, high = _BOUNDS[types.result.name]
    arrow = arrow_type(types.result)
    mask = None if valid is None else ~valid.to_numpy(zero_copy_only=False)
    outside = np.asarray((values < low) | (values > high), dtype=bool)
    if mask is not None:
        outside &= ~mask
    kept = np.where((values < low) | (values > high), 0, values).astype(np.int64)
    if not outside.any():
        return pa.array(kept, pa.int64(), mask=mask).cast(arrow)
    missing = outside if mask is None else outside | mask
    errors = text_where(outside, out_of_range(types.result))
    return pa.array(kept, pa.int64(), mask=missing).cast(arrow), errors


def _integer(types: Signature, a: pa.Array) -> Outcome:
    return _bounded(types, unscaled(a), valid_of(a))


def _widening(types: Signature, a: pa.Array) -> Outcome:
    return a.cast(arrow_type(types.result))


def _one_integer(types: Signature) -> Callable[[int], int]:
    """Return the function that casts one value as `_integer` does."""
    low, high = _BOUNDS[types.result.name]

    def cast(value: int) -> int:
        if not low <= value <= high:
            raise Failure(out_of_range(types.result))
        return value

    return cast


def _one_widened(types: Signature) -> Callable[[Datum], Datum]:
    return unchanged


def _one_numeric(types: Signature) -> Callable[[int], str]:
    """Return the function that casts one integer as `_to_numeric` does."""
    scale, limit = scale_of(types.result), limit_of(types.result)
    zeros = f".{'0' * scale}" if scale and not types.result.trim else ""

    def cast(value: int) -> str:
        if abs(value) * 10**scale >= limit:
            raise Failure(FIELD_OVERFLOW)
        return f"{value}{zeros}"

    return cast


def _float_to_integer(types: Signature, a: pa.Array) -> Outcome:
    values = np.rint(floats(a).astype(np.float64))
    low, high = _BOUNDS[types.result.name]
    outside = ~((values >= low) & (values < float(high) + 1))
    valid = valid_of(a)
    if valid is not None:
        outside &= valid.to_numpy(zero_copy_only=False)
    kept = np.where(outside, 0, values).astype(np.int64)
    mask = outside if valid is None else outside | ~valid.to_numpy(zero_copy_only=False)
    result = pa.array(kept, pa.int64(), mask=mask).cast(arrow_type(types.result))
    if not outside.any():
        return result
    return result, text_where(outside, out_of_range(types.result))


def _numeric_to_integer(types: Signature, a: pa.Array) -> Outcome:
    return _bounded(types, rescale(unscaled(a), -scale_of(types.args[0])), valid_of(a))


def _one_rounded(types: Signature) -> Callable[[str], int]:
    """Return the function that casts one numeric as `_numeric_to_integer` does."""
    low, high = _BOUNDS[types.result.name]

    def cast(text: str) -> int:
        value = int(Decimal(text).to_integral_value(ROUND_HALF_UP))
        if not low <= value <= high:
            raise Failure(out_of_range(types.result))
        return value

    return cast


def _to_numeric(types: Signature, a: pa.Array) -> Outcome:
    by = scale_of(types.result) - scale_of(types.args[0])
    exact = unscaled(a)
    values, valid = rescale(exact, by), valid_of(a)
    packed, errors = pack(values, valid, scale_of(types.result), limit_of(types.result))
    if by < 0 and types.result.length is None:
        lossy = errors_where(exact % 10**-by != 0, FIELD_OVERFLOW)
        if lossy is not None:
            errors = lossy if errors is None else either_error(errors, lossy)
            packed, errors = with_errors(packed, errors)
    if errors is None:
        return packed
    return packed, pc.if_else(
        errors.is_valid(), pa.scalar(FIELD_OVERFLOW), pa.scalar(None, pa.string())
    )


def _one_rescaled(types: Signature) -> Callable[[str], Datum]:
    """Return the function that casts one numeric as `_to_numeric` does."""
    result = types.result
    unit = Decimal(1).scaleb(-scale_of(result))
    limit = Decimal(limit_of(result)).scaleb(-scale_of(result))

    def cast(text: str) -> Datum:
        exact = Decimal(text)
        value = _WIDE.plus(exact.quantize(unit, ROUND_HALF_UP, _WIDE))  # no -0
        if value.copy_abs() >= limit or (result.length is None and value != exact):
            raise Failure(FIELD_OVERFLOW)
        return numeric_datum(value, result)

    return cast


def _numeric_can_overflow(types: Signature) -> bool:
    source, target = types.args[0], types.result
    if target.length is None and scale_of(source) > scale_of(target):
        return True  # a digit beyond the declared scale
    if source.name in INTEGERS:
        digits = {"int2": 5, "int4": 10, "int8": 19}[source.name]
    elif source.length is not None:
        # One more digit for rounding up if the scale shrinks.
        digits = source.length - scale_of(source) + (scale_of(source) > scale_of(target))
    else:
        digits = NUMERIC_DIGITS - scale_of(source) + (scale_of(source) > scale_of(target))
    return digits > (target.length or NUMERIC_DIGITS) - scale_of(target)


def _float_to_numeric(types: Signature, a: pa.Array) -> Outcome:
    digits = 6 if types.args[0].name == "float4" else 15
    scale, limit = scale_of(types.result), limit_of(types.result)
    declared = types.result.length is not None

    def convert(value: float) -> str:
        if value != value or value in (float("inf"), float("-inf")):
            raise Failure(data_error("0A000", f'the numeric value "{value}" is not supported'))
        exact = Decimal(f"{value:.{digits - 1}e}")
        places = -int(exact.normalize().as_tuple().exponent)
        if places > scale and not declared:
            raise Failure(data_error("22003", "value overflows numeric format"))
        top, bottom = exact.as_integer_ratio()
        units = int(divide_half_up(np.array([top * 10**scale], dtype=object), bottom)[0])
        if abs(units) >= limit:
            raise Failure(FIELD_OVERFLOW)
        return str(Decimal(units).scaleb(-scale))

    from decimal import localcontext

    with localcontext() as context:
        context.prec = 400
        return rowwise(types, convert, a)


def _numeric_to_float(types: Signature, a: pa.Array) -> Outcome:
    values, scale = unscaled(a), scale_of(types.args[0])
    mask = None if valid_of(a) is None else a.is_null().to_numpy(zero_copy_only=False)
    arrow = arrow_type(types.result)
    if (
        values.dtype != object
        and scale <= 22
        and (len(values) == 0 or int(np.abs(values).max()) < 2**53)
    ):
        out = values.astype(np.float64) / np.float64(10.0**scale)  # a single rounding is correct
    else:
        out = np.array([_ratio(v, scale) for v in values.tolist()], dtype=np.float64)
    if types.result.name == "float4":
        # Convert through text, as PostgreSQL does, to round once from the decimal.
        shown = np.array([np.float32(_text(v, scale)) for v in values.tolist()], dtype=np.float32)
        return pa.array(shown, arrow, mask=mask)
    return pa.array(out, arrow, mask=mask)


def _ratio(value: int, scale: int) -> float:
    return float(value / 10**scale)  # Python divides integers with one correct rounding


def _text(value: int, scale: int) -> str:
    return f"{value}e-{scale}"


def _float_widening(types: Signature, a: pa.Array) -> Outcome:
    return a.cast(pa.float64())


def _float_narrowing(types: Signature, a: pa.Array) -> Outcome:
    values = floats(a)
    with np.errstate(all="ignore"):
        out = values.astype(np.float32)
    over = np.isinf(out) & ~np.isinf(values)
    under = (out == 0) & (values != 0)
    mask = over | under
    valid = valid_of(a)
    nulls = np.zeros(len(out), bool) if valid is None else ~valid.to_numpy(zero_copy_only=False)
    result = pa.array(out, pa.float32(), mask=mask | nulls)
    if not mask.any():
        return result
    text = [
        data_error("22003", "value out of range: overflow")
        if o
        else data_error("22003", "value out of range: underflow")
        if u
        else None
        for o, u in zip(over, under, strict=True)
    ]
    return result, pa.array(text, pa.string())


def _to_float(types: Signature, a: pa.Array) -> Outcome:
    return pa.array(unscaled(a), pa.int64(), mask=_mask(a)).cast(
        arrow_type(types.result), safe=False
    )


def _one_float(types: Signature) -> Callable[..., Datum] | None:
    return float if types.result.name == "float8" else None


def _mask(a: pa.Array) -> Any:
    return a.is_null().to_numpy(zero_copy_only=False) if a.null_count else None


def _numeric_sql(dialect: Renderer, types: Signature, args: Sequence[str]) -> str | None:
    source, target = types.args[0], types.result
    if scale_of(source) > scale_of(target):
        return None  # only the kernel rounds correctly
    name = decimal_name(scale_of(target))
    if target.length is not None and _numeric_can_overflow(types):
        bound = f"DECIMAL({target.length},{scale_of(target)})"
        return f"CAST(TRY_CAST({args[0]} AS {bound}) AS {name})"
    return f"TRY_CAST({args[0]} AS {name})"


for _source in INTEGERS:
    for _target in INTEGERS:
        if _source == _target:
            continue
        _wider = _BITS[_source] < _BITS[_target]
        hidden(
            f"cast({_source},{_target})",
            _source,
            _target,
            _widening if _wider else _integer,
            one=_one_widened if _wider else _one_integer,
            fallible=not _wider,
            error=None if _wider else _range_error,
            duckdb=plain if _wider else native,
            spark=plain if _wider else native,
        )
    for _target in ("float4", "float8"):
        hidden(
            *(f"cast({_source},{_target})", _source, _target, _to_float),
            one=_one_float,
            duckdb=plain,
            spark=plain,
        )
        hidden(
            f"cast({_target},{_source})",
            _target,
            _source,
            _float_to_integer,
            fallible=True,
            error=_range_error,
        )
    hidden(
        f"cast({_source},numeric)",
        _source,
        "numeric",
        _to_numeric,
        one=_one_numeric,
        fallible=True,
        fails=_numeric_can_overflow,
        error=FIELD_OVERFLOW,
        duckdb=_numeric_sql,
        spark=_numeric_sql,
    )
    hidden(
        f"cast(numeric,{_source})",
        "numeric",
        _source,
        _numeric_to_integer,
        one=_one_rounded,
        fallible=True,
        error=_range_error,
        duckdb=lambda d, t, a: native(d, t, a) if not scale_of(t.args[0]) else None,
        spark=lambda d, t, a: native(d, t, a) if not scale_of(t.args[0]) else None,
    )

hidden(
    "cast(numeric,numeric)",
    "numeric",
    "numeric",
    _to_numeric,
    one=_one_rescaled,
    fallible=True,
    fails=_numeric_can_overflow,
    error=FIELD_OVERFLOW,
    duckdb=_numeric_sql,
    spark=_numeric_sql,
)
for _t in ("float4", "float8"):
    hidden(f"cast({_t},numeric)", _t, "numeric", _float_to_numeric, fallible=True)
    hidden(f"cast(numeric,{_t})", "numeric", _t, _numeric_to_float, one=_one_float)
hidden("cast(float4,float8)", "float4", "float8", _float_widening, duckdb=plain, spark=plain)
hidden("cast(float8,float4)", "float8", "float4", _float_narrowing, fallible=True)

OID_RANGE = data_error("22003", "OID out of range")


def _wrapping(types: Signature, a: pa.Array) -> Outcome:
    return pa.array(unscaled(a) & 0xFFFFFFFF, pa.int64(), mask=_mask(a))


def _wrapping_sql(dialect: Renderer, types: Signature, args: Sequence[str]) -> str:
    return f"(CAST({args[0]} AS BIGINT) & CAST(4294967295 AS BIGINT))"


def _oid(types: Signature, a: pa.Array) -> Outcome:
    values = unscaled(a)
    outside = (values < 0) | (values > 0xFFFFFFFF)
    mask = _mask(a)
    missing = outside if mask is None else outside | mask
    errors = text_where(outside, OID_RANGE)
    return pa.array(values, pa.int64(), mask=missing), errors


for _other in ("oid", *REGS):
    for _t in ("int2", "int4"):
        hidden(
            f"cast({_t},{_other})", _t, _other, _wrapping, duckdb=_wrapping_sql, spark=_wrapping_sql
        )
    hidden(f"cast(int8,{_other})", "int8", _other, _oid, fallible=True, error=OID_RANGE)
    hidden(
        f"cast({_other},int4)",
        _other,
        "int4",
        lambda types, a: pa.array(unscaled(a).astype(np.int32), pa.int32(), mask=_mask(a)),
    )
for _t in INTEGERS:
    hidden(
        f"cast({_t},mz_timestamp)",
        _t,
        "mz_timestamp",
        _integer,
        fallible=True,
        error=_range_error,
    )
hidden("cast(mz_timestamp,int8)", "mz_timestamp", "int8", _widening, duckdb=plain, spark=plain)
hidden("cast(numeric,mz_timestamp)", "numeric", "mz_timestamp", _numeric_to_integer, fallible=True)
hidden("cast(mz_timestamp,numeric)", "mz_timestamp", "numeric", _to_numeric)


def _boolean(types: Signature, a: pa.Array) -> Outcome:
    return pc.not_equal(a, pa.scalar(0, a.type))


hidden(
    "cast(int4,bool)",
    "int4",
    "bool",
    _boolean,
    duckdb=template("({0} <> 0)"),
    spark=template("({0} <> 0)"),
)
hidden("cast(bool,int4)", "bool", "int4", _widening, duckdb=plain, spark=plain)


# --- text ------------------------------------------------------------------------------------


def text_of(array: pa.Array, type: SqlType) -> list[str | None]:
    """Return the cast of each value to text."""
    if type.name in INTEGERS or type.name in ("oid", "mz_timestamp"):
        return list(array.cast(pa.string()).to_pylist())
    if type.name in STRINGS:
        return list(array.to_pylist())
    if type.name == "bool":
        return [None if v is None else "true" if v else "false" for v in array.to_pylist()]
    if type.name == "inet":  # with the mask, which results omit if it has all bits
        data = array.to_pylist()
        return [None if d is None else address_text(address_of(d), masked=True) for d in data]
    return [None if d is None else format_text(d, type) for d in from_array(array, type)]


def _cut(type: SqlType) -> Callable[[str], str]:
    """Return a text explicitly cast to the string type, which truncates it."""
    match type.name:
        case "bpchar":
            return lambda text: (text if type.length is None else text[: type.length]).rstrip(" ")
        case "varchar":
            return lambda text: text if type.length is None else text[: type.length]
        case "name" | "char":
            return lambda text: str(parse_text(text, type))
        case _:
            return lambda text: text


def _limit(type: SqlType) -> Callable[[str], str]:
    """Return a text assigned to the string type; too long a text is an error."""
    if type.name == "bpchar":
        return lambda text: limit_length(text, type).rstrip(" ")
    return lambda text: limit_length(text, type)


def _to_string(fit: Callable[[SqlType], Callable[[str], str]]) -> Kernel:
    def kernel(types: Signature, a: pa.Array) -> Outcome:
        is_text, result = types.args[0].name in STRINGS, types.result.name
        if is_text and result == "name" and pc.max(pc.binary_length(a)).as_py() in range(64):
            return a
        texts = a.to_pylist() if is_text else text_of(a, types.args[0])
        if result == "text":
            return pa.array(texts, pa.string())
        return collect(types, fit(types.result), ((t,) for t in texts))

    def one(types: Signature) -> Callable[..., Datum] | None:
        source, result = types.args[0].name, types.result
        if source not in INTEGERS and source not in STRINGS:
            return None
        if result.name == "text":
            return str
        fitted = fit(result)
        return single(lambda datum: fitted(str(datum)), result)

    return WithSingle(kernel, one)


def _parsed(types: Signature) -> Callable[..., Datum]:
    """Return the function of a text that gives a datum of the result's type."""
    target = types.result
    return single(lambda text: parse_text(text, target), target)


def _from_string(types: Signature, a: pa.Array) -> Outcome:
    target = types.result
    if target.name in INTEGERS and len(a) > 8:
        shaped = pc.match_substring_regex(a, r"^-?[0-9]{1,18}$")
        if pc.all(shaped).as_py() is not False:
            try:
                return a.cast(arrow_type(target))
            except pa.ArrowInvalid:
                pass
    return rowwise(types, lambda text: parse_text(text, target), a)


def _to_text_sql(dialect: Renderer, types: Signature, args: Sequence[str]) -> str | None:
    source = types.args[0]
    text = dialect.type_name(types.result)
    if types.result.name != "text":
        return None
    if source.name in INTEGERS or source.name in ("oid", "mz_timestamp", "bool"):
        return f"CAST({args[0]} AS {text})"
    if source.name == "numeric" and not source.trim and dialect.name == "duckdb":
        return f"CAST({args[0]} AS {text})"
    return None


def _cut_sql(dialect: Renderer, types: Signature, args: Sequence[str]) -> str | None:
    if types.args[0].name not in ("text", "varchar", "bpchar") or types.result.name != "varchar":
        return None
    return f"substring({args[0]}, 1, {types.result.length})" if types.result.length else args[0]


def _declare_text_casts() -> None:
    others = [n for n in TYPES if n not in ("unknown", "void", "array")]
    for source in others:
        for target in ("text", "varchar", "bpchar", "name", "char"):
            key = f"cast({source},{target})"
            rendering = _cut_sql if source in STRINGS else _to_text_sql
            if key not in BY_KEY:
                hidden(key, source, target, _to_string(_cut), duckdb=rendering, spark=rendering)
        for target in ("varchar", "bpchar"):
            hidden(f"assign({source},{target})", source, target, _to_string(_limit), fallible=True)
    for source in STRINGS:
        for target in others:
            key = f"cast({source},{target})"
            if target not in STRINGS and target not in BIT_TYPES and key not in BY_KEY:
                hidden(key, source, target, _from_string, fallible=True, one=_parsed)


_declare_text_casts()


# --- arrays ----------------------------------------------------------------------------------


def with_elements(a: pa.Array, values: pa.Array, errors: pa.Array | None, type: SqlType) -> Outcome:
    """Return arrays of `type` with the lengths of `a`, from consecutive `values`.

    An array fails with the first error of its elements in `errors`.
    """
    lengths = pc.list_value_length(a)
    offsets = np.concatenate(([0], np.cumsum(lengths.fill_null(0).to_numpy())))
    starts = pa.array(offsets.astype(np.int32), mask=np.append(_nulls(a), False))
    result = pa.ListArray.from_arrays(starts, values, type=arrow_type(type))
    if errors is None:
        return result
    failed: list[str | None] = [None] * len(a)
    parents = pc.list_parent_indices(a)
    for parent, error in zip(parents.to_pylist(), errors.to_pylist(), strict=True):
        if error is not None and failed[parent] is None:
            failed[parent] = error
    texts = pa.array(failed, pa.string())
    return pc.if_else(texts.is_null(), result, pa.scalar(None, result.type)), texts


def _cast_array(context: Context) -> Kernel:
    def kernel(types: Signature, a: pa.Array) -> Outcome:
        source, target = types.args[0].element, types.result.element
        assert source is not None, types
        assert target is not None, types
        step = _step(source, target, context)
        function = BY_KEY[step.key]
        items = pc.list_flatten(a)
        values, errors = apply(function, Signature((source,), step.result), [items])
        if values.type != arrow_type(target):
            values = values.cast(arrow_type(target))
        return with_elements(a, values, errors, types.result)

    return kernel


def _one_cast_array(types: Signature) -> Callable[[Datum], Datum] | None:
    """Return the cast of one array, if that of its elements is one of single data."""
    source, target = types.args[0].element, types.result.element
    assert source is not None, types
    assert target is not None, types
    step = exact_cast(source, target)
    of_type = BY_KEY[step.key].one
    one = None if of_type is None else of_type(Signature((source,), step.result))
    if one is None:
        return None

    def cast(array: Any) -> Datum:
        return tuple([None if item is None else one(item) for item in array])

    return cast


def _step(source: SqlType, target: SqlType, context: Context) -> Resolved:
    """Return the cast of elements."""
    if context == "explicit":
        return exact_cast(source, target)
    found = resolve_cast(source, target, context)
    assert found is not None, (source, target)
    return found


def _nulls(a: pa.Array) -> Any:
    return a.is_null().to_numpy(zero_copy_only=False)


def _array_may_fail(types: Signature) -> bool:
    source, target = types.args[0].element, types.result.element
    assert source is not None, types
    assert target is not None, types
    step = exact_cast(source, target)
    return BY_KEY[step.key].may_fail(Signature((source,), step.result))


hidden(
    "cast_array(anyarray)",
    "anyarray",
    "anyarray",
    _cast_array("explicit"),
    fallible=True,
    fails=_array_may_fail,
    one=_one_cast_array,
)
hidden("assign_array(anyarray)", "anyarray", "anyarray", _cast_array("assignment"), fallible=True)


def is_of_sized_strings(type: SqlType) -> bool:
    """Return whether values of `type` are arrays of strings with a declared length."""
    element = type.members[0].type if type.name == "shaped" else type.element
    return element is not None and element.name in STRINGS and element.length is not None


def array_of_text(text: str, type: SqlType) -> tuple[Datum, ...]:
    """Return a text explicitly cast to an array of sized strings, truncating each.

    Raises DataError.
    """
    assert type.element is not None, type
    cut = _cut(type.element)
    whole = parse_text(text, array_of(SqlType(type.element.name)))
    assert isinstance(whole, tuple), whole
    return tuple(None if item is None else cut(item) for item in whole)


def _to_array(types: Signature, a: pa.Array) -> Outcome:
    if is_of_sized_strings(types.result):
        return rowwise(types, lambda text: array_of_text(text, types.result), a)
    return _from_string(types, a)


for _t in ("text", "varchar", "bpchar", "name", "char"):
    hidden(f"cast(anyarray,{_t})", "anyarray", _t, _to_string(_cut))
    hidden(f"cast({_t},anyarray)", _t, "anyarray", _to_array, fallible=True)
for _t in ("varchar", "bpchar"):
    hidden(f"assign(anyarray,{_t})", "anyarray", _t, _to_string(_limit), fallible=True)
