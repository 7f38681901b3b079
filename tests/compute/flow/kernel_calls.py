"""Calls all kernels, by maintaining a small view of each kind.

`python -m tests.compute.flow.kernel_calls` writes the types of their arguments to
`kernels/signatures.txt`, in the order of their first calls; `test_warm.py` compares.
"""

from typing import Any

import numba
import numpy as np
import pyarrow as pa

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Input
from foreshore.compute.flow import ordered, spine
from foreshore.compute.flow.batch import Batch
from foreshore.compute.flow.collection import Collections
from foreshore.compute.flow.dataflow import FlowDataflow
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.kernels import compiled
from foreshore.compute.flow.kernels.jit import GATE, KERNELS
from foreshore.compute.flow.kernels.rows import pick_words
from foreshore.compute.flow.ranks import Ranks
from foreshore.compute.flow.sorter import Sorter
from foreshore.compute.flow.sums import Points
from foreshore.compute.flow.tail import Tail
from foreshore.compute.protocol import DataflowDescription, IndexExport
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import (
    Aggregate,
    Call,
    Column,
    Frame,
    FrameBound,
    Get,
    Join,
    LetRec,
    Literal,
    LocalGet,
    Map,
    OrderKey,
    Project,
    Reduce,
    Relation,
    Threshold,
    TopK,
    Union,
    Window,
    WindowFunction,
    count_all,
)
from foreshore.ids import GlobalId
from foreshore.types import FLOAT8, INT4, INT8, TEXT, ColumnType, numeric_of_scale
from foreshore.update import update_schema

LONGEST = ("vm.run",)  # its compilation takes a quarter of all, so it begins first

_TABLE = Get(GlobalId("u1"), (ColumnType(INT4), ColumnType(TEXT), ColumnType(INT8, False)))
_KEY, _TEXT = Column(0, INT4), Column(1, TEXT)
_NEAR = Frame("range", FrameBound("preceding", Literal(1, INT8)))
_LAG = WindowFunction("lag", (_KEY, Literal(1, INT8), _KEY), INT4)
_VALUE = LocalGet(1, (ColumnType(INT4),))
_FOLLOWING = Map(_VALUE, (Call("divide(int4,int4)", (_KEY, Literal(2, INT4)), INT4),))
_ALL_HALVES = Reduce(Union((Project(_TABLE, (0,)), Project(_FOLLOWING, (1,)))), (_KEY,), ())
_VIEWS: tuple[Relation, ...] = (
    Reduce(
        Map(_TABLE, (Call("add(int4,int4)", (_KEY, _KEY), INT4),)),
        (_TEXT,),
        (count_all(), Aggregate("sum", (Column(3, INT4),), numeric_of_scale(0))),
    ),
    Project(_TABLE, (2,)),
    Join((_TABLE, _TABLE), ((_KEY, Column(3, INT4)),)),
    Reduce(
        Map(
            _TABLE,
            (
                Call("add(int4,int4)", (_KEY, _KEY), INT4),
                Call("cast(int4,float8)", (_KEY,), FLOAT8),
            ),
        ),
        (_TEXT,),
        (
            count_all(),
            Aggregate("sum", (Column(3, INT4),), numeric_of_scale(0)),
            Aggregate("sum_float", (Column(4, FLOAT8),), FLOAT8),
            Aggregate("comoment_float", (Column(4, FLOAT8), Column(4, FLOAT8)), FLOAT8),
            Aggregate("max", (_KEY,), INT4),
            Aggregate("count", (_KEY,), INT8, True),
        ),
    ),
    TopK(
        Map(_TABLE, (Call("upper(text)", (_TEXT,), TEXT),)),
        (0,),
        (OrderKey(_TEXT),),
        Literal(1, INT8),
    ),
    Threshold(_TABLE),
    Window(_TABLE, (0,), (OrderKey(_TEXT),), (_LAG,)),
    Window(_TABLE, (1,), (OrderKey(_KEY),), (WindowFunction("count", (), INT8, _NEAR),)),
    Window(
        _TABLE,
        (0,),
        (OrderKey(_TEXT),),
        (
            WindowFunction("row_number", (), INT8),
            _LAG,
            WindowFunction("sum", (_KEY,), numeric_of_scale(0), Frame("rows")),
        ),
    ),
    Window(_TABLE, (0,), (OrderKey(_TEXT),), (WindowFunction("dense_rank", (), INT8),)),
    LetRec((1,), (_VALUE.columns,), (_ALL_HALVES,), _VALUE),
)


def calls() -> list[str]:
    """Return the names of all kernels with the types of their arguments, by their first calls.

    Kernels are compiled if they are not in the cache.
    """
    called: list[str] = []
    assert GATE.close(called.append)
    bulk = DuckDbEngine(threads=1)
    try:
        for view in _VIEWS:
            _maintain(view, bulk)
    finally:
        bulk.close()
        GATE.open()
    names = sorted(dict.fromkeys(called), key=lambda name: name not in LONGEST)
    return [f"{name}({', '.join(map(_text_of, _types_of(name)))})" for name in names]


