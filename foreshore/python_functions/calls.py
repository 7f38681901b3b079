"""Calls of a Python function in its host: for each row, or for the columns of a batch.

A function that raises for a row is an error of that row. The first rows of a function that is
declared IMMUTABLE, and later a sample, are evaluated a second time, in another order and by another
copy of its module: if an answer differs, a maintained view could not take a row back.
"""

import hashlib
import sys
from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import Any, Protocol

import pyarrow as pa

from foreshore.errors import data_error
from foreshore.python_functions.definition import PythonFunction
from foreshore.python_functions.folds import fold
from foreshore.python_functions.row_limit import TookTooLong
from foreshore.python_functions.table_rows import sets_from_python, sets_from_structs
from foreshore.python_functions.values import (
    Wrong,
    check_texts,
    described,
    from_python,
    plain,
    to_python,
)

CHECKED = 100  # rows that are evaluated twice,
SHARE = 10  # then one of so many,
OFTEN = 10_000  # up to this row,
SAMPLE = 100  # and then so many rows
EVERY = 20_000  # once in so many
NAMED = ("date", "time", "timestamp", "timestamptz", "json")  # kinds whose values Python may lack

Found = tuple[pa.Array, dict[int, str]]


class Limit(Protocol):
    """The time that a function may take for a row: see `row_limit.py`."""

    @property
    def seconds(self) -> float:
        """The time."""
        ...

    def enter(self) -> None:
        """Note that a call begins."""
        ...

    def leave(self) -> None:
        """Note that it has ended."""
        ...


