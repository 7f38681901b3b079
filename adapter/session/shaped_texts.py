"""Texts of the simple protocol, which are planned by their shapes.

A new text of a known shape (`sql/parse/shapes.py`) takes the plan of the shape, with its literals
as arguments. When a shape comes again, it is planned with parameters in the places of the literals;
the plan is kept if it is the text's own with the text's values (`sql/shape_plans.py`), and reads
rows the same way. Otherwise each literal is tried alone: those that decide what the text means are
kept in the name of the plan, so it is good for texts that have the same there.

What else a plan rests on is its key: the catalog, settings, search path and rights.
"""

from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from foreshore.adapter.plans.prepared import Prepared
from foreshore.errors import AdminShutdown, DatabaseError, QueryCanceled
from foreshore.expr.evaluate import folding_little
from foreshore.sql.bind.literals import LiteralParameters
from foreshore.sql.bind.planning import LiteralDecides
from foreshore.sql.parse.parse import Statement as Syntax
from foreshore.sql.parse.shapes import (
    Shape,
    Taken,
    Value,
    only_statement,
    places_of,
    shape_of,
    with_parameters,
)
from foreshore.sql.plan import Delete, Insert, Select, Update
from foreshore.sql.shape_plans import is_plan_of
from foreshore.types import Datum

if TYPE_CHECKING:
    from foreshore.adapter.session.session import Session

MOST_SHAPES = 1024
OFTEN = 2  # a shape is planned when a text of it comes again
LONGEST_SMALL = 3  # digits of a number that may be an option, or a position
MOST_TRIED = 16  # literals of a text that are tried one by one
MOST_EQUAL = 3  # texts of a shape, some of whose literals are equal, that are tried

# Why a text was planned.
NEW_TEXT = "new text without literals"
NO_SHAPE = "text has no shape"
NEW_SHAPE = "new shape"
NEW_CONSTANT = "new value of a literal that decides the plan"
OTHER_VALUE = "literal is no value of the plan's type"
CHANGED = "catalog or settings changed"
TRANSACTION = "transaction has changed the catalog"
DECIDES = "literals decide the plan"


class Seen(Struct):
    """What is known of a shape, or of the name of a plan."""

    times: int = 0
    fixed: frozenset[int] | None = None  # the literals that are in the name; None: not known yet
    refused: bool = False  # whether no plan stands for its texts