numba_types: Any = numba.types


def _types_of(name: str) -> tuple[Any, ...]:
    (types,) = KERNELS[name].signatures
    found: tuple[Any, ...] = types
    return found


def _text_of(each: Any) -> str:
    """Return a type as numba writes it in signatures."""
    if isinstance(each, numba_types.UniTuple):
        return f"UniTuple({_text_of(each.dtype)}, {each.count})"
    if isinstance(each, numba_types.Array) and each == numba_types.Array(
        each.dtype, each.ndim, "C"
    ):
        return f"{each.dtype}[{':, ' * (each.ndim - 1)}::1]"
    return repr(each)


def _maintain(view: Relation, bulk: DuckDbEngine) -> None:
    """Hydrate a view, change it, and merge its runs."""
    schema = pa.schema({"k": pa.int32(), "t": pa.string(), "n": pa.int64()}.items())
    description = DataflowDescription(GlobalId("t1"), view, (_TABLE.id,), (), 1)
    dataflow = FlowDataflow(description, bulk, Collections(Interner(), 1))
    many = spine.TAIL_ROWS
    rows = _updates(schema, many, 1)
    output = dataflow.hydrate({_TABLE.id: Input(schema, (), (rows,))})
    places = [i for i, column in enumerate(columns_of(view)) if column.type in (INT8, TEXT)]
    key = tuple(Column(i, columns_of(view)[i].type) for i in places)
    index = dataflow.index(IndexExport(GlobalId("t2"), key), 1)
    for time in range(2, 7):
        if index is not None:
            index.insert_output(output, time)
            index.look_up([tuple("1" if c.type is TEXT else 1 for c in key)], time - 1)
            index.updates(time - 1)
            while index.maintain():
                continue
        _ = output.rows, output.errors  # which are made when somebody asks
        size = many // 2 if time == 3 else ordered.EAGER + 1 if time == 4 else 2
        output = dataflow.step(time, time + 1, {_TABLE.id: _updates(schema, size, time)})
        while dataflow.maintain():
            continue
    dataflow.close()
    tail = Tail(1, 1, 16)  # which is cut where a step fails
    ones = np.ones(1, np.int64)
    tail.append([np.ones(1, np.uint64)], Batch(np.ones((1, 1), np.int64), ones, ones))
    tail.cut(0)
    one = np.ones((1, 1), np.int64)
    pick_words(one, np.zeros(1, np.int64), one.copy())
    sorter, words = Sorter(np.uint64(1), 1), np.ones((1, 1), np.int64)
    sorter.count(words, np.arange(1))
    sorter.begin(1)
    sorter.add(words, ones, ones, np.arange(1))
    sorter.sorted(0)
    _use_second_key()
    _compute_ranks_anew()
    _read_group()
    _forget()


def _use_second_key() -> None:
    """Look rows up by a key by which runs are not sorted, and merge these runs."""
    rows = spine.Spine([np.arange(1), np.arange(1, 2)], np.zeros(2, np.int64), Interner(), 1)
    ones = np.ones(1, np.int64)
    for _ in range(2):
        rows.add_run(rows.sorted(Batch(np.ones((1, 2), np.int64), ones, ones)))
    rows.joined(1, Batch(np.ones((1, 1), np.int64), ones, ones), ones[:0], ones, 2)
    while rows.maintain():
        continue


def _compute_ranks_anew() -> None:
    ranks, zero, one = Ranks(1, 9, 1), np.zeros(1, np.int64), np.ones(1, np.int64)
    ranks.count(zero.reshape(1, 1), zero, one)
    ranks.settle()
    ranks.commit()
    ranks.begin_anew()


def _read_group() -> None:
    """Read all rows of a group, as lists do."""
    rows = ordered.OrderedSpine(1, np.zeros(1, np.int64), Interner(), 1)
    words, ones = np.ones((1, 1), np.int64), np.ones(1, np.int64)
    rows.insert(Batch(words, ones, ones))
    points = Points(np.zeros(1, np.int64), ones, ones, rows.hashes(words), words)
    rows.rows_at(points, 0, 1)


def _forget() -> None:
    """Forget some strings, and save and load the others."""
    interner = Interner()
    numbers = interner.numbers(pa.array(["one", "two"]))
    interner.begin_forgetting()
    interner.mark(numbers[:1].copy())
    interner.forget()
    Interner.loaded(interner.seed, [interner.save(1)])


def _updates(schema: pa.Schema, count: int, time: int) -> pa.Table:
    numbers = range(count)
    arrays = [
        pa.array([None, *numbers[1:]], pa.int32()),
        pa.array([str(number) for number in numbers]),
        pa.array(numbers, pa.int64()),
        pa.array([time] * count, pa.int64()),
        pa.array([1] * count, pa.int64()),
    ]
    return pa.Table.from_arrays(arrays, schema=update_schema(schema))


if __name__ == "__main__":
    compiled.SIGNATURES.write_text("\n".join(calls()) + "\n")
