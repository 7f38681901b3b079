"""Bind CREATE TABLE and ALTER TABLE: columns, defaults and constraints.

A table is defined by one CREATE TABLE in a fixed form in which all constraints are named. ALTER
TABLE edits that statement's syntax tree; the result is planned like any other CREATE TABLE.
"""

from collections.abc import Sequence
from dataclasses import replace

from foreshore.constraint import Constraint, Unique
from foreshore.errors import (
    DependentObjectsStillExist,
    DuplicateColumn,
    DuplicateObject,
    FeatureNotSupported,
    InvalidParameterValue,
    InvalidTableDefinition,
    ObjectNotInPrerequisiteState,
    SyntaxError_,
    UndefinedColumn,
    UndefinedObject,
    UndefinedTable,
    WrongObjectType,
)
from foreshore.expr.ir import (
    Scalar,
)
from foreshore.ids import GlobalId
from foreshore.item_view import ItemView, Name
from foreshore.sql import ast
from foreshore.sql.bind.definitions.column import (
    ColumnBinder,
    generated,
    has_sequence,
)
from foreshore.sql.bind.definitions.computed import converted, generated_column
from foreshore.sql.bind.definitions.constraints import (
    bound_constraints,
    constraint_text,
    refuse_two_primary_keys,
)
from foreshore.sql.bind.definitions.foreign_keys import bound_foreign_keys
from foreshore.sql.bind.definitions.objects import retention
from foreshore.sql.bind.definitions.sequence import altered_sequence, identity_sequence
from foreshore.sql.bind.definitions.table_like import with_likes_expanded
from foreshore.sql.bind.definitions.table_options import bound_on_commit, index_on, require_table
from foreshore.sql.bind.definitions.tuning import require_index
from foreshore.sql.bind.definitions.watermark import (
    bound_watermark,
    check_idle_timeout,
    refuse_watermarked,
    watermark_text,
)
from foreshore.sql.bind.domain_values import column_checks
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.bind.type_names import type_of_name
from foreshore.sql.bind.widths import check_columns
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.plan import (
    AlterSequence,
    AlterTable,
    CreateTable,
    ForeignKeyChanges,
)
from foreshore.sql.rewrite.column_names import column_refs, with_column_renamed, without_qualifiers
from foreshore.sql.rewrite.full_names import dotted
from foreshore.sql.rewrite.statement_heads import APPEND_ONLY
from foreshore.types import ColumnType, RelationDesc, is_composite, written_type

_NOT_STORED = frozenset(("record", "void", "unknown"))


def bind_create_table(planning: Planning, statement: ast.CreateTableStatement) -> CreateTable:
    """Return the plan of CREATE TABLE."""
    with_likes_expanded(planning, statement)
    with located(statement.name.at):
        name = planning.catalog.resolve_new(statement.name.name, temporary=statement.temporary)
    check_idle_timeout(statement.watermark, temporary=name.temporary, defined=planning.defined)
    on_commit = bound_on_commit(name, statement.on_commit)
    primary = [each for each in statement.constraints if each.kind == "primary key"]
    with located(primary[1].at if len(primary) > 1 else 0):
        refuse_two_primary_keys(name, statement.constraints)
    definition = _define(
        planning,
        name,
        statement.columns,
        statement.constraints,
        statement.if_not_exists,
        append_only=statement.append_only,
        watermark=statement.watermark,
    )
    if definition.desc.append_only and on_commit == "delete rows":
        raise InvalidTableDefinition("ON COMMIT DELETE ROWS excludes APPEND ONLY")
    foreign = bound_foreign_keys(
        planning, name, definition.desc, definition.constraints, statement.foreign_keys
    )
    return replace(
        definition,
        retain_ms=retention(statement.retain),
        on_commit=on_commit,
        foreign_keys=foreign,
        indexes=tuple(index_on(name, *each) for each in statement.indexes),
    )


