"""SHOW CREATE of sources, and of the relations that they write."""

from collections.abc import Mapping

from foreshore.adapter.external.details import details_of, table_of
from foreshore.adapter.show.connections import full_name
from foreshore.adapter.show.kafka_sources import declared_text, kafka_text, messages_text
from foreshore.adapter.show.other_sources import (
    catalog_table_text,
    files_text,
    generator_text,
    memo_text,
    python_text,
)
from foreshore.catalog.groups import parts_of
from foreshore.catalog.item import Connection, Item, Secret
from foreshore.catalog.planned import Planned
from foreshore.catalog.state import State
from foreshore.ids import GlobalId
from foreshore.sources.files import FilesSource
from foreshore.sources.generators import LoadGenerator
from foreshore.sources.iceberg import IcebergSource
from foreshore.sources.kafka import KafkaSource, Messages
from foreshore.sources.outputs import PROGRESS, is_auxiliary
from foreshore.sources.postgres import PostgresSource, TableOptions
from foreshore.sources.python import MemoSource, PythonSource
from foreshore.sources.spec import SourceSpec
from foreshore.sources.webhook import CheckInput, WebhookSource
from foreshore.sql.bind.definitions.watermark import watermark_text
from foreshore.sql.parse.keywords import quote_identifier, quote_string
from foreshore.sql.rewrite.full_names import dotted


def source_text(state: State, planned: Mapping[GlobalId, Planned], item: Item) -> str:
    """Return the statement that creates a source with its relations, by their present names.

    That of one of its relations says from which source it comes.
    """
    desc = planned[item.id].desc
    watermark = None
    if desc.watermark is not None:
        watermark = watermark_text(desc.watermark, desc.names, shown=True)
    name = dotted(state.full_name(item))
    assert item.feed, item
    if item.feed.spec is None:
        fed_by = state.item(GlobalId(item.feed.source))
        source = dotted(state.full_name(fed_by))
        if item.feed.messages is not None:
            assert fed_by.feed
            assert isinstance(fed_by.feed.spec, KafkaSource), fed_by
            name += declared_text(item.feed.messages.columns, watermark)
            topic = quote_identifier(fed_by.feed.spec.topic)
            format = messages_text(item.feed.messages, lambda id: _connection(state, id))
            return f"CREATE TABLE {name} FROM SOURCE {source} (REFERENCE {topic}) {format}"
        reference, options = item.feed.reference, ""
        if isinstance(fed_by.feed and fed_by.feed.spec, PostgresSource) and item.feed.details:
            reference, options = table_of(item.feed), _options_of(details_of(item.feed).options)
        return (
            f"CREATE TABLE {name} FROM SOURCE {source} (REFERENCE {_reference(reference)}){options}"
        )
    parts = {
        each.feed.reference: dotted(state.full_name(each))
        for each in state.items_of(parts_of(item.id))
        if each.feed and each.feed.messages is None and not _is_apart(item, each)
    }
    progress = parts.pop(PROGRESS, None)
    tables = [
        f"{_reference(each)} AS {called}"
        for each, called in parts.items()
        if not is_auxiliary(each)
    ]
    chosen = f" FOR TABLES ({', '.join(tables)})" if tables else ""
    cluster = quote_identifier(state.objects[item.cluster or ""].name)
    spec = item.feed.spec
    declared = spec.messages if isinstance(spec, KafkaSource) else spec
    may_declare = Messages | FilesSource | PythonSource | MemoSource | IcebergSource
    if isinstance(declared, may_declare):
        name += declared_text(declared.columns, watermark)
    return f"CREATE SOURCE {name} IN CLUSTER {cluster} FROM {_written(state, item)}{chosen}" + (
        "" if progress is None else f" EXPOSE PROGRESS AS {progress}"
    )


def has_own_statement(state: State, item: Item) -> bool:
    """Return whether what a source writes is made by a statement of its own."""
    assert item.feed, item
    if item.feed.spec is not None:
        return True
    if item.feed.reference == PROGRESS or is_auxiliary(item.feed.reference):
        return False
    source = state.item(GlobalId(item.feed.source))
    return item.feed.messages is not None or _is_apart(source, item)


