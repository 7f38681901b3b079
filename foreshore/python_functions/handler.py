"""The function that the source of a Python function defines, found without running it.

The source is a module. Its function is the one with the name of the SQL function, or else the last
one that it defines, so that ALTER FUNCTION ... RENAME leaves the source as it is. If a parameter of
it, or its result, is annotated as an Arrow array, as in

    def area(w: pa.Array, h: pa.Array) -> pa.Array: ...

it is vectorized: it gets the columns of a batch at once. All this is in the source, which is all
that pg_dump keeps.
"""

from dataclasses import dataclass

from foreshore.errors import InvalidFunctionDefinition
from foreshore.python_functions.compilation import Definition, definitions_of

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

    Raises InvalidFunctionDefinition, and what `definitions_of` raises.
    """
    found = definitions_of(source)
    if not found:
        raise InvalidFunctionDefinition(
            f'the source of function "{name}" defines no function',
            hint=f"Write a module that defines it: def {name}(...): ...",
        )
    definition = next((each for each in reversed(found) if each.name == name), found[-1])
    if definition.kind == "async":
        raise InvalidFunctionDefinition(f'function "{definition.name}" must not be async')
    if definition.kind == "class":
        return _class(definition, parameters)
    _check_count(definition, parameters)
    return Handler(definition.name, definition.has_arrays and parameters > 0)


def _class(definition: Definition, parameters: int) -> Handler:
    methods = set(definition.methods)
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


def _check_count(definition: Definition, parameters: int) -> None:
    most = definition.most
    fits = definition.required <= parameters and (most is None or parameters <= most)
    if definition.needs_names or not fits:
        raise InvalidFunctionDefinition(
            f'function "{definition.name}" of the source does not take {parameters} arguments'
        )
