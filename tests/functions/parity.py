"""Recorded answers as tables and scalars, and the definition of equal answers."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from foreshore.datum import to_array
from foreshore.expr.columns import type_of
from foreshore.expr.functions.casting import text_of
from foreshore.expr.functions.registry import NO_LITERAL, resolve, resolve_cast
from foreshore.expr.ir import Call, Column, Literal, Scalar
from foreshore.text import parse_text
from foreshore.types import NUMERIC, SqlType, array_of, numeric

RECORDED = Path(__file__).parent / "recorded"
WIDE = Context(prec=400)
# Computed by the C library in PostgreSQL, so the last digit may differ.
LIBM = frozenset("exp ln log power ^ cbrt degrees atan2 sqrt acosh asinh atanh cot".split())
REFUSED = re.compile(
    r"0A000 (the template pattern .* is not supported|regular expressions with .* are not supported|the numeric value .* is not supported)"
)


@dataclass(frozen=True)
class Group:
    """Rows of one case that one statement can run: a scalar over a table."""

    name: str
    id: str
    scalar: Scalar
    columns: tuple[pa.Array, ...]
    types: tuple[SqlType, ...]
    rows: tuple[tuple[str | None, ...], ...]
    expected: tuple[Any, ...]  # text, None, or {"error": ...}


def type_named(name: str) -> SqlType:
    """Return the type that a word of a case names."""
    name = name.lstrip("=")
    if name.endswith("[]"):
        return array_of(type_named(name[:-2]))
    found = re.fullmatch(r"(\w+)\((\d+)(?:,(\d+))?\)", name)
    if name == "numeric":
        return NUMERIC
    if found is None:
        return SqlType(name)
    if found[1] == "numeric":
        return numeric(int(found[2]), int(found[3]))
    return SqlType(found[1], int(found[2]))


@cache
def groups() -> tuple[Group, ...]:
    """Return all recorded answers."""
    out: list[Group] = []
    for path in sorted(RECORDED.glob("*.json")):
        if path.stem in ("aggregates", "tables"):
            continue
        for part in json.loads(path.read_text()):
            out += _groups_of(part["name"], part["types"], part["rows"])
    return tuple(out)


def _groups_of(name: str, names: list[str], recorded: list[Any]) -> Iterator[Group]:
    kinds = tuple(map(type_named, names))
    constant = [t.startswith("=") for t in names]
    parts: dict[tuple[Any, ...], list[Any]] = {}
    for row, answer in recorded:
        fixed = tuple(v for v, c in zip(row, constant, strict=True) if c)
        parts.setdefault(fixed, []).append((tuple(row), answer))
    for fixed, items in parts.items():
        columns = tuple(
            to_array([None if r[i] is None else parse_text(r[i], t) for r, _ in items], t)
            for i, t in enumerate(kinds)
        )
        args: list[Scalar] = [
            Literal(parse_text(items[0][0][i], t), t)
            if c and items[0][0][i] is not None
            else Column(i, t)
            for i, (t, c) in enumerate(zip(kinds, constant, strict=True))
        ]
        yield Group(
            name,
            f"{name}({', '.join(names)}){list(fixed) if fixed else ''}",
            scalar_of(name, args),
            columns,
            kinds,
            tuple(r for r, _ in items),
            tuple(a for _, a in items),
        )


def scalar_of(name: str, args: list[Scalar]) -> Scalar:
    """Return the call, resolved and coerced as the binder would."""
    types = tuple(map(type_of, args))
    if name.startswith("cast "):
        return cast(args[0], type_named(name[5:]), "explicit")
    literals = tuple(a.value if isinstance(a, Literal) else NO_LITERAL for a in args)
    found = resolve(name, types, literals)
    coerced = tuple(cast(a, t, "implicit") for a, t in zip(args, found.arg_types, strict=True))
    return Call(found.key, coerced, found.result)


def cast(scalar: Scalar, target: SqlType, context: Any) -> Scalar:
    """Return `scalar` as `target`."""
    if type_of(scalar) == target:
        return scalar
    found = resolve_cast(type_of(scalar), target, context)
    assert found is not None, (scalar, target)
    return Call(found.key, (scalar,), found.result)


def differences(group: Group, values: pa.Array, errors: pa.Array | None) -> list[str]:
    """Return the answers that differ from PostgreSQL's."""
    type = type_of(group.scalar)
    texts = text_of(values, type)
    failed = [None] * len(texts) if errors is None else errors.to_pylist()
    out = []
    for row, want, text, error in zip(group.rows, group.expected, texts, failed, strict=True):
        if not same(group, type, want, text, error):
            out.append(f"{group.id} {row}: PostgreSQL {want!r}, here {error or text!r}")
    return out


def same(group: Group, type: SqlType, want: Any, text: str | None, error: str | None) -> bool:
    """Return whether the answer is PostgreSQL's, allowing the differences of decision 0002."""
    if error is not None and text is not None:
        return False
    if isinstance(want, dict):
        return error == want["error"] or (
            error is not None and REFUSED.fullmatch(error) is not None
        )
    if error is not None:
        if REFUSED.fullmatch(error):
            return True
        return type.name == "numeric" and error[:5] == "22003" and not _fits(want, type)
    if want is None or text is None:
        return want is None and text is None
    if type.name == "numeric":
        return _same_numeric(want, text, type)
    if (
        type.name == "float8"
        and group.name in LIBM
        and want not in ("NaN", "Infinity", "-Infinity")
    ):
        return abs(float(want) - float(text)) <= abs(float(want)) * 4e-16
    return bool(want == text)


def _fits(want: str | None, type: SqlType) -> bool:
    if want is None:
        return True
    value = Decimal(want)
    if not value.is_finite():
        return False
    scale = type.scale or 0
    exact = value == value.quantize(Decimal(1).scaleb(-scale), context=WIDE)
    return exact and abs(value) < Decimal(10) ** (38 - scale)


def _same_numeric(want: str, text: str, type: SqlType) -> bool:
    if not type.trim and len(want.partition(".")[2]) == (type.scale or 0):
        return want == text
    value = Decimal(want)
    planned = value.quantize(Decimal(1).scaleb(-(type.scale or 0)), ROUND_HALF_UP, WIDE)
    return Decimal(text) == planned
