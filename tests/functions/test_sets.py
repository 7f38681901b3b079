"""Aggregates and table functions give PostgreSQL's recorded answers.

Core aggregates are implemented by the engines. Here they are a few obvious lines, and the
composition of SQL's aggregates is tested.
"""

import json
import math
from decimal import Decimal
from typing import Any

import pytest

from foreshore.compute.render.exact import comoment_float
from foreshore.datum import from_array, to_array
from foreshore.expr.columns import type_of
from foreshore.expr.equality import python_key
from foreshore.expr.evaluate import outcome
from foreshore.expr.functions.casting import text_of
from foreshore.expr.functions.registry import resolve_aggregate, resolve_table
from foreshore.expr.ir import Aggregate, Call, Column
from foreshore.text import parse_text
from foreshore.types import Datum, array_of
from tests.functions.parity import RECORDED, Group, cast, same, type_named
from tests.processor_time import seconds_of


def parts(family: str) -> list[Any]:
    return [
        pytest.param(p["name"].split()[1], p["types"], p["rows"], id=f"{p['name']} {p['types']}")
        for p in json.loads((RECORDED / f"{family}.json").read_text())
    ]


def core(aggregate: Aggregate, values: list[Datum]) -> Datum:
    """Return a core aggregate over its argument's values."""
    known = [v for v in values if v is not None]
    type = type_of(aggregate.args[0]) if aggregate.args else None
    match aggregate.function:
        case "count":
            return len(known)
        case "array_agg":
            return tuple(values) if values else None
        case "sum":
            return str(sum(Decimal(str(v)) for v in known)) if known else None
        case "sum_float":
            floats = [float(v) for v in known]  # type: ignore[arg-type]
            if not floats:
                return None
            finite = all(map(math.isfinite, floats))
            return math.fsum(floats) if finite else float(sum(floats))
        case "comoment_float":
            return comoment_float([(float(v), float(v), 1) for v in known]) if known else None  # type: ignore[arg-type]
        case "min" | "max":
            assert type is not None
            choose = min if aggregate.function == "min" else max
            return choose(known, key=lambda d: python_key(d, type)) if known else None
        case _:
            raise AssertionError(aggregate)


@pytest.mark.parametrize(("name", "types", "rows"), parts("aggregates"))
def test_aggregate_gives_postgresql_answers(name: str, types: list[str], rows: list[Any]) -> None:
    type = type_named(types[0])
    resolved = resolve_aggregate(name, (type,))
    for (array,), want in rows:
        data = parse_text(array, array_of(type))
        assert isinstance(data, tuple)
        column = to_array(data, type)
        argument = outcome(
            cast(Column(0, type), resolved.arg_types[0], "implicit"), [column], len(data)
        )[0]
        results = []
        for aggregate in resolved.cores:
            arg = outcome(aggregate.args[0], [argument], len(data))[0]
            if aggregate.filter is not None:
                arg = arg.filter(outcome(aggregate.filter, [argument], len(data))[0])
            value = core(aggregate, from_array(arg, type_of(aggregate.args[0])))
            results.append(to_array([value], aggregate.type))
        values, errors = outcome(resolved.finish, results, 1)
        text = text_of(values, resolved.result)[0]
        error = None if errors is None else errors[0].as_py()
        group = Group(name, name, resolved.finish, (), (), (), ())
        fine = same(group, resolved.result, want, text, error)
        if not fine and resolved.result.name == "float8" and want and text:
            fine = math.isclose(float(want), float(text), rel_tol=1e-14)
        assert fine, (name, types, array, want, text, error)


@pytest.mark.parametrize(("name", "types", "rows"), parts("tables"))
def test_table_function_gives_postgresql_rows(name: str, types: list[str], rows: list[Any]) -> None:
    kinds = tuple(map(type_named, types))
    resolved = resolve_table(name, kinds)
    columns = [cast(Column(i, t), resolved.arg_types[i], "implicit") for i, t in enumerate(kinds)]
    call = Call(resolved.key, tuple(columns), resolved.result)
    for row, want in rows:
        given = [
            to_array([None if v is None else parse_text(v, t)], t)
            for v, t in zip(row, kinds, strict=True)
        ]
        values, errors = outcome(call, given, 1)
        if isinstance(want, dict):
            assert errors is not None, (name, row)
            assert errors[0].as_py() == want["error"]
            continue
        assert errors is None, (name, row, errors)
        element = resolved.element.type
        got = from_array(values, resolved.result)[0]
        texts = [] if got is None else text_of(to_array(got, element), element)  # type: ignore[arg-type]
        expected = parse_text(want, array_of(type_named("text")))
        assert isinstance(expected, tuple)
        if element.name == "numeric":
            assert [Decimal(t) for t in texts if t] == [Decimal(t) for t in expected]
        else:
            assert tuple(texts) == expected, (name, row)


BELOW, ABOVE = str(-(2**63)), str(2**63 - 1)


@pytest.mark.parametrize(
    ("type", "args"),
    [
        ("int8", ("0", ABOVE)),
        ("int8", (BELOW, "0")),
        ("int8", (BELOW, ABOVE)),
        ("int8", (BELOW, ABOVE, "3")),
        ("int8", (ABOVE, BELOW, "-1")),
        ("int8", ("1", "100000000000000")),
        ("int4", (str(-(2**31)), str(2**31 - 1))),
        ("numeric", ("0", "9" * 15, "1")),
        ("timestamp", ("2020-01-01", "9999-01-01", "1 us")),
        ("timestamp", ("9999-01-01", "2020-01-01", "-1 us")),
        ("timestamptz", ("2020-01-01", "9999-01-01", "1 us")),
        ("timestamp", ("4713-01-01 BC", "290000-01-01", "1 day -23:59:59")),
    ],
)
def test_too_long_series_is_rejected_at_once(type: str, args: tuple[str, ...]) -> None:
    names = [type, type, "interval" if type.startswith("timestamp") else type][: len(args)]
    kinds = tuple(map(type_named, names))
    resolved = resolve_table("generate_series", kinds)
    call = Call(
        resolved.key,
        tuple(Column(i, kind) for i, kind in enumerate(resolved.arg_types)),
        resolved.result,
    )
    given = [to_array([parse_text(v, t)], t) for v, t in zip(args, resolved.arg_types, strict=True)]
    assert seconds_of(lambda: outcome(call, given, 1)) < 1.0
    _, errors = outcome(call, given, 1)
    assert errors is not None
    assert "54000" in errors[0].as_py()
    assert "a series of more than 10000000 rows is not supported" in errors[0].as_py()
