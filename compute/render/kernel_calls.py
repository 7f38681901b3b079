"""Calls of kernels by DuckDB: of a chunk of rows at once, which may be of any size.

    select array_remove(a, g) from (select array_agg(n) a from ...), generate_series(1, 1000) g

DuckDB hands 2,048 rows over, on threads that know nothing of the query. Most kernels make objects
of Python of them, ten times as large, during which no other thread of the process runs. So rows are
handed on in slices of `SLICE_BYTES`. Between two of them the query can be stopped, and what it has
made by then counts against what queries may hold. All kernels are called through `sliced`.

A query is known by a number: a variable of its cursor, which is one more argument of the kernels
whose values may be long. Maintained views have none: they have the same rows on every machine.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import count
from threading import Lock

import pyarrow as pa

from foreshore.query_memory import Reservation, has_limited_room
from foreshore.types import SqlType, arrow_type

SLICE_BYTES = 256 << 10  # of arguments: a few milliseconds of Python, and some MB of its objects
NUMBER = "CAST(getvariable('foreshore_query') AS BIGINT)"  # of the query that a cursor runs
SET_NUMBER = "SET VARIABLE foreshore_query = {}"

Arrays = Sequence[pa.Array]
Check = Callable[[], None]


class RunningQueries:
    """How to find out, on any thread, whether a query has been stopped."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._numbers = count(1)
        self._checks: dict[int, Check] = {}

    @contextmanager
    def running(self, check: Check) -> Iterator[int]:
        """Yield the number of a query; `check` raises when it has been stopped."""
        with self._lock:
            number = next(self._numbers)
            self._checks[number] = check
        try:
            yield number
        finally:
            with self._lock:
                del self._checks[number]

    def check_of(self, number: int | None) -> Check | None:
        """Return the check of a query that runs, None if there is none of this number."""
        return None if number is None else self._checks.get(number)


QUERIES = RunningQueries()  # of this process


def may_be_long(types: Sequence[SqlType]) -> bool:
    """Whether values of one of these types may have any length."""
    return not all(pa.types.is_primitive(arrow_type(type)) for type in types)


def sliced(kernel: Callable[..., pa.Array], arrays: Arrays, number: int | None = None) -> pa.Array:
    """Return what a kernel makes of rows, slice by slice.

    Raises QueryCanceled if the query of this number has been stopped, and OutOfMemory if the rows
    and what is made of them are more than it may hold.
    """
    check = QUERIES.check_of(number)
    if check is not None:
        check()
    size = sum(array.nbytes for array in arrays)
    if size <= SLICE_BYTES or len(arrays[0]) < 2:
        return kernel(*arrays)
    is_counted = check is not None and has_limited_room()
    made: list[pa.Array] = []
    with closing(Reservation()) as held:
        if is_counted:
            held.reserve(size)
        for part in slices(arrays):
            if check is not None:
                check()
            # Copies: of a slice, `values` of an array are those of all rows.
            made.append(kernel(*(pa.concat_arrays([each]) for each in part)))
            if is_counted:
                held.reserve(made[-1].nbytes)
    return pa.concat_arrays(made)


def slices(arrays: Arrays) -> Iterator[Arrays]:
    """Yield rows in slices of `SLICE_BYTES` at most, or of one row."""
    waiting = [arrays]
    while waiting:
        part = waiting.pop()
        rows = len(part[0])
        if rows < 2 or sum(array.nbytes for array in part) <= SLICE_BYTES:
            yield part
            continue
        half = rows // 2
        waiting.append([array.slice(half) for array in part])
        waiting.append([array.slice(0, half) for array in part])
