"""Parameters that stand for the literals of a text, and are bound as these are.

A literal becomes a constant of the type that its place requires as it is bound. So a parameter in
its place does: it has no cast, but is another parameter, whose argument is read from the literal in
the same way. What the binder makes of one text's values is thereby made of another's, or the other
is no text of this plan.

    SELECT * FROM t WHERE big = 5 AND day = 'x'     $3: $1 as int8; $4: $2 as date
"""

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import NamedTuple

from foreshore.errors import DatabaseError
from foreshore.expr.evaluate import constant, is_constant
from foreshore.expr.functions.registry import Context
from foreshore.expr.ir import Literal, Parameter, Scalar
from foreshore.number_text import INTEGERS
from foreshore.sql.bind.binding import BINDING
from foreshore.sql.bind.coerce import coerce, literal_of_number, number
from foreshore.sql.bind.planning import LiteralDecides, ParameterTypes, Planning
from foreshore.sql.catalog_reader import CatalogReader
from foreshore.sql.parse.shapes import Taken, Value
from foreshore.sql.rewrite.session_zone import SessionZone
from foreshore.types import REG_NAMES, TEXT, UNKNOWN, Datum, SqlType, array_of

MOST_OIDS = 1 << 32


class Reading(NamedTuple):
    """How a parameter's argument is read from that of another."""

    number: int
    source: SqlType
    target: SqlType
    context: Context
    type: SqlType  # of the result, or of each value of a list
    is_list: bool = False  # whether the values of a long list are read

    def read_all(self, values: Sequence[Datum], zone: str) -> tuple[Datum, ...]:
        """Return the distinct values of a list; raises as `read` does."""
        if self.source == self.type:
            return tuple(dict.fromkeys(values))
        return tuple(dict.fromkeys([self.read(each, zone) for each in values]))

    def read(self, value: Datum, zone: str) -> Datum:
        """Return the argument; raises LiteralDecides or a DatabaseError if it is another plan's."""
        if self.type == TEXT and self.source == UNKNOWN:
            return value
        if self.source.name in INTEGERS and self.type.name in INTEGERS:
            low, high = INTEGERS[self.type.name]
            if not isinstance(value, int) or not low <= value <= high:
                raise LiteralDecides
            return value
        if self.type.name in REG_NAMES:
            if not _is_oid(value):
                raise LiteralDecides
            return int(str(value))
        sample = Literal(value, self.source)
        found = _constant(coerce(_planning(zone), sample, self.target, self.context, 0))
        if found is None or found.type != self.type:
            raise LiteralDecides
        read: Datum = found.value
        return read


def _constant(scalar: Scalar | None) -> Literal | None:
    """Return a converted constant as one; None if it is none, or cannot be converted."""
    if scalar is None or isinstance(scalar, Literal) or not is_constant(scalar):
        return scalar if isinstance(scalar, Literal) else None
    value = constant(scalar)
    return None if isinstance(value, str) else value


@lru_cache(64)
def _planning(zone: str) -> Planning:
    """Return the planning of a constant that is no name of an object: it reads no catalog."""
    catalog: CatalogReader = None  # type: ignore[assignment]
    return Planning(catalog, "", zone=SessionZone(zone, was_used=True), binding=BINDING)


class Readings(NamedTuple):
    """How the arguments of a plan are read from the literals of a text."""

    taken: Sequence[Taken]
    types: Sequence[SqlType]  # of the literals taken
    readings: Sequence[Reading]  # of the parameters after these

    def arguments(self, values: list[Value], zone: str) -> list[Datum] | None:
        """Return the arguments for the literals of a text; None if it is no text of the plan."""
        try:
            args: list[Datum] = []
            for taken, type in zip(self.taken, self.types, strict=True):
                value = taken.of(values)
                if type.name in ("numeric", "number"):
                    literal = literal_of_number(str(value))
                    if literal.type != type:
                        return None
                    value = literal.value
                args.append(value)
            for reading in self.readings:
                if reading.is_list:
                    items = values[self.taken[reading.number - 1].literal]
                    args.append(reading.read_all(items, zone))  # type: ignore[arg-type]
                else:
                    args.append(reading.read(args[reading.number - 1], zone))
        except (LiteralDecides, DatabaseError):
            return None
        return args