def _define(
    planning: Planning,
    name: Name,
    definitions: Sequence[ast.ColumnDefinition],
    constraints: Sequence[ast.ConstraintDefinition],
    if_not_exists: bool = False,
    *,
    append_only: bool = False,
    watermark: ast.WatermarkDefinition | None = None,
) -> CreateTable:
    check_columns([each.name for each in definitions], defined=planning.defined)
    planning.in_view = True  # without parameters
    required = _not_null_columns(name, definitions, constraints)
    defining = ColumnBinder(planning, name)
    columns: list[ColumnType] = []
    defaults: list[Scalar] = []
    parts: list[str] = []
    implied: list[Constraint] = []
    stored: list[int] = []
    for column in definitions:
        type = defining.type_of(column)
        if (type.element or type).name in _NOT_STORED and not is_composite(type):
            raise InvalidParameterValue(
                f'column "{column.name}" has pseudo-type {type}',
                sqlstate="42P16",
                position=column.at + 1,
            )
        columns.append(ColumnType(type, column.name not in required))
        default, text = defining.default(len(parts), column, type)
        defaults.append(default)
        null = " NOT NULL" if column.name in required else ""
        if column.generated is not None:
            stored.append(len(parts))
        domain = defining.domain_of(column)
        written = written_type(type) if domain is None else dotted(domain.parts)
        if domain is not None:
            implied += column_checks(domain, column.name, len(parts))
        parts.append(f"{quote_identifier(column.name)} {written}{null}{text}")
    if not name.temporary and any(
        planning.catalog.item(each).name.temporary for each in planning.depends_on
    ):
        raise FeatureNotSupported("a permanent table must not use a temporary sequence")
    names = tuple(c.name for c in definitions)
    computed = []
    for place in stored:
        value, text = generated_column(planning, name, definitions, columns, place)
        computed.append((place, value))
        parts[place] += f" GENERATED ALWAYS AS ({text}) STORED"
    bound = bound_constraints(planning, name, names, columns, constraints)
    parts += [constraint_text(names, each) for each in bound]
    mark = bound_watermark(watermark, names, columns)
    if mark is not None:
        append_only = True
        parts.append(watermark_text(mark, names))
    keys = tuple(
        each.columns
        for each in bound
        if isinstance(each, Unique)
        and not (each.nulls_distinct and any(columns[i].nullable for i in each.columns))
    )
    return CreateTable(
        name,
        RelationDesc(names, tuple(columns), keys, append_only=append_only, watermark=mark),
        tuple(defaults),
        (*bound, *implied),
        if_not_exists,
        f"CREATE TABLE {dotted(name.parts)} ({', '.join(parts)})"
        + (APPEND_ONLY if append_only else ""),
        tuple(map(generated, definitions)),
        tuple(defining.sequences),
        frozenset(planning.depends_on),
        computed=tuple(computed),
    )


def _not_null_columns(
    name: Name,
    definitions: Sequence[ast.ColumnDefinition],
    constraints: Sequence[ast.ConstraintDefinition],
) -> set[str]:
    """Return the columns that are never NULL."""
    required = {column.name for column in definitions if column.not_null or has_sequence(column)}
    for each in constraints:
        if each.kind == "primary key":
            required |= {column for column, _ in each.columns}
    for column in definitions:
        if column.nullable and (column.not_null or has_sequence(column)):
            raise SyntaxError_(
                f'conflicting NULL/NOT NULL declarations for column "{column.name}" '
                f'of table "{name.item}"',
                position=column.at + 1,
            )
    return required


# --- ALTER TABLE ---------------------------------------------------------------------------


def bind_alter_table(planning: Planning, statement: ast.AlterTableStatement) -> AlterTable:
    """Return the plan of ALTER TABLE; `table` is None if IF EXISTS finds none."""
    try:
        with located(statement.name.at):
            item = planning.catalog.resolve_item(statement.name.name)
    except UndefinedTable as error:
        if not statement.if_exists:
            raise
        return AlterTable(None, None, (f"{error.message}, skipping",))
    require_table(item)
    return altered(planning, item, statement.actions)


def altered(
    planning: Planning,
    item: ItemView,
    actions: Sequence[ast.TableAction],
    tag: str = "ALTER TABLE",
) -> AlterTable:
    """Return the plan that applies `actions` to table `item`."""
    planning.planned_numerics = not item.keeps_digits
    edit = _TableEdit(planning, item)
    for action in sorted(actions, key=_pass):
        edit.apply(action)
    definition = _define(
        planning,
        item.name,
        edit.columns,
        edit.constraints,
        append_only=item.desc.append_only,
        watermark=edit.watermark,
    )
    return AlterTable(
        item.id,
        definition,
        tuple(edit.notices),
        tuple(edit.origins),
        tuple(edit.dropped),
        tuple(edit.altered_sequences),
        tuple(edit.dropped_sequences),
        tag,
        _conversions(planning, item, edit, definition),
        edit.foreign_changes(planning, item, definition),
    )


