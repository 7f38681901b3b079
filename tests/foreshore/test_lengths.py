"""Functions that make long values: the length is known, and refused, before it is made."""

from collections.abc import Callable

import pyarrow as pa
import pytest

from foreshore.bits import stored_bits
from foreshore.errors import OutOfMemory
from foreshore.expr import cost
from foreshore.expr.functions.apply import apply
from foreshore.expr.functions.function import BY_KEY, Signature
from foreshore.expr.functions.lengths import LENGTHS, UNKNOWN, require_room_for
from foreshore.expr.functions.rows import Failure
from foreshore.expr.functions.text import _pad, format_, repeat, replace
from foreshore.expr.ir import Call, Column
from foreshore.query_memory import require_room, room
from foreshore.shaped import plain, stored_shaped
from foreshore.types import INT4, SqlType, shaped_array

MB = 1 << 20
LONG = "x" * 100_000


def text(*values: str | None) -> pa.Array:
    return pa.array(values, pa.string())


def ints(*values: int | None) -> pa.Array:
    return pa.array(values, pa.int32())


def lists(*values: object) -> pa.Array:
    return pa.array([list(values)])


SHAPED = pa.array([stored_shaped(plain((1, 2)), shaped_array(INT4))], pa.binary())
# Arguments for which a function makes about 100 MB, and for which it makes little.
CALLS = {
    "repeat": ((text("x"), ints(100 * MB)), (text("x"), ints(10))),
    "lpad": ((text("x"), ints(100 * MB)), (text("x"), ints(-5))),
    "rpad": ((text("x"), ints(50 * MB), text("öä")), (text("x"), ints(9), text(""))),
    "replace": ((text(LONG), text("x"), text("y" * 1000)), (text(LONG), text("y"), text(LONG))),
    "||": ((text(LONG * 500), text(LONG * 500)), (text("a"), text("b"))),
    "concat": ((text(LONG * 1000),), (text("a"), ints(1))),
    "concat_ws": ((text(LONG * 400), text("a"), text("b")), (text(","), text("a"))),
    "array_to_string": ((lists(*"a" * 1000), text(LONG)), (lists("a", None), text(","))),
    "array_replace": (
        (lists(*"a" * 1000), text("a"), text(LONG)),
        (lists(*"ab"), text("a"), text("c")),
    ),
    "array_assigned": ((lists(1), ints(9_000_000), ints(1)), (lists(1), ints(2), ints(1))),
    **{
        name: ((SHAPED, SHAPED, ints(9_000_000)), (SHAPED, SHAPED, ints(2)))
        for name in ("shaped_assigned", "shaped_slice_assigned")
    },
    "jsonb_assigned": (
        (text("[]"), lists("9000000"), text("1")),
        (text("[]"), lists("a", "1"), text("1")),
    ),
    "format": ((text("%100000000s"), text("x")), (text("%s and %1$10s"), text("x"))),
    "array_fill": ((ints(1), pa.array([[100 * MB]])), (ints(1), pa.array([[2, 3]]))),
    "array_cat": ((pa.array([[LONG] * 1000]), pa.array([["a"]])), (lists(1), lists(2))),
    "generate_series": ((ints(1), ints(100 * MB)), (ints(5), ints(1))),
    "jsonb_pretty": ((text("[" * 5_000 + "]" * 5_000),), (text('{"a": [1, 2]}'),)),
    "encode": ((pa.array([b"x" * 30 * MB]), text("hex")), (pa.array([b"x"]), text("hex"))),
    "quote_literal": ((text(LONG * 600),), (text("a"),)),
    "string_to_array": ((text(LONG * 10), text("x")), (text(LONG), text("no"))),
    "string_to_table": ((text(LONG * 10), text("")), (text("a,b"), text(","))),
}


@pytest.mark.parametrize("name", ["array_to_string", "array_replace"])
def test_elements_that_are_replaced_are_counted(name: str) -> None:
    """Elements that are NULL, and elements that equal the one to replace."""
    some = pa.array([[None, "a"] * 1000, None], pa.list_(pa.string()))
    few = pa.array([["b"] * 2000, None], pa.list_(pa.string()))
    rest = {
        "array_to_string": (text(",", ","), text(LONG, "x")),
        "array_replace": (text("a", None), text(LONG, None)),
    }[name]
    with room(20 * MB):
        require_room_for(name, (few, *rest))
        with pytest.raises(OutOfMemory):
            require_room_for(name, (some, *rest))


