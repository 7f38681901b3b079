"""Bind FAILING_ROWS(view): the rows for which expressions of a view fail, as rows.

    relation    the relation that has the row; several of a join; NULL if it has none of its columns
    sqlstate, error
    row         the row as JSON

It is a query over the relations that the view reads, and needs the right to read all of them. It
goes through materialized views below whose errors make reads of the view fail: their rows are found
too, and their rows without errors are computed for the expressions above. It does not go through
views with a schedule, recursive ones and those over tables with row-level security. An error of one
of these fails the query, and names it.
"""

from foreshore.errors import FeatureNotSupported, UndefinedFunction, WrongObjectType
from foreshore.expr.columns import columns_of
from foreshore.expr.failing_rows import FailingRows, Origin, failing_rows
from foreshore.expr.ir import Column, Constant, Literal, Map, Project, Relation, Scalar, Union
from foreshore.expr.recursion import has_recursion
from foreshore.expr.share import put_in
from foreshore.expr.split import split_errors
from foreshore.expr.traversal import sources_of
from foreshore.ids import GlobalId
from foreshore.item_view import ItemView
from foreshore.sql import ast
from foreshore.sql.bind.binder import Clause
from foreshore.sql.bind.expression import ExpressionBinder
from foreshore.sql.bind.item_relations import relation_of_item, renumbered
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.bind.row_security import policies_of
from foreshore.sql.bind.scope import Scope
from foreshore.sql.rewrite.full_names import dotted
from foreshore.types import INT4, JSONB, TEXT, ColumnType

NAME = "failing_rows"
NAMES = ("relation", "sqlstate", "error", "row")
COLUMNS = tuple(ColumnType(type, True) for type in (TEXT, TEXT, TEXT, JSONB))


def bind_failing_rows(
    planning: Planning, call: ast.FunctionCall
) -> tuple[Relation, tuple[str, ...]]:
    """Return the relation of the rows, and its names."""
    at = call.at + 1
    if planning.in_view or planning.in_function:
        raise FeatureNotSupported(
            "FAILING_ROWS cannot be used in a view or function",
            hint="Use it in the query that reads the view. mz_internal.mz_view_errors has the"
            " errors of views that are maintained.",
            position=at,
        )
    name = call.args[0] if len(call.args) == 1 else None
    if not isinstance(name, ast.ColumnRef) or call.star or call.distinct or call.order_by:
        raise UndefinedFunction("FAILING_ROWS takes the name of a view", position=at)
    with located(name.at):
        view = planning.catalog.resolve_item(name.parts)
        if view.kind not in ("view", "materialized view"):
            raise WrongObjectType(f'"{view.name.item}" is not a view')
    planning.depends_on.add(view.id)
    planning.needs.entry(view).read_all()
    if view.kind == "view":
        definition = relation_of_item(planning, view)
    else:
        definition = planning.catalog.definition_of(view.id, with_errors=True)
        definition = renumbered(planning, definition)
    if has_recursion(definition):
        raise FeatureNotSupported(
            "FAILING_ROWS of a recursive query is not supported",
            hint="Compute what may fail in a view that the recursion reads, and name that view."
            " mz_internal.mz_view_errors has the errors of views that are maintained.",
            position=at,
        )
    finder = _Finder(planning, at)
    finder.find(definition)
    binder = ExpressionBinder(planning, Scope(), Clause("FAILING_ROWS"))
    parts = [_shown(binder, part, finder.inputs) for part in finder.parts]
    return Union(tuple(parts)) if parts else Constant((), COLUMNS), NAMES


