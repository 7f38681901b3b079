"""Aggregates that take values back: states of groups, changed by the values that come and go.

A class with `init`, `add`, `remove` and `finish` is run in two steps. A host evaluates `fold`: for
each group it takes a state and values to add or remove, and gives the state after all of them, and
the results in between. A state is what `pickle` makes of the class's own; only hosts read it.
`outcome` is evaluated by the caller: it takes a result, or an error, out of the bytes in which a
dataflow keeps both.
"""

import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from foreshore.datum import to_array
from foreshore.errors import data_error
from foreshore.python_functions.definition import PythonFunction
from foreshore.python_functions.values import Wrong, from_python, plain, to_python
from foreshore.types import SqlType

ADD, REMOVE = 1, -1


def folded_type(result: pa.DataType) -> pa.DataType:
    """Return what `fold` gives, for results of a type: a state, or NULL, results and errors."""
    fields = [
        ("state", pa.binary()),
        ("results", pa.list_(result)),
        ("errors", pa.list_(pa.string())),
    ]
    return pa.struct(fields)


def fold(
    function: PythonFunction,
    of: Any,
    columns: Sequence[pa.Array],
    arrow: pa.DataType,
    failure: Any,
    limit: Any,
) -> pa.Array:
    """Return what `arrow`, a `folded_type`, says for each group.

    `columns` are states, NULL for a new one; lists of values, of signs, and of how many of these
    are before each result. `failure` describes an exception of the class's, whose calls `limit`
    watches.
    """
    states, values, signs, ends = columns
    rows = zip(
        states.to_pylist(),
        map(plain, to_python(values, function.kinds[0])),
        signs.to_pylist(),
        ends.to_pylist(),
        strict=True,
    )
    kept: list[bytes | None] = []
    results: list[Any] = []
    errors: list[str | None] = []
    offsets = [0]
    for row in rows:
        group = _Group(function, of, failure, limit, row[0])
        for result, error in group.results(*row[1:]):
            results.append(result)
            errors.append(error)
        kept.append(group.state())
        offsets.append(len(results))
    array, wrong = from_python(results, function.result, arrow.field("results").type.value_type)
    texts = pa.array([wrong.get(i, each) for i, each in enumerate(errors)], pa.string())
    places = pa.array(offsets, pa.int32())
    return pa.StructArray.from_arrays(
        [
            pa.array(kept, pa.binary()),
            pa.ListArray.from_arrays(places, array, type=arrow.field("results").type),
            pa.ListArray.from_arrays(places, texts, type=arrow.field("errors").type),
        ],
        fields=list(arrow),
    )


class _Group:
    """One group: how many values it has, and the class's state, until an error."""

    def __init__(
        self, function: PythonFunction, of: Any, failure: Any, limit: Any, state: bytes | None
    ) -> None:
        self._function, self._of, self._failure, self.limit = function, of, failure, limit
        self._finish = of.finish if hasattr(of, "finish") else of.result
        self._count = 0
        self._error: str | None = None
        with self._noting():
            self._count, self._state = (0, of.init()) if state is None else pickle.loads(state)

    def results(
        self, values: list[Any] | Wrong, signs: Sequence[int], ends: Sequence[int]
    ) -> Iterator[tuple[Any, str | None]]:
        """Yield a result, or an error, after so many values as each of `ends` says."""
        if isinstance(values, Wrong):
            self._error = str(values)
        at = 0
        for end in ends:
            while at < end and self._error is None:
                assert not isinstance(values, Wrong)
                self._change(values[at], signs[at])
                at += 1
            yield self._result()

    def _change(self, value: Any, sign: int) -> None:
        with self._noting():
            change = self._of.add if sign == ADD else self._of.remove
            self._state = change(self._state, value)
        self._count += sign
        if not self._count:  # of nothing, whatever `remove` has left
            with self._noting():
                self._state = self._of.init()

    def _result(self) -> tuple[Any, str | None]:
        if self._error is not None:
            return None, self._error
        if self._function.strict and not self._count:  # of no array
            return None, None
        with self._noting():
            found = self._finish(self._state)
            is_list = self._function.result.endswith("[]") and hasattr(found, "__next__")
            return plain(list(found) if is_list else found), None
        error, self._error = self._error, None  # the state is sound
        return None, error

    def state(self) -> bytes | None:
        """Return the state, None if it is not to be had again."""
        if self._error is not None:
            return None
        try:
            return pickle.dumps((self._count, self._state), pickle.HIGHEST_PROTOCOL)
        except MemoryError:
            raise
        except BaseException:  # the group is computed anew when it changes
            return None

    def _noting(self) -> "_Noting":
        return _Noting(self)

    def note(self, error: BaseException) -> None:
        """Keep an exception as the group's error."""
        self._error = data_error("38000", self._failure(self._function, error))


class _Noting:
    """Keeps the exception with which a block ends."""

    def __init__(self, group: _Group) -> None:
        self._group = group

    def __enter__(self) -> None:
        self._group.limit.enter()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self._group.limit.leave()
        if error is None or isinstance(error, MemoryError):
            return False
        self._group.note(error)
        return True


def packed(datum: Any, error: str | None) -> bytes:
    """Return the bytes of a datum, or of an error."""
    return msgspec.msgpack.encode((datum, error))


def outcomes(column: pa.Array, type: SqlType) -> tuple[pa.Array, pa.Array | None]:
    """Return the data, of a type, and the errors of packed ones."""
    pairs = [
        (None, None) if each is None else msgspec.msgpack.decode(each)
        for each in column.to_pylist()
    ]
    values = to_array([_datum(value) for value, _ in pairs], type)
    errors = pa.array([error for _, error in pairs], pa.string())
    return values, None if errors.null_count == len(errors) else errors


def _datum(value: Any) -> Any:
    return tuple(map(_datum, value)) if isinstance(value, list) else value
