"""Bind CREATE SOURCE: what is read, and which of its outputs shall be relations.

Which outputs there are is found out when the statement runs.
"""

from foreshore.errors import InvalidParameterValue
from foreshore.item_view import Name
from foreshore.sources.spec import SourceSpec
from foreshore.sql import ast
from foreshore.sql.bind.definitions.sources.asked import asked_tables
from foreshore.sql.bind.definitions.sources.files import bind_files
from foreshore.sql.bind.definitions.sources.generators import bind_generator
from foreshore.sql.bind.definitions.sources.iceberg import bind_iceberg
from foreshore.sql.bind.definitions.sources.kafka import bind_kafka
from foreshore.sql.bind.definitions.sources.postgres import bind_postgres
from foreshore.sql.bind.definitions.sources.python import bind_input, bind_python
from foreshore.sql.bind.definitions.sources.webhook import bind_webhook
from foreshore.sql.bind.definitions.watermark import source_watermark
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.plan import AskedTables, CreateSource


def bind_create_source(planning: Planning, statement: ast.CreateSourceStatement) -> CreateSource:
    """Return the plan of CREATE SOURCE."""
    with located(statement.name.at):
        name = planning.catalog.resolve_new(statement.name.name)
    spec = _spec(planning, statement)
    reads, read = statement.reads, None
    if isinstance(reads, ast.PythonSyntax) and reads.over is not None:
        read = bind_input(planning, reads.over, name)
    return CreateSource(
        name,
        spec,
        _asked(planning, statement.tables),
        _progress_name(planning, statement, name),
        statement.cluster,
        statement.if_not_exists,
        read,
        source_watermark(statement.watermark),
    )


# These may have declared columns.
_DECLARED = (ast.KafkaSyntax, ast.FilesSyntax, ast.PythonSyntax, ast.IcebergSyntax)


def _spec(planning: Planning, statement: ast.CreateSourceStatement) -> SourceSpec:
    reads, declared = statement.reads, statement.columns
    if declared and not isinstance(reads, _DECLARED):
        raise InvalidParameterValue(
            "the columns of the source are known, and cannot be declared",
            position=declared[0].at + 1,
        )
    match reads:
        case ast.GeneratorSyntax():
            return bind_generator(reads)
        case ast.PostgresSyntax():
            return bind_postgres(planning, reads)
        case ast.KafkaSyntax():
            return bind_kafka(planning, reads, declared)
        case ast.WebhookSyntax():
            return bind_webhook(planning, reads)
        case ast.FilesSyntax():
            return bind_files(planning, reads, declared)
        case ast.IcebergSyntax():
            return bind_iceberg(planning, reads, declared)
        case ast.PythonSyntax():
            return bind_python(planning, reads, declared)


def _asked(planning: Planning, tables: ast.FedTables | None) -> AskedTables | None:
    if tables is None:
        return None
    return AskedTables(tables.every, tables.schemas, asked_tables(planning, tables.tables))


def _progress_name(planning: Planning, statement: ast.CreateSourceStatement, name: Name) -> Name:
    if statement.progress is None:
        return Name(name.database, name.schema, f"{name.item}_progress")
    with located(statement.progress.at):
        return planning.catalog.resolve_new(statement.progress.name)
