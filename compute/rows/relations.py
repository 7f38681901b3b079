"""Relations as Python source: loops that hand each row to what is written for it.

A relation is written around what consumes its rows: a Filter over a Join becomes the Join's loops
with an `if` inside. Rows are gathered only where all have to be known: the sides of a join, groups,
an order, a union. A row of multiplicity n is n rows. Rows of negative multiplicity exist within a
union only, where they cancel others: outer joins and NOT EXISTS are made of these.
"""

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import TypeAlias

from foreshore.compute.rows.aggregates import finish_of
from foreshore.compute.rows.ordering import SortKey, sort_of
from foreshore.compute.rows.scalars import Row, Scalars, Value, identity
from foreshore.compute.rows.source import NotCompiled, Source, TooMany
from foreshore.compute.rows.windows import windowed
from foreshore.datum import from_array, to_array
from foreshore.expr.columns import column_type, columns_of, type_of
from foreshore.expr.cost import is_series_of_integers
from foreshore.expr.equality import has_one_form, has_signed_zeros, is_plain
from foreshore.expr.ir import (
    Aggregate,
    Call,
    Constant,
    Filter,
    FlatMap,
    Get,
    Join,
    Let,
    LocalGet,
    Map,
    Negate,
    OrderKey,
    Project,
    Reduce,
    Relation,
    Scalar,
    Threshold,
    TopK,
    Union,
    Window,
    WindowFunction,
)
from foreshore.expr.split import columns_used, shift
from foreshore.expr.traversal import walk_relations
from foreshore.ids import GlobalId
from foreshore.types import ColumnType, Datum, SqlType

MOST_NODES = 300
MOST_CONSTANTS = 1000  # rows of a constant
MOST_WORK = 10_000  # pairs of rows that joins look at

Consume: TypeAlias = Callable[[Row, int], None]  # writes what is done with a row of sign 1 or -1