@pytest.mark.parametrize(
    ("source", "value"), [("int4", ints(5)), ("bit", None), ("varbit", None), ("text", text("101"))]
)
def test_bits_of_a_declared_length_are_refused_before_they_are_made(
    source: str, value: pa.Array | None
) -> None:
    types = Signature((SqlType(source),), SqlType("bit", length=80_000_000))
    given = pa.array([stored_bits("101")]) if value is None else value
    function = BY_KEY[f"cast({source},bit)"]
    many = pa.concat_arrays([given] * 100)
    with room(100 * MB), pytest.raises(OutOfMemory):
        apply(function, types, [many])
    short = Signature(types.args, SqlType("bit", length=1000))
    with room(100 * MB):
        assert apply(function, short, [many])[1] is None
    assert not cost.is_light(Call(function.key, (Column(0, types.args[0]),), types.result))
    assert cost.is_light(Call(function.key, (Column(0, types.args[0]),), short.result))


VARIADIC = ("format", "concat", "concat_ws")


def test_every_function_that_may_grow_has_a_length() -> None:
    growing = {each.name for each in BY_KEY.values() if cost.may_grow(each.key)}
    assert growing <= LENGTHS.keys() | UNKNOWN
    assert CALLS.keys() == LENGTHS.keys()


@pytest.mark.parametrize("name", CALLS)
def test_a_long_result_is_refused_before_it_is_made(name: str) -> None:
    long, short = CALLS[name]
    require_room_for(name, long)  # without a limit
    with room(20 * MB):
        require_room_for(name, short)
        with pytest.raises(OutOfMemory, match="out of memory") as refused:
            require_room_for(name, long)
    assert refused.value.sqlstate == "53200"


@pytest.mark.parametrize("name", CALLS)
def test_many_results_are_refused_together(name: str) -> None:
    long, _ = CALLS[name]
    with room(1):
        once = LENGTHS[name](long)
    twice = [pa.concat_arrays([each, each]) for each in long]
    with room(once + once // 2):
        require_room(once)
        with pytest.raises(OutOfMemory):
            require_room_for(name, twice)


@pytest.mark.parametrize("name", CALLS)
def test_no_rows_need_no_room(name: str) -> None:
    """With each number of arguments that the calls of the name have."""
    long, short = CALLS[name]
    with room(MB):
        for arrays in (long, short, *([long[:1]] if name in VARIADIC else [])):
            require_room_for(name, [array.slice(0, 0) for array in arrays])


@pytest.mark.parametrize(
    ("name", "arrays"),
    [
        ("repeat", (text("x"), ints(2_000_000_000))),
        ("lpad", (text("x"), ints(2_000_000_000))),
        ("format", (text("%2000000000s"), text("x"))),
    ],
)
def test_a_value_beyond_1_gb_is_an_error_of_its_row(name: str, arrays: tuple[pa.Array]) -> None:
    with room(MB):
        require_room_for(name, arrays)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("repeat", ("€", 400_000_000)),
        ("lpad", ("", 400_000_000, "€")),
        ("rpad", ("", 400_000_000, "😀")),
        ("replace", (LONG, "x", "€" * 4_000)),
    ],
)
def test_a_value_beyond_1_gb_is_refused_by_its_bytes(name: str, args: tuple[object, ...]) -> None:
    kernels: dict[str, Callable[..., str]] = {
        "repeat": repeat,
        "lpad": _pad(True),
        "rpad": _pad(False),
        "replace": replace,
    }
    with pytest.raises(Failure, match="54000"):
        kernels[name](*args)


@pytest.mark.parametrize(
    ("pattern", "args"),
    [
        ("%1$s" * 12_000, (LONG,)),
        ("%2$L%1$I" * 6_000, (LONG, LONG)),
        ("%600000000s%1$600000000s", ("x",)),
        ("%s" * 2 + "%s%2000000000s", (LONG * 100, LONG * 100, LONG * 100, "x")),
    ],
)
def test_what_format_repeats_is_counted(pattern: str, args: tuple[str, ...]) -> None:
    with room(20 * MB), pytest.raises(OutOfMemory):
        require_room_for("format", (text(pattern), *map(text, args)))


def test_format_makes_short_values_of_long_arguments() -> None:
    with room(MB):
        require_room_for("format", (text("%2$s%%10s" * 1_000), text(LONG), text("a")))


def test_format_refuses_a_width_beyond_1_gb() -> None:
    with pytest.raises(Failure, match="requested length too large"):
        format_("%2000000000s", "x")
