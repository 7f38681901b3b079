"""SHOW CREATE of sources of files, Python functions and load generators."""

from collections.abc import Mapping

from foreshore.adapter.show.connections import full_name
from foreshore.catalog.item import Connection
from foreshore.catalog.state import State
from foreshore.iceberg_tables import CatalogTable
from foreshore.sources.files import FilesSource
from foreshore.sources.generators import LoadGenerator
from foreshore.sources.python import MemoSource, PythonSource
from foreshore.sql.parse.keywords import quote_identifier, quote_string
from foreshore.sql.rewrite.full_names import dotted


def call_text(function: str, arguments: Mapping[str, str]) -> str:
    """Return PYTHON with a function and its arguments."""
    given = [f"{quote_identifier(each)} {quote_string(value)}" for each, value in arguments.items()]
    return f"PYTHON {quote_string(function)}" + (f" ({', '.join(given)})" if given else "")


def python_text(spec: PythonSource | MemoSource) -> str:
    """Return what follows FROM."""
    return call_text(spec.function, spec.arguments)


def memo_text(spec: MemoSource, relation: str) -> str:
    """Return what follows FROM; `relation` is the name of that over which it is called."""
    options = [f"CONCURRENCY = {spec.concurrency}", f"RETRIES = {spec.retries}"]
    options.append(f"TIMEOUT = '{spec.timeout_ms} ms'")
    if spec.batch is not None:
        options.append(f"BATCH = {spec.batch}")
    if spec.forget:
        options.append("FORGET = true")
    if spec.error_column is not None:
        options.append(f"ERROR COLUMN = {quote_string(spec.error_column)}")
    return f"{python_text(spec)} OVER {relation} ({', '.join(options)})"


def generator_text(spec: LoadGenerator) -> str:
    """Return what follows FROM."""
    options = [f"TICK INTERVAL = '{spec.tick_ms} ms'"]
    if spec.up_to is not None:
        options.append(f"UP TO = {spec.up_to}")
    if spec.as_of:
        options.append(f"AS OF = {spec.as_of}")
    if spec.max_cardinality is not None:
        options.append(f"MAX CARDINALITY = {spec.max_cardinality}")
    if spec.generator == "tpch":
        options.append(f"SCALE FACTOR = {spec.scale_percent / 100:g}")
    if spec.generator == "key value":
        options += [
            f"KEYS = {spec.keys}",
            f"PARTITIONS = {spec.partitions}",
            f"SNAPSHOT ROUNDS = {spec.snapshot_rounds}",
            f"VALUE SIZE = {spec.value_size}",
            f"BATCH SIZE = {spec.batch_size}",
        ]
    if spec.seed:
        options.append(f"SEED = {spec.seed}")
    return f"LOAD GENERATOR {spec.generator.upper()} ({', '.join(options)})"


def catalog_table_text(state: State, table: CatalogTable, *more: str) -> str:
    """Return what follows FROM or INTO, with more options."""
    options = [f"NAMESPACE = {quote_string(table.namespace)}"]
    options.append(f"TABLE = {quote_string(table.table)}")
    if table.local:
        options.append("LOCAL FILES")
    called = []
    for id in table.connections:
        connection = state.objects[id]
        assert isinstance(connection, Connection), connection
        called.append(dotted(full_name(state, connection)))
    uses = "" if table.aws is None else f" USING AWS CONNECTION {called[1]}"
    return f"ICEBERG CATALOG CONNECTION {called[0]} ({', '.join((*options, *more))}){uses}"


def files_text(spec: FilesSource, connection: str | None) -> str:
    """Return what follows FROM; `connection` is the name of its connection to AWS."""
    options = [f"FORMAT = {quote_string(spec.format)}"]
    if spec.format == "csv":
        options.append(f"HEADER = {'true' if spec.header else 'false'}")
        options.append(f"DELIMITER = {quote_string(spec.delimiter)}")
        options.append(f"QUOTE = {quote_string(spec.quote)}")
        options.append(f"ESCAPE = {quote_string(spec.escape or spec.quote)}")
        options.append(f"NULL = {quote_string(spec.null)}")
    if spec.order != "name":
        options.append(f"ORDER = {spec.order}")
    if spec.age_ms:
        options.append(f"MINIMUM AGE = '{spec.age_ms} ms'")
    if spec.hive:
        options.append("HIVE PARTITIONING = true")
    options.append(f"FOLLOW = {'true' if spec.follow else 'false'}")
    options.append(f"POLL INTERVAL = '{spec.poll_ms} ms'")
    if spec.applies_changes:
        options.append("SCHEMA CHANGES = APPLY")
    if spec.filter is not None:
        options.append(f"FILTER = {quote_string(spec.filter)}")
    uses = "" if connection is None else f" USING AWS CONNECTION {connection}"
    return f"FILES {quote_string(spec.url)}{uses} ({', '.join(options)})"