class Relations:
    """Writes relations whose collections are lists of tuples, `given[0]`, `given[1]` ..."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.scalars = Scalars(source)
        self.collections: dict[GlobalId, int] = {}
        self._locals: dict[int, tuple[str, tuple[ColumnType, ...]]] = {}
        self._too_many = source.constant(TooMany)

    def write(self, relation: Relation, consume: Consume) -> None:
        """Write loops over the rows of `relation`, within which `consume` writes its part."""
        source = self._source
        match relation:
            case Get(id=id, columns=columns):
                place = self.collections.setdefault(id, len(self.collections))
                self._loop(f"given[{place}]", columns, consume)
            case LocalGet(number=number):
                rows, columns = self._locals[number]
                self._loop(rows, columns, consume)
            case Constant():
                self._loop(self._constant(relation), relation.columns, consume)
            case Let(number=number, value=value, body=body):
                if any(
                    isinstance(e, LocalGet) and e.number == number for e in walk_relations(body)
                ):
                    self._locals[number] = self.gather(value), columns_of(value)
                self.write(body, consume)
            case Map(input=input, scalars=scalars):
                self.write(input, lambda row, sign: consume(self._mapped(row, scalars), sign))
            case Filter(input=input, predicates=predicates):

                def filtered(row: Row, sign: int) -> None:
                    self.scalars.write_filter(predicates, row)
                    consume(row, sign)

                self.write(input, filtered)
            case Project(input=input, outputs=outputs):
                self.write(input, lambda row, sign: consume([row[i] for i in outputs], sign))
            case FlatMap(input=input):
                self.write(input, lambda row, sign: self._elements(relation, row, sign, consume))
            case Join(inputs=()):
                with source.block("for _ in (None,):"):
                    consume([], 1)
            case Join():
                self._join(relation, consume)
            case Negate(input=input):
                self.write(input, lambda row, sign: consume(row, -sign))
            case Union():
                self._union(relation, consume)
            case Threshold(input=input):
                self._settled([input], columns_of(relation), consume, is_threshold=True)
            case Reduce():
                self._reduce(relation, consume)
            case TopK():
                self._top(relation, consume)
            case Window():
                self._window(relation, consume)
            case _:
                raise NotCompiled(type(relation).__name__)

    def gather(self, relation: Relation) -> str:
        """Write what makes a list of the rows of `relation`, and return its name."""
        if isinstance(relation, Get):
            return f"given[{self.collections.setdefault(relation.id, len(self.collections))}]"
        rows = self._source.assign("[]")
        self.write(relation, lambda row, sign: self._add(rows, row, sign))
        return rows

    def add(self, rows: str, text: str) -> None:
        """Write what adds a value to a list, which may not become too long."""
        self._source.line(f"{rows}.append({text})")
        self._source.line(f"if len({rows}) > most: raise {self._too_many}")

    def _add(self, rows: str, row: Row, sign: int) -> None:
        if sign < 0:
            raise NotCompiled("rows of negative multiplicity")
        self.add(rows, tuple_of(row))

    def _loop(self, rows: str, columns: Sequence[ColumnType], consume: Consume) -> None:
        name = self._source.name()
        with self._source.block(f"for {name} in {rows}:"):
            row = [Value(f"{name}[{i}]", each.nullable) for i, each in enumerate(columns)]
            consume(row, 1)

    def _constant(self, relation: Constant) -> str:
        return self._source.constant(rows_of_constant(relation))

    def _mapped(self, row: Row, scalars: Sequence[Scalar]) -> Row:
        columns = list(row)
        for scalar in scalars:
            columns.append(self._held(self.scalars.write(scalar, columns)))
        return columns

    def _held(self, value: Value) -> Value:
        """Return a value by a name, so that it is computed once."""
        if value.text.isidentifier() or value.text.endswith("]"):
            return value
        return Value(self._source.assign(value.text), value.nullable)

    def _elements(self, node: FlatMap, row: Row, sign: int, consume: Consume) -> None:
        """Write the loop over the elements of arrays, which go in step."""
        source = self._source
        arrays, values = [], []
        for scalar in node.arrays:
            if isinstance(scalar, Call) and is_series_of_integers(scalar):
                bounds = ", ".join(self.scalars.write(arg, row).text for arg in scalar.args)
                array = source.assign(f"{source.constant(_series)}({bounds})")
            else:
                array = source.assign(f"{self._array(scalar, row)} or ()")
            source.line(f"if len({array}) > most: raise {self._too_many}")
            arrays.append(array)
            values.append(source.name())
        rows, target = arrays[0], values[0]
        if len(arrays) > 1:
            rows = f"{source.constant(zip_longest)}({', '.join(arrays)})"
            target = f"({', '.join(values)})"
        found = [*row, *(Value(value, True) for value in values)]
        if node.is_numbered:
            number = source.name()
            with source.block(f"for {number}, {target} in enumerate({rows}, 1):"):
                consume([*found, Value(number, False)], sign)
        else:
            with source.block(f"for {target} in {rows}:"):
                consume(found, sign)

    def _array(self, scalar: Scalar, row: Row) -> str:
        """Write an array whose elements are rows, and return its expression."""
        while isinstance(scalar, Call) and scalar.function == "unnest(anyarray)":
            (scalar,) = scalar.args
        if type_of(scalar).name != "array":
            raise NotCompiled(f"rows of {type_of(scalar).name}")
        return self.scalars.write(scalar, row).text

    # --- joins -----------------------------------------------------------------------------

    def _join(self, node: Join, consume: Consume) -> None:
        """Write a join: a loop over the first input, and for each row those of the others."""
        widths = [len(columns_of(input)) for input in node.inputs]
        starts = [sum(widths[:i]) for i in range(len(widths) + 1)]
        sides = _Sides(node, starts)
        order = sides.order()
        tables = {number: self._side(node, sides, order, number) for number in order[1:]}

        def join(rows: dict[int, Row], sign: int, position: int) -> None:
            row = _placed(rows, starts)
            if position:
                self._check_own(sides, order[position], rows[order[position]])
            if position == len(order) - 1:
                consume(row, sign)
                return
            number = order[position + 1]
            keys = sides.keys_to(number, order[: position + 1])
            found = tables[number]
            if keys:
                own = [self.scalars.key(scalar, row) for scalar, _ in keys]
                nullable = [
                    value.text
                    for value, (_, e) in zip(own, keys, strict=True)
                    if value.nullable and e not in node.null_safe
                ]
                if nullable:
                    tests = " or ".join(f"{text} is None" for text in dict.fromkeys(nullable))
                    self._source.line(f"if {tests}: continue")
                found = f"{found}.get({key_of(own)}, ())"
            found = self._source.assign(found)
            self._source.line(f"work += len({found})")
            self._source.line(f"if work > {MOST_WORK}: raise {self._too_many}")
            name = self._source.name()
            with self._source.block(f"for {name} in {found}:"):
                columns = columns_of(node.inputs[number])
                other = [Value(f"{name}[{i}]", c.nullable) for i, c in enumerate(columns)]
                join({**rows, number: other}, sign, position + 1)

        first = order[0]

        def begin(row: Row, sign: int) -> None:
            self._check_own(sides, first, row)
            join({first: row}, sign, 0)

        self.write(node.inputs[first], begin)

    def _check_own(self, sides: "_Sides", number: int, row: Row) -> None:
        """Write what skips a row in which scalars of one equivalence differ."""
        for scalars, null_safe in sides.own(number):
            values = [self.scalars.key(scalar, row) for scalar in scalars]
            first = values[0]
            for value in values[1:]:
                self._source.line(f"if {value.text} != {first.text}: continue")
            if first.nullable and not null_safe:
                self._source.line(f"if {first.text} is None: continue")

    def _side(self, node: Join, sides: "_Sides", order: Sequence[int], number: int) -> str:
        """Write what gathers an input of a join, by its keys if it has any."""
        source = self._source
        input = node.inputs[number]
        before = order[: order.index(number)]
        keys = sides.keys_of(number, before)
        if not keys:
            return self.gather(input)
        table, count = source.assign("{}"), source.assign("0")

        def consume(row: Row, sign: int) -> None:
            if sign < 0:
                raise NotCompiled("rows of negative multiplicity")
            own = [self.scalars.key(scalar, row) for scalar in keys]
            source.line(f"{table}.setdefault({key_of(own)}, []).append({tuple_of(row)})")
            source.line(f"{count} += 1")
            source.line(f"if {count} > most: raise {self._too_many}")

        self.write(input, consume)
        return table

    # --- unions ----------------------------------------------------------------------------

    def _union(self, node: Union, consume: Consume) -> None:
        parts = _flat(node)
        if not any(isinstance(each, Negate) for part in parts for each in walk_relations(part)):
            rows = self._source.assign("[]")
            for part in parts:
                self.write(part, lambda row, sign: self._add(rows, row, sign))
            self._loop(rows, columns_of(node), consume)
            return
        self._settled(parts, columns_of(node), consume)

    def _settled(
        self,
        parts: Sequence[Relation],
        columns: Sequence[ColumnType],
        consume: Consume,
        *,
        is_threshold: bool = False,
    ) -> None:
        """Write what adds up the multiplicities of equal rows, and the loop over what is left."""
        source = self._source
        counts, firsts, number = source.assign("{}"), source.assign("{}"), source.assign("0")
        types = [each.type for each in columns]

        def count(row: Row, sign: int) -> None:
            if is_threshold:
                row = [self._canonical(v, t) for v, t in zip(row, types, strict=True)]
            key = source.assign(
                tuple_of([Value(identity(v, t), True) for v, t in zip(row, types, strict=True)])
            )
            source.line(f"{counts}[{key}] = {counts}.get({key}, 0) + {sign}")
            source.line(f"{firsts}[{key}] = {tuple_of(row)}")
            source.line(f"{number} += 1")
            source.line(f"if {number} > most: raise {self._too_many}")

        for part in parts:
            self.write(part, count)
        key, left, row, again = (source.name() for _ in range(4))
        with source.block(f"for {key}, {left} in {counts}.items():"):
            if not is_threshold:
                source.line(f"if {left} < 0: raise {self._too_many}")
            source.line(f"{row} = {firsts}[{key}]")
            with source.block(f"for {again} in range({left}):"):
                consume([Value(f"{row}[{i}]", c.nullable) for i, c in enumerate(columns)], 1)

    def _canonical(self, value: Value, type: SqlType) -> Value:
        """Return the form of a value that all equal ones have."""
        if has_one_form(type):
            return value
        if not has_signed_zeros(type) or type.element is not None:
            raise NotCompiled(f"equality of {type.name}")
        text = f"{value.text} + 0.0"
        if value.nullable:
            text = f"None if {value.text} is None else {text}"
        return Value(self._source.assign(text), value.nullable)

    # --- groups and order ------------------------------------------------------------------

    def _reduce(self, node: Reduce, consume: Consume) -> None:
        source = self._source
        groups, number = source.assign("{}"), source.assign("0")
        finishes = [source.constant(finish_of(each)) for each in node.aggregates]
        width = len(node.aggregates)
        lists = f"[{', '.join('[]' for _ in node.aggregates)}]"
        if not node.group_key:
            source.line(f"{groups}[()] = ((), {lists})")

        def add(row: Row, sign: int) -> None:
            if sign < 0:
                raise NotCompiled("rows of negative multiplicity")
            shown = [
                self._canonical(self.scalars.write(key, row), type_of(key))
                for key in node.group_key
            ]
            keys = [
                self.scalars.equal_form(value, type_of(key))
                for value, key in zip(shown, node.group_key, strict=True)
            ]
            key = source.assign(tuple_of(keys))
            group = source.assign(f"{groups}.get({key})")
            with source.block(f"if {group} is None:"):
                source.line(f"{group} = {groups}[{key}] = ({tuple_of(shown)}, {lists})")
            entries = source.assign(f"{group}[1]") if width else ""
            for i, aggregate in enumerate(node.aggregates):
                self._add_entry(aggregate, row, f"{entries}[{i}]")
            source.line(f"{number} += 1")
            source.line(f"if {number} > most: raise {self._too_many}")

        self.write(node.input, add)
        key, lists = source.name(), source.name()
        with source.block(f"for {key}, {lists} in {groups}.values():"):
            columns = columns_of(node)
            found = [Value(f"{key}[{i}]", columns[i].nullable) for i in range(len(node.group_key))]
            for i, finish in enumerate(finishes):
                nullable = columns[len(node.group_key) + i].nullable
                found.append(Value(source.assign(f"{finish}({lists}[{i}])"), nullable))
            consume(found, 1)

    def _add_entry(self, aggregate: Aggregate, row: Row, entries: str) -> None:
        source = self._source
        # What fails fails whether the filter takes the row or not.
        scalars = [*aggregate.args, *(key.expr for key in aggregate.order_by)]
        values = [self.scalars.write(scalar, row) for scalar in scalars]
        text = f"{entries}.append({tuple_of(values)})"
        if aggregate.filter is not None:
            taken = self.scalars.write(aggregate.filter, row)
            text = f"if {taken.text} is True: {text}"
        source.line(text)

    def _top(self, node: TopK, consume: Consume) -> None:
        """Write the rows of each group between two positions, in an order of all columns."""
        source = self._source
        columns = columns_of(node)
        _, whole = _sort_keys(node.order_key, columns)
        limit, offset = self._bound(node.limit, "None"), self._bound(node.offset, "0")
        groups, number = source.assign("{}"), source.assign("0")

        def add(row: Row, sign: int) -> None:
            if sign < 0:
                raise NotCompiled("rows of negative multiplicity")
            keys = [self.scalars.write(key.expr, row) for key in node.order_key]
            group = self._group(node.group_key, row, columns)
            source.line(f"{groups}.setdefault({group}, []).append({tuple_of([*row, *keys])})")
            source.line(f"{number} += 1")
            source.line(f"if {number} > most: raise {self._too_many}")

        self.write(node.input, add)
        rows = source.name()
        with source.block(f"for {rows} in {groups}.values():"):
            sort = source.constant(sort_of(columns))
            source.line(f"{sort}({rows}, {source.constant(whole)})")
            stop = f"None if {limit} is None else {offset} + {limit}"
            self._loop(f"{rows}[{offset}:{stop}]", columns, consume)

    def _group(self, places: Sequence[int], row: Row, columns: Sequence[ColumnType]) -> str:
        """Return the expression of what rows of a group have in common."""
        return tuple_of([self.scalars.equal_form(row[i], columns[i].type) for i in places])

    def _window(self, node: Window, consume: Consume) -> None:
        """Write the loop over the rows of each partition, with the values of its functions."""
        source = self._source
        columns = columns_of(node.input)
        width = len(columns)
        own, whole = _sort_keys(node.order_key, columns)
        sort = sort_of(columns)
        append = source.constant(
            windowed(width, own, node.order_key, lambda rows: sort(rows, whole), node.functions)
        )
        partitions, number = source.assign("{}"), source.assign("0")

        def add(row: Row, sign: int) -> None:
            if sign < 0:
                raise NotCompiled("rows of negative multiplicity")
            keys = [self.scalars.write(key.expr, row) for key in node.order_key]
            entries = [Value(self._entry(function, row), True) for function in node.functions]
            group = self._group(node.partition, row, columns)
            text = tuple_of([*row, *keys, *entries])
            source.line(f"{partitions}.setdefault({group}, []).append({text})")
            source.line(f"{number} += 1")
            source.line(f"if {number} > most: raise {self._too_many}")

        self.write(node.input, add)
        offsets = source.assign(f"({' '.join(map(self._offsets, node.functions))})")
        rows = source.name()
        with source.block(f"for {rows} in {partitions}.values():"):
            self._loop(f"{append}({rows}, {offsets})", columns_of(node), consume)

    def _offsets(self, function: WindowFunction) -> str:
        """Return the expression of the offsets of a frame, and a comma."""
        bounds = (function.frame.start, function.frame.end)
        texts = [
            "None"
            if each is None or each.offset is None
            else self.scalars.write(each.offset, ()).text
            for each in bounds
        ]
        return f"({', '.join(texts)}),"

    def _entry(self, function: WindowFunction, row: Row) -> str:
        """Return the expression of the arguments of a window function, None without its row."""
        entry = tuple_of([self.scalars.write(arg, row) for arg in function.args])
        if function.filter is None:
            return entry
        return f"({entry} if {self.scalars.write(function.filter, row).text} is True else None)"

    def _bound(self, bound: Scalar | None, without: str) -> str:
        """Write LIMIT or OFFSET, which is an integer or NULL."""
        if bound is None:
            return without
        value = self.scalars.write(bound, ())
        found = self._source.assign(value.text if without == "None" else f"{value.text} or 0")
        negative = self._source.constant(ValueError)
        self._source.line(f"if {found} is not None and {found} < 0: raise {negative}")
        return found


def _sort_keys(
    order_key: Sequence[OrderKey], columns: Sequence[ColumnType]
) -> tuple[list[SortKey], list[SortKey]]:
    """Return the keys of an order, whose values follow the columns, and them before all columns."""
    own = [
        SortKey(len(columns) + number, column_type(key.expr), key.descending, key.nulls_first)
        for number, key in enumerate(order_key)
    ]
    every = [
        SortKey(i, each, descending=False, nulls_first=False) for i, each in enumerate(columns)
    ]
    return own, [*own, *every]


def rows_of_constant(relation: Constant) -> list[tuple[Datum, ...]]:
    """Return the rows of a constant, in the forms of their columns' types; raises NotCompiled."""
    if any(diff < 0 for _, diff in relation.rows):
        raise NotCompiled("rows of negative multiplicity")
    if sum([diff for _, diff in relation.rows]) > MOST_CONSTANTS:
        raise NotCompiled("constant rows")
    rows = [row for row, diff in relation.rows for _ in range(diff)]
    if all(is_plain(column.type) for column in relation.columns) or not rows:
        return rows
    columns = [
        from_array(to_array(data, column.type), column.type)
        for data, column in zip(zip(*rows, strict=True), relation.columns, strict=True)
    ]
    return list(zip(*columns, strict=True))


