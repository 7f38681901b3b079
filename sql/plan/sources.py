"""Plans of statements about sources."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from foreshore.item_view import Name
from foreshore.sources.kafka import Messages
from foreshore.sources.postgres import TableOptions
from foreshore.sources.spec import SourceSpec
from foreshore.sql.plan.definitions import CreateSubscription
from foreshore.sql.plan.query import WritePlan


@dataclass(frozen=True, slots=True)
class AskedTable:
    """A table that was asked for by its reference, perhaps without its schema; `at` its name."""

    reference: str
    name: Name | None


@dataclass(frozen=True, slots=True)
class AskedTables:
    """Which outputs of a source shall be relations: all, those of some schemas, or single ones."""

    every: bool
    schemas: tuple[str, ...]
    tables: tuple[AskedTable, ...]


@dataclass(frozen=True, slots=True)
class CreateSource(WritePlan):
    """CREATE SOURCE; without `asked` tables it must have a single output.

    `input` is the durable subscription to the relation over which a function is called.
    """

    name: Name
    spec: SourceSpec
    asked: AskedTables | None
    progress: Name
    cluster: str | None
    if_not_exists: bool
    input: CreateSubscription | None = None
    watermark: str | None = None  # the text of its definition


@dataclass(frozen=True, slots=True)
class CreateSourceTable(WritePlan):
    """CREATE TABLE ... FROM SOURCE; `columns`, if given, are those that it must have there.

    `messages` says how the messages of a topic become its rows, `options` what it takes over of a
    table of PostgreSQL.
    """

    name: Name
    columns: tuple[str, ...] | None
    source: Name
    reference: str
    messages: Messages | None
    if_not_exists: bool
    watermark: str | None = None  # the text of its definition
    options: TableOptions | None = None


@dataclass(frozen=True, slots=True)
class AddSourceTables(WritePlan):
    """ALTER SOURCE ... ADD TABLE."""

    source: Name
    tables: tuple[AskedTable, ...]
    if_exists: bool


@dataclass(frozen=True, slots=True)
class RefreshSourceTables(WritePlan):
    """ALTER SOURCE ... REFRESH TABLE: with the columns that the tables have there now."""

    source: Name
    names: tuple[Name, ...]
    if_exists: bool


@dataclass(frozen=True, slots=True)
class DropSourceTables(WritePlan):
    """ALTER SOURCE ... DROP TABLE; with `tables_may_lack`, names of no table are skipped."""

    source: Name
    names: tuple[Name, ...]
    tables_may_lack: bool
    cascade: bool
    if_exists: bool


@dataclass(frozen=True, slots=True)
class AlterSource(WritePlan):
    """ALTER SOURCE ... SET or RESET: new values by the fields of specs; None: the default."""

    name: Name
    changes: Mapping[str, Any]
    if_exists: bool