def _is_apart(source: Item, table: Item) -> bool:
    """Return whether only a statement of its own makes a table of a PostgreSQL source."""
    assert source.feed, source
    assert table.feed, table
    if not isinstance(source.feed.spec, PostgresSource) or not table.feed.details:
        return False
    details = details_of(table.feed)
    return details.table is not None or details.options is not None


def _options_of(options: TableOptions | None) -> str:
    """Return WITH (...) of a table of a PostgreSQL source."""
    if options is None:
        return ""
    return f" WITH ({', '.join(_named(options))})"


def _named(options: TableOptions | PostgresSource) -> list[str]:
    """Return the options that name columns and constraints."""
    found = {
        "TEXT COLUMNS": options.text_columns,
        "EXCLUDE COLUMNS": options.exclude_columns,
        "EXCLUDE CONSTRAINTS": options.exclude_constraints,
    }
    return [
        f"{name} = ({', '.join(map(_reference, names))})" for name, names in found.items() if names
    ]


def _reference(reference: str) -> str:
    return ".".join(map(quote_identifier, reference.split(".")))


def _written(state: State, item: Item) -> str:
    """Return what a source reads."""
    assert item.feed, item
    spec: SourceSpec | None = item.feed.spec
    match spec:
        case LoadGenerator():
            return generator_text(spec)
        case PostgresSource():
            options = [f"PUBLICATION = {quote_string(spec.publication)}", *_named(spec)]
            if spec.applies_changes:
                options.append("SCHEMA CHANGES = APPLY")
            return (
                f"POSTGRES CONNECTION {_connection(state, spec.connection)} ({', '.join(options)})"
            )
        case KafkaSource():
            return kafka_text(spec, lambda id: _connection(state, id))
        case FilesSource():
            uses = spec.connection and _connection(state, spec.connection)
            return files_text(spec, uses)
        case IcebergSource():
            follow = "true" if spec.follow else "false"
            more = [f"FOLLOW = {follow}", f"POLL INTERVAL = '{spec.poll_ms} ms'"]
            if spec.filter is not None:
                more.append(f"FILTER = {quote_string(spec.filter)}")
            if spec.applies_changes:
                more.append("SCHEMA CHANGES = APPLY")
            return catalog_table_text(state, spec.of, *more)
        case PythonSource():
            return python_text(spec)
        case MemoSource():
            (relation,) = item.depends_on
            return memo_text(spec, dotted(state.full_name(state.item(relation))))
        case WebhookSource():
            return _webhook(state, spec)
        case None:
            raise AssertionError(f"{item.name} is a part of a source")


def _webhook(state: State, spec: WebhookSource) -> str:
    parts = [f"WEBHOOK BODY FORMAT {spec.body.upper()}"]
    if spec.all_headers:
        left_out = ", ".join(f"NOT {quote_string(each)}" for each in spec.without_headers)
        parts.append(f"INCLUDE HEADERS ({left_out})" if left_out else "INCLUDE HEADERS")
    for each in spec.headers:
        as_bytes = " BYTES" if each.as_bytes else ""
        column = quote_identifier(each.column)
        parts.append(f"INCLUDE HEADER {quote_string(each.header)} AS {column}{as_bytes}")
    if spec.check:
        inputs = ", ".join(_check_input(state, each) for each in spec.inputs)
        parts.append(f"CHECK (WITH ({inputs}) {spec.check})")
    return " ".join(parts)


def _check_input(state: State, each: CheckInput) -> str:
    what = each.what.upper()
    if each.secret:
        secret = state.objects[each.secret]
        assert isinstance(secret, Secret), secret
        what = f"SECRET {dotted(full_name(state, secret))}"
    return f"{what} AS {quote_identifier(each.column)}{' BYTES' if each.as_bytes else ''}"


def _connection(state: State, id: str) -> str:
    connection = state.objects[id]
    assert isinstance(connection, Connection), connection
    return dotted(full_name(state, connection))