class _Sides:
    """The equivalences of a join, by the inputs whose columns they use."""

    def __init__(self, node: Join, starts: Sequence[int]) -> None:
        self._null_safe = node.null_safe
        self._count = len(node.inputs)
        self._starts = starts
        self._owned: list[dict[int, list[Scalar]]] = []
        for equivalence in node.equivalences:
            owned: dict[int, list[Scalar]] = {}
            for scalar in equivalence:
                owned.setdefault(self._owner(scalar), []).append(scalar)
            self._owned.append(owned)

    def _owner(self, scalar: Scalar) -> int:
        used = columns_used(scalar)
        if not used:
            return 0
        return next(i for i in range(self._count) if min(used) < self._starts[i + 1])

    def order(self) -> list[int]:
        """Return the inputs in the order in which they are joined: linked ones first."""
        order, left = [0], list(range(1, self._count))
        while left:
            linked = [
                n
                for n in left
                if any(n in owned and owned.keys() & set(order) for owned in self._owned)
            ]
            order.append((linked or left)[0])
            left.remove(order[-1])
        return order

    def own(self, number: int) -> list[tuple[list[Scalar], bool]]:
        """Return the scalars of one equivalence that an input has, over its own columns."""
        return [
            ([self._over(scalar, number) for scalar in owned[number]], e in self._null_safe)
            for e, owned in enumerate(self._owned)
            if number in owned
        ]

    def keys_of(self, number: int, before: Sequence[int]) -> list[Scalar]:
        """Return the scalars by which rows of an input are found, over its own columns."""
        return [
            self._over(owned[number][0], number)
            for owned in self._owned
            if number in owned and owned.keys() & set(before)
        ]

    def keys_to(self, number: int, before: Sequence[int]) -> list[tuple[Scalar, int]]:
        """Return the scalars over the rows `before`, in all columns, that those are equal to."""
        return [
            (next(owned[i][0] for i in before if i in owned), e)
            for e, owned in enumerate(self._owned)
            if number in owned and owned.keys() & set(before)
        ]

    def _over(self, scalar: Scalar, number: int) -> Scalar:
        return shift(scalar, -self._starts[number]) if columns_used(scalar) else scalar


def _placed(rows: dict[int, Row], starts: Sequence[int]) -> Row:
    """Return the columns of joined inputs in their places; those of others are missing."""
    row = [Value("", False)] * starts[-1]
    for number, columns in rows.items():
        row[starts[number] : starts[number + 1]] = columns
    return row


def _flat(node: Union) -> "list[Relation]":
    """Return the parts of a union and of unions within it."""
    return [
        part
        for input in node.inputs
        for part in (_flat(input) if isinstance(input, Union) else [input])
    ]


def _series(first: Datum, last: Datum, step: Datum = 1) -> Sequence[int]:
    """Return the integers between two bounds; raises ValueError for a step of 0."""
    if not isinstance(first, int) or not isinstance(last, int) or not isinstance(step, int):
        return ()
    return range(first, last + (1 if step > 0 else -1), step)


def tuple_of(row: Sequence[Value]) -> str:
    """Return the expression of a tuple."""
    return "(" + "".join(f"{value.text}, " for value in row) + ")"


def key_of(values: Sequence[Value]) -> str:
    """Return the expression of a key of a dictionary: of one column it is the value."""
    return values[0].text if len(values) == 1 else tuple_of(values)