class Fault(Exception):
    """The statement fails, not a row of it."""

    def __init__(self, sqlstate: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.sqlstate, self.message, self.hint = sqlstate, message, hint


class Loaded:
    """A function whose module has been run."""

    def __init__(self, function: PythonFunction, limit: Limit) -> None:
        self._function = function
        self._limit = limit
        self._class: Any = None
        self._call: Callable[..., Any] = self._no_call
        if function.step == "fold":
            self._class = _defined(function)
        else:
            self._call = _defined(function)
        self._copy: Callable[..., Any] | None = None
        self._fault: Fault | None = None  # why it is called no more
        self._seen = 0
        self._next_sample = OFTEN + EVERY

    @staticmethod
    def _no_call(*of: Any) -> Any:
        raise AssertionError("only folds")

    def outcome(self, arrays: Sequence[pa.Array], arrow: pa.DataType) -> Found:
        """Return the values, of type `arrow`, and the errors by row.

        Raises Fault, and each time again if the function is not what it is declared to be: else
        another try would have fewer rows checked, and none in the end.
        """
        if self._fault is not None:
            raise self._fault.with_traceback(None)  # which would keep all rows before
        if self._function.step == "fold":  # which the caller checks
            failure = partial(_failure, limit=self._limit)
            return fold(self._function, self._class, arrays, arrow, failure, self._limit), {}
        found = self._evaluated(self._call, arrays, arrow)
        if self._function.volatility == "immutable":
            self._check(arrays, found, arrow)
        return found

    def _evaluated(
        self, call: Callable[..., Any], arrays: Sequence[pa.Array], arrow: pa.DataType
    ) -> Found:
        function, rows = self._function, len(arrays[0])
        columns = arrays[: len(function.kinds)]
        places: Sequence[int] = range(rows)
        if function.strict and any(column.null_count for column in columns):
            valid = [column.is_valid().to_pylist() for column in columns]
            places = [i for i, each in enumerate(zip(*valid, strict=True)) if all(each)]
            columns = [column.take(pa.array(places, pa.int64())) for column in columns]
        if function.vectorized:
            values, errors = _by_columns(function, call, columns, arrow, self._limit)
        else:
            values, errors = _by_rows(function, call, columns, len(places), arrow, self._limit)
        if len(places) == rows:
            return values, errors
        back: list[int | None] = [None] * rows
        for i, place in enumerate(places):
            back[place] = i
        errors = {places[i]: text for i, text in errors.items()}
        return values.take(pa.array(back, pa.int64())), errors

    def _check(self, arrays: Sequence[pa.Array], found: Found, arrow: pa.DataType) -> None:
        """Raise Fault if other answers are found for some rows."""
        late = _took_too_long(self._function, self._limit)
        places = [
            i for i in self._sampled(len(arrays[0])) if not found[1].get(i, "").endswith(late)
        ]
        if not places:
            return
        if self._copy is None:
            self._copy = _defined(self._function)
        order = pa.array(places[::-1], pa.int64())
        values, errors = self._evaluated(self._copy, [each.take(order) for each in arrays], arrow)
        again = {places[-1 - i]: text for i, text in errors.items()}
        before = {i: found[1][i] for i in places if i in found[1]}
        same = repr(values.to_pylist()) == repr(found[0].take(order).to_pylist())
        if not same or again != before:
            self._fault = Fault(
                "38000",
                f'function "{self._function.name}" is declared IMMUTABLE but has returned different'
                " values for the same arguments",
                "Declare it VOLATILE for queries. Where a view needs its results, keep them:"
                " CREATE SOURCE ... FROM PYTHON ... OVER a relation.",
            )
            raise self._fault

    def _sampled(self, rows: int) -> Sequence[int]:
        """Return which of the next rows are evaluated twice."""
        first, end = self._seen, self._seen + rows
        self._seen = end
        if end < self._next_sample:
            often = range(max(first, CHECKED), min(end, OFTEN))
            tenths = range(-(-often.start // SHARE) * SHARE, often.stop, SHARE)
            return [i - first for i in (*range(first, min(end, CHECKED)), *tenths)]
        self._next_sample = end + EVERY
        return range(min(rows, SAMPLE))


def _defined(function: PythonFunction) -> Any:
    """Return what the module of a function defines; raises Fault if it cannot be run.

    For folds that is an instance of the class, whose module can be found by `pickle`.
    """
    name = _file_of(function)
    module: dict[str, Any] = {"__name__": f"foreshore_function_{function.name}"}
    try:
        if function.step == "fold":
            digest = hashlib.blake2b(function.source.encode(), digest_size=8).hexdigest()
            registered = ModuleType(f"foreshore_function_{digest}")
            module, sys.modules[registered.__name__] = registered.__dict__, registered
        exec(compile(function.source, name, "exec", dont_inherit=True), module)
        found = module[function.name]
        if function.step == "fold":
            return found()
        call = found
        if isinstance(found, type):
            call = _aggregate(found(), plain if function.retracts else _as_it_is)
    except MemoryError:
        raise
    except BaseException as error:
        raise Fault("38000", _failure(function, error)) from None
    if not callable(call):
        raise Fault("38000", f'function "{function.name}": it is no function')
    return call


def _file_of(function: PythonFunction) -> str:
    """Return what its code objects have as the name of their file."""
    return f'<function "{function.name}">'


def _failure(function: PythonFunction, error: BaseException, limit: Limit | None = None) -> str:
    """Return an exception that a function has raised, with the innermost line of its source."""
    if isinstance(error, TookTooLong) and limit is not None:  # the line is any of a loop's
        return _took_too_long(function, limit)
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == _file_of(function):
            line = trace.tb_lineno
        trace = trace.tb_next
    place = "" if line is None else f", line {line}"
    return f'function "{function.name}"{place}: {described(error)}'


def _took_too_long(function: PythonFunction, limit: Limit) -> str:
    return f'function "{function.name}" took longer than {limit.seconds:g} s for a row'


def _as_it_is(value: Any) -> Any:
    return value


def _aggregate(of: Any, form: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the function of the array of a group's values; `form` is of values and results."""
    finish = of.finish if hasattr(of, "finish") else of.result

    def call(values: Sequence[Any] | None) -> Any:
        state = of.init()
        for value in form(values or []):
            state = of.add(state, value)
        found = finish(state)
        return form(list(found) if _is_iterator(found) else found)

    return call


def _by_rows(
    function: PythonFunction,
    call: Callable[..., Any],
    columns: Sequence[pa.Array],
    rows: int,
    arrow: pa.DataType,
    limit: Limit,
) -> Found:
    lists = [to_python(c, k) for c, k in zip(columns, function.kinds, strict=True)]
    may_lack = any(kind.removesuffix("[]") in NAMED for kind in function.kinds)
    is_list = function.result.endswith("[]") or bool(function.columns)
    values: list[Any] = []
    failed: dict[int, str] = {}
    for place, args in enumerate(zip(*lists, strict=True) if lists else [()] * rows):
        if may_lack and (wrong := next((a for a in args if isinstance(a, Wrong)), None)):
            failed[place] = str(wrong)
            values.append(None)
            continue
        try:
            limit.enter()
            value = call(*args)
            value = list(value) if is_list and _is_iterator(value) else value
            limit.leave()
        except MemoryError:
            raise
        except BaseException as error:  # SystemExit, too: nothing ends but the call
            limit.leave()
            failed[place] = data_error("38000", _failure(function, error, limit))
            value = None
        values.append(value)
    if function.columns:
        array, errors = sets_from_python(values, function.columns, arrow)
    else:
        array, errors = from_python(values, function.result, arrow)
    return array, {**errors, **failed}


def _is_iterator(value: Any) -> bool:
    return hasattr(value, "__next__")


def _by_columns(
    function: PythonFunction,
    call: Callable[..., Any],
    columns: Sequence[pa.Array],
    arrow: pa.DataType,
    limit: Limit,
) -> Found:
    """Return the outcome of a vectorized function; where it raises, halves are tried."""
    rows = len(columns[0])
    if not rows:
        return pa.nulls(0, arrow), {}
    try:
        limit.enter()
        given = call(*columns)
        limit.leave()
        values = _as_column(function, given, rows, arrow)
    except (MemoryError, Fault):
        raise
    except BaseException as error:
        limit.leave()
        if rows == 1:
            is_wrong = isinstance(error, Wrong)
            text = str(error) if is_wrong else data_error("38000", _failure(function, error, limit))
            return pa.nulls(1, arrow), {0: text}
        half = rows // 2
        left = _by_columns(function, call, [c.slice(0, half) for c in columns], arrow, limit)
        right = _by_columns(function, call, [c.slice(half) for c in columns], arrow, limit)
        errors = {**left[1], **{half + i: text for i, text in right[1].items()}}
        return pa.concat_arrays([left[0], right[0]]), errors
    if values is None:
        raise Fault(
            "38000",
            f'function "{function.name}" did not return a column of {rows} values'
            f" but {_kind_of(given)}",
            "A vectorized function returns an array with a value for each row.",
        )
    return values, {}


def _kind_of(given: Any) -> str:
    """Return what was given in place of a column."""
    count = f" of {len(given)} values" if hasattr(given, "__len__") else ""
    return f"{type(given).__name__}{count}"


def _as_column(
    function: PythonFunction, given: Any, rows: int, arrow: pa.DataType
) -> pa.Array | None:
    """Return what a vectorized function has returned; None if it is no column of so many rows.

    Raises Wrong, or an error of Arrow.
    """
    if not hasattr(given, "__len__") or len(given) != rows or isinstance(given, str | bytes | dict):
        return None
    if isinstance(given, pa.ChunkedArray):
        given = given.combine_chunks()
    array = given if isinstance(given, pa.Array) else pa.array(given)
    if function.columns:
        return sets_from_structs(array, function.columns, arrow)
    array = array if array.type == arrow else array.cast(arrow)
    check_texts(array)
    return array