def _conversions(
    planning: Planning, item: ItemView, edit: "_TableEdit", definition: CreateTable
) -> tuple[tuple[int, Scalar], ...]:
    """Return the columns whose types change, with their values over the old rows."""
    found = []
    for column, action in edit.converted:
        place = edit.columns.index(column)
        origin = edit.origins[place]
        if origin is None:
            raise UndefinedColumn(f'column "{action.column}" does not exist')
        names, columns = item.desc.names, item.desc.columns
        target = definition.desc.columns[place].type
        value = converted(planning, item.name, names, columns, action, origin, target)
        found.append((place, value))
    return tuple(found)


def _pass(action: ast.TableAction) -> int:
    """Return the rank of an action among others, as in PostgreSQL (AT_PASS_...)."""
    match action:
        case ast.DropColumn() | ast.DropConstraint() | ast.DropIdentity():
            return 0
        case ast.SetNotNull(not_null=False) | ast.SetDefault(default=None):
            return 0
        case ast.AddColumn() | ast.AlterColumnType():
            return 1
        case ast.SetNotNull():
            return 2
        case ast.AddConstraint(constraint=ast.ConstraintDefinition(kind="primary key" | "unique")):
            return 3
        case ast.SetIdentity():
            return 5
        case _:
            return 4


class _TableEdit:
    """The definition of a table while the actions of ALTER TABLE are applied to it."""

    def __init__(self, planning: Planning, item: ItemView) -> None:
        from foreshore.sql.parse.parse import parse

        (statement,) = parse(item.create_sql)
        text = without_qualifiers(item.create_sql, 0, statement.ast)
        # definitions of earlier versions qualify columns in CHECKs by the table
        if text != item.create_sql:
            (statement,) = parse(text)
        tree = statement.ast
        assert isinstance(tree, ast.CreateTableStatement), tree
        for column in tree.columns:
            column.is_new = False
        self._planning = planning
        self.name = item.name
        self.columns = list(tree.columns)
        # previous position of each column
        self.origins: list[int | None] = list(range(len(self.columns)))
        # dropped columns, each with whether CASCADE applies
        self.dropped: list[tuple[int, bool]] = []
        self.constraints = list(tree.constraints)
        self.watermark = tree.watermark
        self.converted: list[tuple[ast.ColumnDefinition, ast.AlterColumnType]] = []
        self.foreign = {each.name: each for each in item.foreign_keys}
        self.new_foreign: list[ast.ForeignKeyDefinition] = []
        self.renamed_foreign: list[tuple[str, str]] = []
        self.validated: list[str] = []
        self.cascades = False
        self.notices: list[str] = []
        self.altered_sequences: list[AlterSequence] = []
        self.dropped_sequences: list[GlobalId] = []

    def apply(self, action: ast.TableAction) -> None:
        match action:
            case ast.AddConstraint(constraint=constraint):
                taken = {each.name for each in self.constraints}
                taken |= {each.name for each in self.new_foreign} | self.foreign.keys()
                if constraint.name is not None and constraint.name in taken:
                    raise DuplicateObject(
                        f'constraint "{constraint.name}" for relation "{self.name.item}" '
                        "already exists"
                    )
                if isinstance(constraint, ast.ForeignKeyDefinition):
                    self.new_foreign.append(constraint)
                    return
                self.constraints.append(constraint)
                refuse_two_primary_keys(self.name, self.constraints)
            case ast.DropConstraint(name=name) if name in self.foreign and not action.is_index:
                del self.foreign[name]
            case ast.DropConstraint(name=name, if_exists=if_exists, is_index=is_index):
                self.cascades |= action.cascade
                if if_exists and self._find(name) is None:
                    self.notices.append(f"{self._missing(name)}, skipping")
                else:
                    self.constraints.remove(self._constraint(name, is_index=is_index))
            case ast.RenameConstraint(name=name, to=to, is_index=is_index):
                if self._find(to) is not None or to in self.foreign:
                    raise DuplicateObject(
                        f'constraint "{to}" for relation "{self.name.item}" already exists'
                    )
                if name in self.foreign and not is_index:
                    self.renamed_foreign.append((name, to))
                else:
                    self._constraint(name, is_index=is_index).name = to
            case ast.SetNotNull(column=column, not_null=not_null):
                found = self._column(column)
                if not not_null:
                    self._refuse_identity(found)
                if not not_null and self._is_in_primary_key(column):
                    raise InvalidTableDefinition(f'column "{column}" is in a primary key')
                found.not_null = not_null
            case ast.SetDefault(column=column, default=default, text=text, text_at=text_at):
                found = self._column(column)
                self._refuse_identity(found, is_dropping=default is None)
                if found.generated is not None:
                    raise SyntaxError_(f"{self._described(column)} is a generated column")
                found.default, found.default_text, found.default_at = default, text, text_at
            case ast.ValidateConstraint(name=name) if name in self.foreign:
                self.validated.append(name)
            case ast.ValidateConstraint(name=name):
                if self._constraint(name, is_index=False).kind != "check":
                    raise WrongObjectType(
                        f'constraint "{name}" of relation "{self.name.item}" is not a foreign key'
                        " or check constraint"
                    )
            case ast.WithoutEffect(column=str(column)):
                self._column(column)
            case ast.WithoutEffect(index=index):
                if index is not None and self._find(index, is_index=True) is None:
                    require_index(self._planning, self.name, index)
            case ast.AlterColumnType():
                self._alter_type(action)
            case ast.AddIdentity():
                self._add_identity(action)
            case ast.SetIdentity():
                self._set_identity(action)
            case ast.DropIdentity():
                self._drop_identity(action)
            case ast.RenameColumn(name=name, to=to):
                self._rename(name, to)
            case ast.AddColumn():
                self._add(action)
            case ast.DropColumn():
                self._drop(action)

    def _alter_type(self, action: ast.AlterColumnType) -> None:
        found = self._column(action.column)
        refuse_watermarked(self.watermark, action.column, "alter type of")
        if any(column is found for column, _ in self.converted):
            raise SyntaxError_(f'cannot alter type of column "{action.column}" twice')
        if found.generated is not None or self._generated_by(action.column):
            raise FeatureNotSupported(
                "cannot alter type of a column used by a generated column",
                detail=f'Column "{action.column}" is one, or is used by one.',
            )
        found.type = action.type
        self.converted.append((found, action))

    def _generated_by(self, name: str) -> list[ast.ColumnDefinition]:
        """Return the generated columns that use a column."""
        return [
            each
            for each in self.columns
            if any(ref.parts[-1] == name for ref in column_refs(each.generated))
        ]

    def _add(self, action: ast.AddColumn) -> None:
        name = action.column.name
        if self._find_column(name) is not None:
            taken = f'column "{name}" of relation "{self.name.item}" already exists'
            if not action.if_not_exists:
                raise DuplicateColumn(taken)
            self.notices.append(f"{taken}, skipping")
            return
        self.columns.append(action.column)
        self.origins.append(None)
        for constraint in action.constraints:
            self.apply(ast.AddConstraint(constraint))

    def _drop(self, action: ast.DropColumn) -> None:
        """Drop a column and the constraints over it."""
        if action.if_exists and self._find_column(action.name) is None:
            self.notices.append(f"{self._no_column(action.name)}, skipping")
            return
        place = self.columns.index(self._column(action.name))
        refuse_watermarked(self.watermark, action.name, "drop")
        for each in self._generated_by(action.name):
            if not action.cascade:
                table = f"table {self.name.item}"
                raise DependentObjectsStillExist(
                    f"cannot drop column {action.name} of {table} because other objects depend"
                    " on it",
                    detail=f"column {each.name} of {table} depends on column {action.name} of"
                    f" {table}",
                    hint="Use DROP ... CASCADE to drop the dependent objects too.",
                )
            self._drop(ast.DropColumn(each.name, False, True))
            place = self.columns.index(self._column(action.name))
        del self.columns[place]
        origin = self.origins.pop(place)
        if origin is not None:
            self.dropped.append((origin, action.cascade))
        self.constraints = [
            each for each in self.constraints if action.name not in _columns_in(each)
        ]
        self.cascades |= action.cascade
        for key in [each for each in self.foreign.values() if action.name in each.columns]:
            del self.foreign[key.name]

    def foreign_changes(
        self, planning: Planning, item: ItemView, definition: CreateTable
    ) -> ForeignKeyChanges:
        """Return the changes of the table's foreign keys."""
        bound = bound_foreign_keys(
            planning,
            self.name,
            definition.desc,
            definition.constraints,
            self.new_foreign,
            self.foreign,
            item,
        )
        dropped = tuple(each.name for each in item.foreign_keys if each.name not in self.foreign)
        return ForeignKeyChanges(
            bound, dropped, tuple(self.renamed_foreign), tuple(self.validated), self.cascades
        )

    def _add_identity(self, action: ast.AddIdentity) -> None:
        found = self._column(action.column)
        described = self._described(found.name)
        # raises errors of the options
        identity_sequence(action.identity.options, type_of_name(found.type, self._planning))
        if not (found.not_null or self._is_in_primary_key(found.name)):
            raise ObjectNotInPrerequisiteState(
                f"{described} must be declared NOT NULL before identity can be added"
            )
        if found.identity is not None:
            raise ObjectNotInPrerequisiteState(f"{described} is already an identity column")
        if found.default is not None:
            raise ObjectNotInPrerequisiteState(f"{described} already has a default value")
        found.identity, found.is_new = action.identity, True

    def _set_identity(self, action: ast.SetIdentity) -> None:
        found = self._column(action.column)
        if found.identity is None:
            raise ObjectNotInPrerequisiteState(
                f"{self._described(found.name)} is not an identity column"
            )
        if action.options.given:
            if found.is_new:
                raise FeatureNotSupported(
                    "options of an identity column cannot be set by the ALTER TABLE that adds it"
                )
            plan = altered_sequence(self._planning, self._sequence(found), action.options)
            self.altered_sequences.append(plan)
        if action.always is not None:
            found.identity.always = action.always

    def _drop_identity(self, action: ast.DropIdentity) -> None:
        found = self._column(action.column)
        if found.identity is None:
            message = f"{self._described(found.name)} is not an identity column"
            if not action.if_exists:
                raise ObjectNotInPrerequisiteState(message)
            self.notices.append(f"{message}, skipping")
            return
        self.dropped_sequences.append(self._sequence(found).id)
        found.identity = None

    def _sequence(self, column: ast.ColumnDefinition) -> ItemView:
        """Return the sequence of an existing identity column."""
        assert column.identity is not None, column
        named: ast.TableRef = column.identity.options.given["sequence name"]
        return self._planning.catalog.resolve_item(named.name)

    def _rename(self, name: str, to: str) -> None:
        found = self._find_column(name)
        if found is None:
            raise UndefinedColumn(f'column "{name}" does not exist')
        if self._find_column(to) is not None:
            raise DuplicateColumn(f'column "{to}" of relation "{self.name.item}" already exists')
        found.name = to
        if self.watermark is not None and self.watermark.column == name:
            self.watermark.column = to
        for column in self._generated_by(name):
            place = column.generated_text, column.generated_at, column.generated
            column.generated_text = with_column_renamed(*place, name, to)
            for ref in column_refs(column.generated):
                if ref.parts[-1] == name:
                    ref.parts = (*ref.parts[:-1], to)
        for each in self.constraints:
            each.columns = tuple((to if c == name else c, at) for c, at in each.columns)
            each.text = with_column_renamed(each.text, each.text_at, each.condition, name, to)
            for ref in column_refs(each.condition):
                if ref.parts[-1] == name:
                    ref.parts = (*ref.parts[:-1], to)

    def _find_column(self, name: str) -> ast.ColumnDefinition | None:
        return next((each for each in self.columns if each.name == name), None)

    def _column(self, name: str) -> ast.ColumnDefinition:
        found = self._find_column(name)
        if found is None:
            raise UndefinedColumn(self._no_column(name))
        return found

    def _refuse_identity(self, column: ast.ColumnDefinition, *, is_dropping: bool = False) -> None:
        if column.identity is not None:
            instead = "ALTER TABLE ... ALTER COLUMN ... DROP IDENTITY"
            raise SyntaxError_(
                f"{self._described(column.name)} is an identity column",
                hint=f"Use {instead} instead." if is_dropping else None,
            )

    def _is_in_primary_key(self, column: str) -> bool:
        return any(
            each.kind == "primary key" and column in dict(each.columns) for each in self.constraints
        )

    def _described(self, column: str) -> str:
        return f'column "{column}" of relation "{self.name.item}"'

    def _no_column(self, name: str) -> str:
        return f"{self._described(name)} does not exist"

    def _find(self, name: str, *, is_index: bool = False) -> ast.ConstraintDefinition | None:
        return next(
            (
                each
                for each in self.constraints
                if each.name == name and (is_index or not each.is_index)
            ),
            None,
        )

    def _constraint(self, name: str, *, is_index: bool) -> ast.ConstraintDefinition:
        found = self._find(name, is_index=is_index)
        if found is None:
            raise UndefinedObject(self._missing(name))
        return found

    def _missing(self, name: str) -> str:
        return f'constraint "{name}" of relation "{self.name.item}" does not exist'


def _columns_in(constraint: ast.ConstraintDefinition) -> set[str]:
    """Return the names of the columns of a constraint."""
    if constraint.kind == "check":
        return {ref.parts[-1] for ref in column_refs(constraint.condition)}
    return {name for name, _ in constraint.columns}
