"""The function that the source of a Python function defines, found without running it.

The source is a module. Its function is the one with the name of the SQL function, or else the last
one that it defines, so that ALTER FUNCTION ... RENAME leaves the source as it is. If a parameter of
it, or its result, is annotated as an Arrow array, as in

    def area(w: pa.Array, h: pa.Array) -> pa.Array: ...

it is vectorized: it gets the columns of a batch at once. All this is in the source, which is all
that pg_dump keeps.
"""

import ast
from dataclasses import dataclass

from foreshore.errors import InvalidFunctionDefinition, SyntaxError_

_ARRAYS = frozenset(("Array", "ChunkedArray"))
_AGGREGATE = (("init",), ("add",), ("finish", "result"))


@dataclass(frozen=True, slots=True)
class Handler:
    """The name of a function, or of the class of an aggregate; whether it takes whole columns.

    An aggregate that `retracts` can take a value back.
    """

    name: str
    vectorized: bool
    is_aggregate: bool = False
    retracts: bool = False


def handler_of(source: str, name: str, parameters: int) -> Handler:
    """Return what a source defines for the function `name` of so many parameters.

    Raises SyntaxError_ with the line, or InvalidFunctionDefinition.
    """
    module = _parsed(source, name)
    found = [
        each
        for each in module.body
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    ]
    if not found:
        raise InvalidFunctionDefinition(
            f'the source of function "{name}" defines no function',
            hint=f"Write a module that defines it: def {name}(...): ...",
        )
    definition = next((each for each in reversed(found) if each.name == name), found[-1])
    if isinstance(definition, ast.AsyncFunctionDef):
        raise InvalidFunctionDefinition(f'function "{definition.name}" must not be async')
    if isinstance(definition, ast.ClassDef):
        return _class(definition, parameters)
    _check_count(definition, parameters)
    annotations = [each.annotation for each in definition.args.args]
    return Handler(
        definition.name, any(map(_is_array, [*annotations, definition.returns])) and parameters > 0
    )


def _parsed(source: str, name: str) -> ast.Module:
    try:
        module = ast.parse(source)
        compile(module, f'function "{name}"', "exec", dont_inherit=True)
    except SyntaxError as error:
        line = (error.text or "").strip()
        raise SyntaxError_(
            f"{error.msg} in line {error.lineno} of the source",
            detail=f"The line is: {line}" if line else None,
            where=f'compilation of Python function "{name}"',
        ) from None
    except (ValueError, RecursionError, MemoryError) as error:  # NUL, or nested too deeply
        raise SyntaxError_(f"the source cannot be compiled: {error}") from None
    return module


def _class(definition: ast.ClassDef, parameters: int) -> Handler:
    methods = {each.name for each in definition.body if isinstance(each, ast.FunctionDef)}
    missing = [each for each in _AGGREGATE if methods.isdisjoint(each)]
    if missing:
        raise InvalidFunctionDefinition(
            f'class "{definition.name}" has no method "{missing[0][0]}"',
            hint="The class of an aggregate has init(self), add(self, state, value) and"
            " finish(self, state), and may have remove(self, state, value).",
        )
    if parameters != 1:
        raise InvalidFunctionDefinition("a function over a class has one parameter, an array")
    return Handler(definition.name, False, is_aggregate=True, retracts="remove" in methods)


def _check_count(definition: ast.FunctionDef, parameters: int) -> None:
    args = definition.args
    most = len(args.posonlyargs) + len(args.args)
    required = most - len(args.defaults)
    needs_names = any(default is None for default in args.kw_defaults)
    fits = required <= parameters and (parameters <= most or args.vararg is not None)
    if needs_names or not fits:
        raise InvalidFunctionDefinition(
            f'function "{definition.name}" of the source does not take {parameters} arguments'
        )


def _is_array(annotation: ast.expr | None) -> bool:
    match annotation:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name in _ARRAYS
        case ast.Constant(value=str() as text):
            return text.rpartition(".")[2] in _ARRAYS
        case _:
            return False
