"""Bind PYTHON."""

from collections.abc import Sequence

from foreshore.errors import InvalidParameterValue
from foreshore.sources.python import PythonSource
from foreshore.sql import ast
from foreshore.sql.bind.definitions.sources.declared import declared_columns
from foreshore.sql.bind.definitions.sources.options import parsed_options, text
from foreshore.sql.planning import Planning, located


def bind_python(
    planning: Planning, reads: ast.PythonSyntax, declared: Sequence[ast.ColumnDefinition]
) -> PythonSource:
    """Return which function is called, with texts as arguments."""
    with located(reads.at):
        module, colon, function = reads.function.partition(":")
        names = [*module.split("."), function]
        if not colon or not all(name.isidentifier() for name in names):
            raise InvalidParameterValue(
                f'"{reads.function}" is no function', hint="Write 'module:function'."
            )
        if not declared:
            raise InvalidParameterValue(
                "the columns of a Python source must be declared",
                hint="Write them after the name of the source: CREATE SOURCE s (a int8, ...).",
            )
    known = {each.name: (each.name, text) for each in reads.options}
    arguments = parsed_options("PYTHON", reads.options, known)
    for each in reads.options:
        if not each.name.isidentifier():
            raise InvalidParameterValue(f'"{each.name}" is no argument', position=each.at + 1)
    return PythonSource(reads.function, declared_columns(planning, declared), arguments)
