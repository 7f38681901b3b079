"""What servers answer to statements, message by message, and in what two answers may differ."""

import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal, InvalidOperation

FLOAT, NUMERIC = 701, 1700
USER_OID = 16384  # the first of types that users make
_COMPARED = Context(prec=14)
IGNORED = frozenset(b"123tnsZNSA")  # ParseComplete and the like


@dataclass(slots=True)
class Answer:
    """What a server answers to one statement."""

    columns: list[tuple[str, int, int, int]] = field(
        default_factory=list
    )  # name, oid, typmod, format
    rows: list[tuple[bytes | None, ...]] = field(default_factory=list)
    tag: str = ""
    error: tuple[str, str] | None = None  # SQLSTATE and message

    def __str__(self) -> str:
        if self.error:
            return "ERROR " + " ".join(self.error)
        rows = [
            tuple(None if v is None else v.decode(errors="replace") for v in row)
            for row in self.rows[:20]
        ]
        return f"{[each[:3] for each in self.columns]} {rows} {self.tag}"


def messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the messages of a server: their codes and bodies."""
    at = 0
    while at < len(data):
        (size,) = struct.unpack_from("!i", data, at + 1)
        yield data[at], data[at + 5 : at + 1 + size]
        at += 1 + size


def answers(data: bytes) -> list[Answer]:
    """Return the answers of a server: one for each statement that was run or failed."""
    found: list[Answer] = []
    current = Answer()
    for code, body in messages(data):
        match chr(code):
            case "T":
                current.columns = _columns(body)
            case "D":
                current.rows.append(_row(body))
            case "C":
                current.tag = body[:-1].decode()
                found.append(current)
                current = Answer(current.columns)  # of the next execution, if nothing else is said
            case "n":
                current.columns = []
            case "E":
                fields = {chr(each[0]): each[1:].decode() for each in body.split(b"\0") if each}
                current.error = fields["C"], fields["M"]
                found.append(current)
                current = Answer()
            case _:
                assert code in IGNORED or code in b"I", chr(code)
    return found


def _columns(body: bytes) -> list[tuple[str, int, int, int]]:
    (count,) = struct.unpack_from("!h", body)
    at, columns = 2, []
    for _ in range(count):
        end = body.index(b"\0", at)
        _, _, oid, _, typmod, format = struct.unpack_from("!ihihih", body, end + 1)
        columns.append((body[at:end].decode(), oid, typmod, format))
        at = end + 19
    return columns


def _row(body: bytes) -> tuple[bytes | None, ...]:
    (count,) = struct.unpack_from("!h", body)
    at = 2
    values: list[bytes | None] = []
    for _ in range(count):
        (size,) = struct.unpack_from("!i", body, at)
        at += 4
        if size < 0:
            values.append(None)
        else:
            values.append(body[at : at + size])
            at += size
    return tuple(values)


def shown(value: bytes | None, oid: int, format: int) -> object:
    """Return a value in the form in which PostgreSQL's and ours are compared.

    Numerics may have other zeros at their end (docs/decisions/0002), and quotients fewer digits.
    """
    if oid == FLOAT and value in (b"-0", b"\x80" + bytes(7)):  # equal to 0: one of a group is shown
        return bytes(8) if format else b"0"
    if value is None or oid != NUMERIC:
        return value
    if format:
        number = _binary_numeric(value)
    else:
        try:
            number = Decimal(value.decode())
        except InvalidOperation:
            return value
    if number.is_nan() or number.is_infinite():
        return value
    return _COMPARED.plus(number).normalize() + 0


def _binary_numeric(value: bytes) -> Decimal:
    count, weight, sign, _ = struct.unpack_from("!hhHh", value)
    if sign == 0xC000:
        return Decimal("nan")
    digits = struct.unpack_from(f"!{count}h", value, 8)
    number = sum(
        (Decimal(d) * Decimal(10000) ** (weight - i) for i, d in enumerate(digits)), Decimal()
    )
    return -number if sign == 0x4000 else number


def difference(a: Answer, b: Answer, order: str, *, same: bool, wrong: bool = False) -> str:
    """Return in what two answers differ, or nothing.

    `same` are two ways of one server, whose answers are equal to the byte. Of several things that
    are `wrong` with a statement, each server may name another first.
    """
    if (a.error is None) != (b.error is None):
        return "error"
    if a.error and b.error:
        broken = a.error[0][:2] == b.error[0][:2] == "23"  # of several constraints
        if a.error == b.error or ((wrong or broken) and not same):
            return ""
        return "message" if a.error[0] == b.error[0] else "sqlstate"
    if kind := _of_columns(a, b, same=same):
        return kind
    if a.tag != b.tag:
        return "tag"
    if order == "counted":
        return ""
    rows = [_shown(each, same=same) for each in (a, b)]
    if order == "total":
        return (
            ""
            if rows[0] == rows[1]
            else ("order" if Counter(rows[0]) == Counter(rows[1]) else "rows")
        )
    return "" if Counter(rows[0]) == Counter(rows[1]) else "rows"


def _of_columns(a: Answer, b: Answer, *, same: bool) -> str:
    """Return in what the columns of two answers differ.

    Aggregates and CASE keep their arguments' modifiers here (docs/compatibility.md), arrays none.
    """
    if [each[0] for each in a.columns] != [each[0] for each in b.columns]:
        return "names"
    oids = [[min(each[1], USER_OID) for each in one.columns] for one in (a, b)]
    if oids[0] != oids[1]:
        return "types"
    pairs = [(x, y) for (*_, x, _), (*_, y, _) in zip(a.columns, b.columns, strict=True) if x != y]
    return "typmods" if any(same or -1 not in each for each in pairs) else ""


def _shown(answer: Answer, *, same: bool) -> Sequence[tuple[object, ...]]:
    if same:
        return answer.rows
    kinds = [(each[1], each[3]) for each in answer.columns]
    return [
        tuple(shown(value, *kind) for value, kind in zip(row, kinds, strict=True))
        for row in answer.rows
    ]
