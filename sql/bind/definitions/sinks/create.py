"""Bind CREATE SINK: what is written, where, and by which key."""

from collections.abc import Mapping

from msgspec.structs import replace

from foreshore.errors import (
    FeatureNotSupported,
    InvalidParameterValue,
    UndefinedColumn,
    WrongObjectType,
)
from foreshore.item_view import ItemView
from foreshore.sinks.places import IcebergTarget
from foreshore.sinks.python import PythonTarget
from foreshore.sinks.spec import SinkSpec, Target
from foreshore.sql import ast
from foreshore.sql.bind.definitions.sinks.kafka import bind_kafka_target
from foreshore.sql.bind.definitions.sinks.keys import known_keys
from foreshore.sql.bind.definitions.sinks.lake_partitions import partition_fields
from foreshore.sql.bind.definitions.sinks.places import bind_place
from foreshore.sql.bind.definitions.sinks.postgres import bind_postgres_target
from foreshore.sql.bind.definitions.sinks.webhook import bind_webhook_target
from foreshore.sql.bind.definitions.sinks.written import Written
from foreshore.sql.bind.definitions.sources.iceberg import (
    TABLE_OPTIONS,
    WHAT,
    bind_catalog_table,
)
from foreshore.sql.bind.definitions.sources.options import (
    Parse,
    flag,
    milliseconds,
    parsed_options,
)
from foreshore.sql.bind.definitions.sources.python import (
    bind_arguments,
    check_function,
    timeout,
)
from foreshore.sql.bind.definitions.subscribe import bind_create_subscription
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.plan import CreateSink

_WITH_HISTORY = ("table", "source", "materialized view")
COMMIT_INTERVAL: Mapping[str, tuple[str, Parse]] = {"commit interval": ("commit_ms", milliseconds)}
TIMEOUT: Mapping[str, tuple[str, Parse]] = {"timeout": ("timeout_ms", timeout)}  # of Python's calls
_OPTIONS: Mapping[str, tuple[str, Parse]] = {
    "snapshot": ("with_snapshot", flag),
    **COMMIT_INTERVAL,
    **TIMEOUT,
}


def bind_create_sink(planning: Planning, statement: ast.CreateSinkStatement) -> CreateSink:
    """Return the plan of CREATE SINK."""
    relation = statement.relation
    item = written_relation(planning, relation)
    options = parsed_options("CREATE SINK", statement.options, _OPTIONS)
    envelope = statement.envelope or _default_envelope(statement.target)
    key = _key(planning, statement, item, envelope)
    if isinstance(statement.target, ast.PythonTargetSyntax) and statement.messages is None:
        target: Target = _python(statement.target, envelope, options.pop("timeout_ms", None))
    else:
        target = _bind_target(planning, statement, Written(item.name, item.desc, key, envelope))
    if "timeout_ms" in options:
        raise InvalidParameterValue(
            "option TIMEOUT of CREATE SINK is for PYTHON", position=statement.at + 1
        )
    subscription = bind_create_subscription(
        planning,
        ast.CreateSubscriptionStatement(
            statement.name, relation, statement.if_not_exists, relation.at, relation.end
        ),
    )
    known = bool(key) and _is_known(planning, item, key)
    spec = SinkSpec(target, envelope, key, **options, key_known=known)
    return CreateSink(subscription, spec, statement.cluster)


def written_relation(planning: Planning, relation: ast.TableRef) -> ItemView:
    """Return the relation that a sink writes; raises WrongObjectType if it has no history."""
    with located(relation.at):
        item = planning.catalog.resolve_item(relation.name)
        if item.kind not in _WITH_HISTORY:
            raise WrongObjectType(
                f'"{item.name.item}" is not a table, source or materialized view',
                hint="Create a materialized view of it.",
            )
    return item


def _default_envelope(target: ast.TargetSyntax) -> ast.SinkEnvelope:
    """Return the envelope of a sink that names none: files and requests are only added."""
    if isinstance(target, ast.PlaceTargetSyntax) and target.kind == "files":
        return "append"
    is_told = isinstance(target, ast.WebhookTargetSyntax | ast.PythonTargetSyntax)
    return "append" if is_told else "upsert"


def _python(
    target: ast.PythonTargetSyntax, envelope: ast.SinkEnvelope, timeout_ms: int | None
) -> PythonTarget:
    """Return the function or class that gets the changes."""
    check_function(target.function, target.at)
    if envelope != "append":
        raise FeatureNotSupported(
            f"ENVELOPE {envelope.upper()} is not for PYTHON",
            hint="Use APPEND.",
            position=target.at + 1,
        )
    found = PythonTarget(target.function, bind_arguments(target.options))
    return found if timeout_ms is None else replace(found, timeout_ms=timeout_ms)


def _bind_target(planning: Planning, statement: ast.CreateSinkStatement, rows: Written) -> Target:
    """Return where a sink writes; each kind of external system has a file of its own."""
    target = statement.target
    if isinstance(target, ast.KafkaTargetSyntax):
        return bind_kafka_target(planning, target, statement.messages, rows)
    if statement.messages is not None:
        raise InvalidParameterValue(
            "FORMAT and HEADERS are for sinks to KAFKA", position=statement.messages.at + 1
        )
    if isinstance(target, ast.PlaceTargetSyntax):
        return bind_place(target)
    if isinstance(target, ast.IcebergSyntax):
        known = {
            **TABLE_OPTIONS,
            "partition by": ("partition_by", partition_fields),
            "retention": ("retention_ms", milliseconds),
        }
        options = parsed_options(WHAT, target.options, known)
        of = bind_catalog_table(planning, target, options)
        return IcebergTarget(of, **options)
    if isinstance(target, ast.WebhookTargetSyntax):
        return bind_webhook_target(planning, target, rows.desc)
    assert isinstance(target, ast.PostgresTargetSyntax), target
    return bind_postgres_target(planning, target)


def _key(
    planning: Planning,
    statement: ast.CreateSinkStatement,
    item: ItemView,
    envelope: ast.SinkEnvelope,
) -> tuple[str, ...]:
    """Return the columns of the key: those that are named, or else a unique key that is known."""
    given = statement.key
    if given is None:
        if envelope != "upsert":
            return ()
        known = known_keys(planning, item)
        if not known:
            raise InvalidParameterValue(
                f"ENVELOPE {envelope.upper()} needs a key",
                hint="Add KEY (column, ...): the relation has no unique key that is known.",
                position=statement.at + 1,
            )
        return known[0]
    for name in given.columns:
        if name not in item.desc.names:
            raise UndefinedColumn(f'column "{name}" does not exist', position=given.at + 1)
    if given.enforced and not _is_known(planning, item, given.columns):
        raise InvalidParameterValue(
            f"the columns ({', '.join(given.columns)}) are not known to be unique",
            hint="Add NOT ENFORCED if they are: a second row of a key would stop the sink.",
            position=given.at + 1,
        )
    return given.columns


def _is_known(planning: Planning, item: ItemView, key: tuple[str, ...]) -> bool:
    """Return whether no two rows of a relation can agree on these columns."""
    return any(set(known) <= set(key) for known in known_keys(planning, item))