class Shapes:
    """The shapes last seen, and how often texts were found known, or planned and why."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, Seen] = OrderedDict()
        self.hits = {"text": 0, "shape": 0}
        self.misses: Counter[str] = Counter()

    def known(self, name: str) -> Seen | None:
        """Return what is known of a shape."""
        return self._seen.get(name)

    def is_known(self, key: str) -> bool:
        """Whether texts of a shape are known to be statements."""
        return key in self._seen

    def see(self, name: str) -> Seen:
        """Note that a text was planned."""
        seen = self._seen.setdefault(name, Seen())
        seen.times += 1
        self._seen.move_to_end(name)
        if len(self._seen) > MOST_SHAPES:
            self._seen.popitem(last=False)
        return seen


class OfText(list[Datum]):
    """The arguments of a plan of a shape, and the text that they are of."""

    def __init__(self, values: Sequence[Datum], text: str) -> None:
        super().__init__(values)
        self.text = text


def name_of(shape: Shape, fixed: frozenset[int]) -> str:
    """Return the name of the plan of texts with the same literals in some places."""
    if not fixed:
        return shape.key
    return "\0".join((shape.key, *(repr(shape.values[each]) for each in sorted(fixed))))


class ShapedTexts:
    """The texts of one session."""

    def __init__(self, session: "Session") -> None:
        self._session = session

    def find(self, text: str) -> tuple[Prepared, Sequence[Datum]] | None:
        """Return the statement and arguments of a text whose plan, or its shape's, is known."""
        session = self._session
        shape = None
        if session.dialect == "postgres":
            shape = shape_of(text, *only_statement(text))
        if shape is not None and (found := self.find_shape(shape, text)) is not None:
            return found
        known = session.planner.known(text)
        if known is None or known.syntax is None or known.parameters:
            return None
        session.environment.shapes.hits["text"] += 1
        return known, ()

    def find_shape(self, shape: Shape, text: str) -> tuple[Prepared, Sequence[Datum]] | None:
        """Return the statement and arguments of a text with this shape if its plan is known."""
        session = self._session
        shapes = session.environment.shapes
        seen = shapes.known(shape.key)
        if seen is None or seen.fixed is None:
            return None
        known = session.planner.known(name_of(shape, seen.fixed))
        if known is None or known.made.readings is None:
            return None
        args = known.made.readings.arguments(shape.values, session.time_zone)
        if args is None:
            return None
        shapes.hits["shape"] += 1
        return known, OfText(args, text)

    async def learn(self, prepared: Prepared, *, is_only: bool) -> None:
        """Plan the shape of a text that had to be planned, if such texts have come before.

        It is the only statement of its text, or one of several.
        """
        syntax = prepared.syntax
        assert syntax is not None
        if not isinstance(prepared.made.plan, Select | Insert | Update | Delete):
            return
        shape = None
        if self._session.dialect == "postgres":
            if is_only:
                start, end = only_statement(syntax.whole)
            else:
                start, end = syntax.position, syntax.position + len(syntax.text)
            shape = shape_of(syntax.whole, start, end)
        why = await self._learn(shape, syntax, prepared)
        self._session.environment.shapes.misses[why] += 1

    async def _learn(self, shape: Shape | None, syntax: Syntax, prepared: Prepared) -> str:
        """Return why the text had to be planned."""
        session, shapes = self._session, self._session.environment.shapes
        transaction = session.transactions.running
        if shape is None or not shape.values:
            return NO_SHAPE if shape is None else NEW_TEXT
        seen = shapes.see(shape.key)
        if seen.refused:
            return DECIDES
        is_own = transaction is not None and transaction.catalog is not None
        if prepared.basis is None or (is_own and prepared.made.scope.lookups is None):
            return TRANSACTION
        why, times = (CHANGED if seen.fixed is not None else NEW_SHAPE), seen.times
        if seen.fixed is not None:
            name = name_of(shape, seen.fixed)
            if session.planner.known(name) is not None:
                return OTHER_VALUE
            if seen.fixed:
                why, times = NEW_CONSTANT, shapes.see(name).times
        if why == CHANGED or times >= OFTEN:
            try:
                await self._plan_shape(shape, seen, syntax, prepared)
            except RecursionError:
                seen.refused = True
        return why

    async def _plan_shape(
        self, shape: Shape, seen: Seen, syntax: Syntax, prepared: Prepared
    ) -> None:
        """Plan a shape of a text, and keep the plan if it stands for such texts."""
        places, fixed = places_of(syntax, shape), seen.fixed or frozenset()
        chosen = [each for each in dict.fromkeys(places.values()) if each.literal not in fixed]
        shaped = await self._standing(shape, syntax, prepared, places, chosen)
        numbers = [each for each in chosen if _is_large_number(shape.values[each.literal])]
        if shaped is None and 0 < len(numbers) < len(chosen):  # the others may always be the same
            shaped = await self._standing(shape, syntax, prepared, places, numbers)
            chosen = chosen if shaped is None else numbers
        if shaped is None:
            values = [shape.values[each.literal] for each in chosen]
            if len(set(values)) < len(values) and seen.times < MOST_EQUAL:
                return  # the optimizer may have shaped one of equal literals
            few_rows = prepared.made.programs.row_read is not None
            tried = await self._session.run_aside(
                False, self._separately, shape, syntax, places, chosen, few_rows
            )
            if len(tried) < len(chosen):
                chosen = tried
                shaped = await self._standing(shape, syntax, prepared, places, chosen)
        if shaped is None:
            seen.refused = True
            return
        seen.fixed = frozenset(range(len(shape.values))) - {each.literal for each in chosen}
        self._session.planner.remember(shaped, name_of(shape, seen.fixed))

    async def _standing(
        self,
        shape: Shape,
        syntax: Syntax,
        prepared: Prepared,
        places: dict[int, Taken],
        chosen: Sequence[Taken],
    ) -> Prepared | None:
        """Return the statement with parameters for the chosen literals, if it is the text's."""
        if not chosen:
            return None
        session = self._session
        own = _with_parameters(syntax, places, chosen)
        shaped = Prepared("", own, literals=(tuple(chosen), shape.values))
        try:
            await session.planner.ready(shaped)
        except (QueryCanceled, AdminShutdown):
            raise
        except (LiteralDecides, DatabaseError):
            return None
        if shaped.made.readings is None or _way(shaped) != _way(prepared):
            return None
        args = shaped.made.readings.arguments(shape.values, session.time_zone)
        if args is None or shaped.made.plan is None or prepared.made.plan is None:
            return None
        few_rows = shaped.made.programs.row_read is not None
        small = session.environment.planning_cost.is_small(syntax.text, session.planner.state)
        is_same = await session.run_aside(
            small, is_plan_of, shaped.made.plan, args, prepared.made.plan, few_rows=few_rows
        )
        return shaped if is_same else None

    @folding_little()
    def _separately(
        self,
        shape: Shape,
        syntax: Syntax,
        places: dict[int, Taken],
        chosen: Sequence[Taken],
        few_rows: bool,
    ) -> list[Taken]:
        """Return the literals in each of whose places alone a parameter may stand."""
        if len(chosen) > MOST_TRIED:
            return []
        planner, zone = self._session.planner, self._session.time_zone
        text, found = planner.plan_alone(syntax), []
        for each in chosen:
            types = LiteralParameters((each,), shape.values)
            try:
                plan = planner.plan_alone(_with_parameters(syntax, places, (each,)), types)
                args = types.readings.arguments(shape.values, zone)
                if args is not None and is_plan_of(plan, args, text, few_rows=few_rows):
                    found.append(each)
            except (LiteralDecides, DatabaseError):
                pass
        return found


def _is_large_number(value: Value) -> bool:
    """Whether a literal may be the number of something, such as an oid."""
    return str(value).isdecimal() and len(str(value)) > LONGEST_SMALL


def _with_parameters(syntax: Syntax, places: dict[int, Taken], chosen: Sequence[Taken]) -> Syntax:
    """Return a statement whose positions mean nothing to clients: they are another text's."""
    tree = with_parameters(syntax.ast, places, chosen)
    return replace(syntax, ast=tree, translated=True)


def _way(prepared: Prepared) -> object:
    """Return what decides how fast a plan is."""
    made, programs = prepared.made, prepared.made.programs
    peek, read = made.peek, programs.row_read
    few = None if read is None else (read.is_by_keys, read.reads_keys_only, len(read.sources))
    others = (programs.template, programs.locked_read, programs.upsert)
    compiled = (*(each is None for each in others), made.scope.tables_only, few)
    if peek is None:
        return compiled
    otherwise = type(getattr(peek.path, "otherwise", None))
    index = None if peek.index is None else (peek.index.index, peek.index.keys is None)
    return compiled, type(peek.path), otherwise, index, peek.reads_nothing, peek.sources