class LiteralParameters(ParameterTypes):
    """The parameters of a shape; `values` are the literals of the text that it is planned for."""

    def __init__(self, taken: Sequence[Taken], values: list[Value]) -> None:
        self._taken = taken
        self._values = values
        self._samples = [_sample(each, values) for each in taken]
        self._readings: dict[Hashable, tuple[Reading, Parameter]] = {}
        super().__init__([each.type for each in self._samples])

    def use(self, number: int, at: int) -> Parameter:
        """Return `$number`, which is never NULL."""
        return Parameter(number, self._samples[number - 1].type, nullable=False)

    def learn(self, number: int, type: SqlType, at: int) -> Parameter:
        """Raise LiteralDecides: a literal has its type by `read_as`."""
        raise LiteralDecides

    def learn_all(self, numbers: Sequence[int], type: SqlType) -> bool:
        """Return that nothing is learnt."""
        return False

    def read_as(
        self, planning: Planning, parameter: Parameter, target: SqlType, context: Context, at: int
    ) -> Parameter | None:
        """Return the parameter that is the literal as a constant of a type, if it becomes one."""
        place = parameter.number, target, context
        known = self._readings.get(place)
        if known is not None:
            return known[1]
        sample = self._samples[parameter.number - 1]
        coerced = coerce(planning, sample, target, context, at)
        if coerced is None and sample.type != UNKNOWN:
            return None
        found = _constant(coerced)
        if found is None or (_is_name(found.type) and not _is_oid(sample.value)):
            raise LiteralDecides
        return self._add(
            place, Reading(parameter.number, sample.type, target, context, found.type), found
        )

    def _add(self, place: Hashable, reading: Reading, found: Literal) -> Parameter:
        self._samples.append(found)
        self._types.append(found.type)
        read = Parameter(len(self._samples), found.type, nullable=False)
        self._readings[place] = reading, read
        return read

    def list_of(self, planning: Planning, parameter: Parameter) -> Parameter:
        """Return the parameter of all values of the long list that a parameter is the first of."""
        number, type = parameter.number, parameter.type
        if number > len(self._taken):
            readings = [reading for reading, read in self._readings.values() if read == parameter]
            reading = readings[0]._replace(is_list=True)
        else:
            reading = Reading(number, type, type, "implicit", type, is_list=True)
        known = self._readings.get(reading)
        if known is not None:
            return known[1]
        values = self._values[self._taken[reading.number - 1].literal]
        if not isinstance(values, tuple):
            raise LiteralDecides
        try:
            found = reading.read_all(values, planning.zone.name)
        except DatabaseError:
            raise LiteralDecides from None
        return self._add(reading, reading, Literal(found, array_of(type)))

    def resolved(self) -> tuple[SqlType, ...]:
        """Return the types; a string that is used as another parameter only is a text."""
        return tuple(TEXT if each.type == UNKNOWN else each.type for each in self._samples)

    def known(self, number: int) -> SqlType:
        """Return the type of `$number`."""
        return self._samples[number - 1].type

    @property
    def readings(self) -> Readings:
        """How all arguments are read from the literals of a text."""
        types = [each.type for each in self._samples[: len(self._taken)]]
        return Readings(self._taken, types, [reading for reading, _ in self._readings.values()])


def _sample(taken: Taken, values: list[Value]) -> Literal:
    value = taken.of(values)
    return Literal(value, UNKNOWN) if taken.is_string else number(str(value))


def _is_oid(value: Datum) -> bool:
    """Whether a string is the number of an object, in the place of its name."""
    is_number = isinstance(value, str) and value.isascii() and value.isdecimal()
    return is_number and int(str(value)[:11]) < MOST_OIDS


def _is_name(type: SqlType) -> bool:
    """Whether a constant of a type may be the name of an object."""
    return type.name in REG_NAMES or (type.element is not None and _is_name(type.element))
