"""Bind CREATE SOURCE: which options a source takes, and which relations come with it."""

from collections.abc import Callable, Mapping
from typing import Any

from foreshore.errors import (
    FeatureNotSupported,
    InvalidParameterValue,
    SyntaxError_,
    UndefinedTable,
)
from foreshore.interval_text import parse_interval
from foreshore.item_view import Name
from foreshore.source_spec import (
    GENERATORS,
    OWN_ROWS,
    PROGRESS,
    LoadGenerator,
    SourceSpec,
    output_desc,
    outputs_of,
)
from foreshore.sql import ast
from foreshore.sql.parse.keywords import quote_identifier, quote_string
from foreshore.sql.plan import CreateFedTable, CreateSource, FedRelation
from foreshore.sql.planning import Planning, located
from foreshore.sql.rewrite.full_names import dotted

LEAST_TICK_MS = 1


def bind_create_source(planning: Planning, statement: ast.CreateSourceStatement) -> CreateSource:
    """Return the plan of CREATE SOURCE."""
    with located(statement.name.at):
        name = planning.catalog.resolve_new(statement.name.name)
    spec = _spec(statement.reads)
    parts = () if planning.defined else _parts(planning, statement, spec, name)
    text = f"CREATE SOURCE {dotted(name.parts)} FROM {written(spec)}"
    desc = output_desc(spec, OWN_ROWS)
    return CreateSource(name, spec, desc, parts, statement.cluster, statement.if_not_exists, text)


def bind_create_fed_table(
    planning: Planning, statement: ast.CreateFedTableStatement
) -> CreateFedTable:
    """Return the plan of the kept form of a relation that a source writes."""
    if not planning.defined:
        raise FeatureNotSupported(
            "CREATE SUBSOURCE is not supported",
            hint="Use CREATE SOURCE ... FOR TABLES.",
            position=statement.name.at + 1,
        )
    with located(statement.name.at):
        name = planning.catalog.resolve_new(statement.name.name)
    with located(statement.source.at):
        source = planning.catalog.resolve_item(statement.source.name)
    if source.source is None:
        raise UndefinedTable(f'source "{source.name.item}" does not exist')
    desc = output_desc(source.source, statement.reference)
    sql = fed_table_text(dotted(name.parts), dotted(source.name.parts), statement.reference)
    return CreateFedTable(name, source.id, statement.reference, desc, sql)


def fed_table_text(name: str, source: str, reference: str) -> str:
    """Return the kept form of a relation that a source writes."""
    return f"CREATE SUBSOURCE {name} OF SOURCE {source} (REFERENCE = {quote_string(reference)})"


# --- what is read --------------------------------------------------------------------------


def _spec(reads: ast.GeneratorSyntax) -> SourceSpec:
    """Return what a source reads; raises if an option is unknown, repeated or of a wrong value."""
    if reads.generator not in GENERATORS:
        raise InvalidParameterValue(
            f'unknown load generator "{reads.generator}"',
            hint=f"There are {', '.join(name.upper() for name in GENERATORS)}.",
            position=reads.at + 1,
        )
    found: dict[str, Any] = {}
    for option in reads.options:
        known = _OPTIONS.get(option.name)
        if known is None:
            raise SyntaxError_(
                f'unknown option "{option.name}" of LOAD GENERATOR', position=option.at + 1
            )
        field, parse = known
        if field in found:
            raise SyntaxError_(f'option "{option.name}" is given twice', position=option.at + 1)
        with located(option.at):
            found[field] = parse(option.name, option.value)
    return LoadGenerator(reads.generator, **found)  # type: ignore[arg-type]


def _tick(name: str, value: str | None) -> int:
    """Return the milliseconds of an interval without months."""
    months, days, micros = (0, 0, 0) if value is None else parse_interval(value)
    milliseconds = days * 86_400_000 + micros // 1000
    if months or milliseconds < LEAST_TICK_MS:
        raise InvalidParameterValue(
            f'option "{name}" must be an interval of at least 1 millisecond, without months'
        )
    return milliseconds


def _count(name: str, value: str | None) -> int:
    if value is None or not value.isascii() or not value.isdigit() or len(value) > 18:
        raise InvalidParameterValue(f'option "{name}" must be a number that is not negative')
    return int(value)


_OPTIONS: Mapping[str, tuple[str, Callable[[str, str | None], Any]]] = {
    "tick interval": ("tick_ms", _tick),
    "up to": ("up_to", _count),
}


def written(spec: SourceSpec) -> str:
    """Return what a source reads as its definition has it."""
    options = [f"TICK INTERVAL = '{spec.tick_ms} ms'"]
    if spec.up_to is not None:
        options.append(f"UP TO = {spec.up_to}")
    return f"LOAD GENERATOR {spec.generator.upper()} ({', '.join(options)})"


# --- which relations come with it ----------------------------------------------------------


def _parts(
    planning: Planning, statement: ast.CreateSourceStatement, spec: SourceSpec, name: Name
) -> tuple[FedRelation, ...]:
    """Return the relations that come with a source: its progress, and the tables asked for."""
    references = [each for each in outputs_of(spec) if each != OWN_ROWS]
    asked = statement.tables
    if asked is None and references:
        raise InvalidParameterValue(
            "the source has several tables",
            hint="Add FOR ALL TABLES or FOR TABLES (...).",
            position=statement.reads.at + 1,
        )
    if asked is not None and not references:
        raise InvalidParameterValue(
            "the source has rows of its own and no tables",
            hint="Leave out FOR ...",
            position=statement.reads.at + 1,
        )
    chosen = asked or tuple(ast.FedTable(each, None) for each in references)
    parts = [FedRelation(_progress_name(planning, statement, name), PROGRESS)]
    for each in chosen if references else ():
        if each.reference not in references:
            raise UndefinedTable(
                f'table "{each.reference}" does not exist in the source',
                hint=f"It has {', '.join(map(quote_identifier, references))}.",
            )
        called = Name(name.database, name.schema, each.reference)
        if each.name is not None:
            with located(each.name.at):
                called = planning.catalog.resolve_new(each.name.name)
        parts.append(FedRelation(called, each.reference))
    return tuple(parts)


def _progress_name(planning: Planning, statement: ast.CreateSourceStatement, name: Name) -> Name:
    if statement.progress is None:
        return Name(name.database, name.schema, f"{name.item}_progress")
    with located(statement.progress.at):
        return planning.catalog.resolve_new(statement.progress.name)
