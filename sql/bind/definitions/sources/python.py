"""Bind PYTHON."""

from collections.abc import Mapping, Sequence

from foreshore.errors import DuplicateColumn, InvalidParameterValue, WrongObjectType
from foreshore.item_view import ItemView, Name
from foreshore.sources.outputs import Column
from foreshore.sources.python import MemoSource, PythonSource
from foreshore.sql import ast
from foreshore.sql.bind.definitions.sources.declared import declared_columns
from foreshore.sql.bind.definitions.sources.options import (
    OptionValue,
    Parse,
    count,
    milliseconds,
    parsed_options,
    text,
    truth,
)
from foreshore.sql.bind.definitions.subscribe import bind_create_subscription
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.plan import CreateSubscription
from foreshore.types import written_type

_WITH_HISTORY = ("table", "source", "materialized view")
LONGEST_CALL_MS = 3_600_000


def bind_python(
    planning: Planning, reads: ast.PythonSyntax, declared: Sequence[ast.ColumnDefinition]
) -> PythonSource | MemoSource:
    """Return which function is called, with texts as arguments."""
    check_function(reads.function, reads.at)
    with located(reads.at):
        if not declared:
            raise InvalidParameterValue(
                "the columns of a Python source must be declared",
                hint="Write them after the name of the source: CREATE SOURCE s (a int8, ...).",
            )
    arguments = bind_arguments(reads.options)
    columns = declared_columns(planning, declared)
    if reads.over is None:
        return PythonSource(reads.function, columns, arguments)
    return _memo(planning, reads, reads.over, columns, arguments)


def check_function(function: str, at: int) -> None:
    """Raise InvalidParameterValue unless it is written `module:function`."""
    module, colon, name = function.partition(":")
    if not colon or not all(each.isidentifier() for each in (*module.split("."), name)):
        raise InvalidParameterValue(
            f'"{function}" is no function', hint="Write 'module:function'.", position=at + 1
        )


def bind_arguments(options: Sequence[ast.SourceOption]) -> dict[str, str]:
    """Return arguments by their names; each is a text."""
    arguments = parsed_options(
        "PYTHON", options, {each.name: (each.name, text) for each in options}
    )
    for each in options:
        if not each.name.isidentifier():
            raise InvalidParameterValue(f'"{each.name}" is no argument', position=each.at + 1)
    return arguments


# --- OVER ------------------------------------------------------------------------------------


def bind_input(planning: Planning, over: ast.OverSyntax, source: Name) -> CreateSubscription:
    """Return the durable subscription by which a source called `source` reads its input.

    Raises DuplicateTable later if its name, SOURCE_input, is taken.
    """
    relation = over.relation
    name = (*source.parts[:-1], f"{source.item}_input")
    called = ast.TableRef(name, None, (), relation.at, relation.end)
    return bind_create_subscription(
        planning,
        ast.CreateSubscriptionStatement(called, relation, False, relation.at, relation.end),
    )


def _memo(
    planning: Planning,
    reads: ast.PythonSyntax,
    over: ast.OverSyntax,
    columns: tuple[Column, ...],
    arguments: dict[str, str],
) -> MemoSource:
    """Return a source that keeps what a function returns for the rows of a relation."""
    with located(over.relation.at):
        item = planning.catalog.resolve_item(over.relation.name)
        if item.kind not in _WITH_HISTORY:
            raise WrongObjectType(
                f'"{item.name.item}" is not a table, source or materialized view',
                hint="Create a materialized view of it.",
            )
    options = parsed_options("OVER", over.options, _OPTIONS)
    found = MemoSource(reads.function, _columns_of(item), columns, arguments, **options)
    names = [each.name for each in found.written]
    for name in names:
        if names.count(name) > 1:
            raise DuplicateColumn(
                f'column "{name}" specified more than once',
                hint="The source has the columns of the relation, and those declared.",
                position=reads.at + 1,
            )
    if found.error_column and not all(each.nullable for each in columns):
        raise InvalidParameterValue(
            "with ERROR COLUMN the results must not be NOT NULL", position=reads.at + 1
        )
    return found


def _columns_of(item: ItemView) -> tuple[Column, ...]:
    return tuple(
        Column(name, written_type(column.type), column.nullable)
        for name, column in zip(item.desc.names, item.desc.columns, strict=True)
    )


def _between(least: int, most: int) -> Parse:
    def parse(name: str, value: OptionValue) -> int:
        found = count(name, value)
        if not least <= found <= most:
            raise InvalidParameterValue(f'option "{name}" must be between {least} and {most}')
        return found

    return parse


def timeout(name: str, value: OptionValue) -> int:
    """Return the milliseconds that a call may take."""
    found = milliseconds(name, value)
    if found > LONGEST_CALL_MS:
        raise InvalidParameterValue(f'option "{name}" must be at most an hour')
    return found


_OPTIONS: Mapping[str, tuple[str, Parse]] = {
    "concurrency": ("concurrency", _between(1, 1000)),
    "batch": ("batch", _between(1, 65_536)),
    "retries": ("retries", _between(0, 20)),
    "timeout": ("timeout_ms", timeout),
    "forget": ("forget", truth),
    "error column": ("error_column", text),
}