class _Finder:
    """Finds the rows for a definition, and for the views below it, as `parts` over `inputs`."""

    def __init__(self, planning: Planning, at: int) -> None:
        self.parts: list[FailingRows] = []
        self.inputs: dict[GlobalId, ItemView] = {}
        self._planning = planning
        self._at = at
        # The rows without errors of views that were gone through; None: it is read itself.
        self._rows: dict[GlobalId, Relation | None] = {}

    def find(self, definition: Relation, *, fails: bool = True) -> dict[GlobalId, Relation]:
        """Find the rows, its own only if it `fails` for them; return what stands for its inputs."""
        below: dict[GlobalId, Relation] = {}
        for id in sorted(sources_of(definition)):
            if id not in self.inputs:
                self.inputs[id] = self._planning.catalog.item(id)
                _take_right(self._planning, self.inputs[id], self._at)
                self._rows[id] = self._rows_of(id)
            if (rows := self._rows[id]) is not None:
                below[id] = rows
        for part in failing_rows(definition) if fails else ():
            relation = self._put_in(part.relation, below)
            self.parts.append(FailingRows(relation, part.origins))
        return below

    def _rows_of(self, id: GlobalId) -> Relation | None:
        """Find the rows for which a view below fails; return its rows without errors."""
        catalog = self._planning.catalog
        if self.inputs[id].kind != "materialized view" or not self._is_open(id):
            return None
        shown, whole = catalog.definition_of(id), catalog.definition_of(id, with_errors=True)
        rows, errors = split_errors(whole)
        skips = shown is not whole  # errors that it skips do not matter
        below = self.find(renumbered(self._planning, whole), fails=not skips)
        if not below and (skips or errors is None):
            return None
        return self._put_in(rows, below)

    def _is_open(self, id: GlobalId) -> bool:
        """Whether the rows of a view are those of its definition, which may be read by all."""
        catalog = self._planning.catalog
        whole = catalog.definition_of(id, with_errors=True)
        try:
            catalog.definition_of(id)
        except FeatureNotSupported:
            return False  # its rows are those of a refresh
        items = map(catalog.item, sources_of(whole))
        secured = any(policies_of(self._planning, each) is not None for each in items)
        return not secured and not has_recursion(whole)

    def _put_in(self, relation: Relation, below: dict[GlobalId, Relation]) -> Relation:
        """Return a relation over other relations in place of collections."""
        fresh = {id: renumbered(self._planning, rows) for id, rows in below.items()}
        return renumbered(self._planning, put_in(relation, fresh))


def _take_right(planning: Planning, read: ItemView, at: int) -> None:
    """Let the statement need the right to read all of a relation."""
    if policies_of(planning, read) is not None:
        raise FeatureNotSupported(
            f'FAILING_ROWS over table "{read.name.item}" is not supported with row-level security',
            position=at,
        )
    planning.depends_on.add(read.id)
    planning.needs.entry(read).read_all()


def _shown(
    binder: ExpressionBinder, part: FailingRows, inputs: dict[GlobalId, ItemView]
) -> Relation:
    """Return rows as `COLUMNS`."""
    columns = columns_of(part.relation)
    width = len(part.origins)
    relations = list(dict.fromkeys(each[0] for each in part.origins if each is not None))
    named = ", ".join(dotted(inputs[id].name.parts[-2:]) for id in relations)
    members: dict[str, Scalar] = {}  # of a column that is there twice, the first
    for i, origin in enumerate(part.origins):
        if origin is not None:
            value = Column(i, columns[i].type, columns[i].nullable)
            members.setdefault(_key(inputs, origin, is_one=len(relations) == 1), value)
    text = Column(width, TEXT)
    args = [each for name, value in members.items() for each in (Literal(name, TEXT), value)]
    scalars = (
        Literal(named or None, TEXT),
        binder.call("left", (text, Literal(5, INT4)), 0),
        binder.call("substr", (text, Literal(7, INT4)), 0),
        binder.call("jsonb_build_object", args, 0) if args else Literal("{}", JSONB),
    )
    return Project(Map(part.relation, scalars), tuple(range(width + 1, width + 1 + len(COLUMNS))))


def _key(inputs: dict[GlobalId, ItemView], origin: Origin, *, is_one: bool) -> str:
    """Return what a column is called: RELATION.COLUMN if there are several relations."""
    read = inputs[origin[0]]
    name = read.desc.names[origin[1]]
    return name if is_one else f"{read.name.item}.{name}"
